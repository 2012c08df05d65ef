"""Two hosts: namespaces of this one with a network and a name of their own, joined by TCP alone. The
same text as on one; a rank's failure, and a cut link, end both sides with the reason.

Needs root, `ip` and `unshare`; is skipped without.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import uuid

import cli

DEMO = cli.TESTS / "data" / "demo" / "demo-PTQ1_0.gguf"
PATIENCE_S = 2  # --step-timeout
MCA = ["--mca", "btl", "vader,tcp,self"]


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def can_make_hosts():
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-n", "-u", "true"], capture_output=True).returncode == 0


@unittest.skipUnless(can_make_hosts(), "needs root, ip and unshare")
class TwoHosts(unittest.TestCase):
    def setUp(self):
        self.mark = uuid.uuid4().hex
        self.there = f"trine{self.mark[:6]}"  # the namespace of the second host
        self.link = f"tr{self.mark[:6]}"
        self.folder = tempfile.TemporaryDirectory()
        net = os.getpid() % 250 + 1
        here, there = f"10.213.{net}.1", f"10.213.{net}.2"
        self.addCleanup(self.folder.cleanup)
        ip("netns", "add", self.there)
        self.addCleanup(ip, "netns", "del", self.there)
        ip("link", "add", self.link, "type", "veth", "peer", "name", self.link + "b", "netns",
           self.there)
        ip("addr", "add", f"{here}/24", "dev", self.link)
        ip("link", "set", self.link, "up")
        ip("-n", self.there, "addr", "add", f"{there}/24", "dev", self.link + "b")
        ip("-n", self.there, "link", "set", self.link + "b", "up")
        ip("-n", self.there, "link", "set", "lo", "up")
        hosts = os.path.join(self.folder.name, "hosts")
        with open(hosts, "w") as file:
            file.write(f"{here} slots=1\n{there} slots=2\n")
        agent = os.path.join(self.folder.name, "agent")  # as ssh: HOST COMMAND...
        with open(agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec ip netns exec {self.there} unshare -u '
                       'sh -c "hostname second; $*"\n')
        os.chmod(agent, 0o755)
        self.mpirun = ["unshare", "-u", "sh", "-c", 'hostname first; exec "$@"', "sh", "mpirun",
                       "-np", "3", "--oversubscribe", "--bind-to", "none", "--hostfile", hosts,
                       "--mca", "plm_rsh_agent", agent, *MCA,
                       "--mca", "oob_tcp_if_include", f"10.213.{net}.0/24",
                       "--mca", "btl_tcp_if_include", f"10.213.{net}.0/24", "-x", "TRINE_FAULT"]

    def run_job(self, fault="", predict=20, while_it_runs=lambda: None):
        """Outcome, and the ranks' last words by rank."""
        command = [*self.mpirun, cli.TRINE, "run", "-m", DEMO, "-t", "1", "-n", predict, "--temp",
                   "0", "--ignore-eos", "--step-timeout", PATIENCE_S, "-p", self.mark]
        process = cli.start(command, {"TRINE_FAULT": fault or "rank=9,kind=exit"})
        begin = time.monotonic()
        while_it_runs()
        try:
            out, err = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            cli.end(process)
            raise
        words = dict(re.findall(r"\[rank (\d)/3\] (.*)", err.decode(errors="replace")))
        return cli.Outcome(process.returncode, out, err.decode(), time.monotonic() - begin), words

    def assert_nothing_runs(self):
        deadline = time.monotonic() + 8
        left = True
        while left and time.monotonic() < deadline:
            time.sleep(0.1)
            left = subprocess.run(["pgrep", "-f", self.mark], capture_output=True).stdout
        self.assertEqual(left, b"")

    def test_TwoHosts_SameText(self):
        outcome, words = self.run_job()
        self.assertEqual((outcome.code, words), (0, {}), outcome.err)
        alone = cli.execute([cli.TRINE, "run", "-m", DEMO, "-n", 20, "--temp", "0", "--ignore-eos",
                             "-p", self.mark])
        self.assertEqual(outcome.out, alone.out)

    def test_FaultOnEitherSide_EndsBoth(self):
        for rank, kind, reason in ((1, "exit", "rank 1 died"), (0, "segv", "rank 0 died"),
                                   (2, "stop", "rank 2 has not been heard of"),
                                   (1, "sleep", "rank 1 has stood still")):
            with self.subTest(rank=rank, kind=kind):
                outcome, words = self.run_job(f"rank={rank},kind={kind},phase=decode,step=5")
                self.assertNotEqual(outcome.code, 0)
                for other in {"0", "1", "2"} - {str(rank)}:
                    self.assertIn(reason, words.get(other, ""), outcome.err)
                self.assert_nothing_runs()

    def test_CutLink_EndsBothSides(self):
        def cut():
            time.sleep(3)
            ip("link", "set", self.link, "down")

        outcome, words = self.run_job(predict=900, while_it_runs=cut)
        self.assertNotEqual(outcome.code, 0)
        self.assertLess(outcome.seconds, 3 + PATIENCE_S + 15)
        self.assertRegex(words.get("0", ""), "rank [12] has not been heard of", outcome.err)
        self.assert_nothing_runs()


if __name__ == "__main__":
    cli.main()
