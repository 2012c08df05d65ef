"""A rank that fails ends the job, soon, with a reason from every other rank, and leaves nothing behind.

Of all kinds of fault, phases, ranks and ways to start, a choice; TRINE_FAULTS=all takes them all.
"""
import itertools
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

import cli

DEMO = cli.TESTS / "data" / "demo" / "demo-PTQ1_0.gguf"
RANKS = 3
KINDS = ("exit", "abort", "segv", "throw", "stop", "sleep")
PHASES = ("start-up", "fabric", "load", "prefill", "decode", "idle", "shutdown")
PATIENCE_S = 1  # --step-timeout
# The longest that a rank may stand still in each phase, see DeadlineOf.
STANDS_STILL_S = {"start-up": 4 * PATIENCE_S, "fabric": 2 * PATIENCE_S, "load": 10 * PATIENCE_S}
STARTS_S, ENDS_S = 4, 4  # a run without a fault takes one second, mpirun's end two


def run_command(launcher, mark, predict="40"):
    words = ["run", "-m", DEMO, "-t", "1", "-n", predict, "--temp", "0", "--ignore-eos",
             "--step-timeout", PATIENCE_S, "-p", mark]
    if launcher == cli.SELF:
        return [cli.TRINE, words[0], "--np", RANKS, *words[1:]]
    return [*cli.MPIRUN, "-np", RANKS, cli.TRINE, *words]


def processes(mark):
    return subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True).stdout.split()


class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.mark = uuid.uuid4().hex
        self.extra = {"TMPDIR": self.folder.name, "OMPI_MCA_odls_base_sigkill_timeout": "1",
                      "OMPI_MCA_btl_vader_backing_directory": self.folder.name}

    def tearDown(self):
        self.folder.cleanup()

    def assert_nothing_is_left(self):
        """Soon after the end: no process, no file of a session, shared memory among them."""
        def left():
            files = [name for _, _, names in os.walk(self.folder.name) for name in names]
            return processes(self.mark), files

        deadline = time.monotonic() + 3
        while any(left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(left(), ([], []))

    def fail_once(self, kind, phase, rank, launcher):
        extra = {**self.extra, "TRINE_FAULT": f"rank={rank},kind={kind},phase={phase}"}
        outcome = cli.execute(run_command(launcher, self.mark), extra, deadline=40)
        self.assertNotEqual(outcome.code, 0)
        seen = {"sleep": STANDS_STILL_S.get(phase, PATIENCE_S) + 1, "stop": PATIENCE_S + 1}
        self.assertLess(outcome.seconds, STARTS_S + seen.get(kind, 0) + ENDS_S)
        lines = re.findall(r"\[rank (\d)/3\] (.*)", outcome.err)
        if kind == "throw":  # the process itself says why, where it can
            self.assertTrue(any("TRINE_FAULT asked for it" in text for _, text in lines) or
                            "what():  TRINE_FAULT" in outcome.err, outcome.err)
        else:
            verb = {"stop": "has not been heard of for", "sleep": "has stood still for"}.get(
                kind, "died, last seen in")
            told = {int(who) for who, text in lines if f"rank {rank} {verb}" in text}
            others = set(range(RANKS)) - {rank}
            if phase == "shutdown":  # some of which may have ended
                self.assertTrue(told & others, outcome.err)
            else:
                self.assertLessEqual(others, told, outcome.err)
        self.assert_nothing_is_left()
        return outcome.seconds

    def choice(self):
        if os.environ.get("TRINE_FAULTS") == "all":
            yield from itertools.product(KINDS, PHASES, range(RANKS), (cli.SELF, cli.MPI))
            return
        yield from (("sleep", phase, 1, cli.SELF) for phase in ("start-up", "shutdown"))
        yield from ((kind, "decode", 1, cli.SELF) for kind in KINDS)
        yield from (("exit", phase, 2, cli.SELF) for phase in PHASES)
        yield from (("exit", "decode", 0, cli.MPI), ("stop", "prefill", 0, cli.MPI),
                    ("sleep", "idle", 0, cli.SELF), ("sleep", "fabric", 1, cli.MPI),
                    ("stop", "fabric", 0, cli.SELF))

    def test_AnyFault_EndsTheJobWithItsReason(self):
        longest = {}
        for kind, phase, rank, launcher in self.choice():
            with self.subTest(kind=kind, phase=phase, rank=rank, launcher=launcher):
                seconds = self.fail_once(kind, phase, rank, launcher)
                longest[kind] = max(longest.get(kind, 0), seconds)
        print("longest, with start and end:",
              ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in longest.items()))

    def test_FalseContribution_EndsTheJobBeforeAnAnswer(self):
        """In any collective of a step: the rank and the step are named where that can be known, and
        what has been printed is what would have been without the fault."""
        right = cli.execute(run_command(cli.SELF, self.mark), self.extra).out
        every = os.environ.get("TRINE_FAULTS") == "all"
        cases = itertools.product(("corrupt", "zero", "stale"), range(RANKS) if every else (1,),
                                  range(1, 15) if every else (1, 2, 3, 4, 9, 10))
        for kind, rank, collective in cases:
            with self.subTest(kind=kind, rank=rank, collective=collective):
                fault = f"rank={rank},kind={kind},phase=decode,step=7,collective={collective}"
                outcome = cli.execute(run_command(cli.SELF, self.mark),
                                      {**self.extra, "TRINE_FAULT": fault})
                self.assertNotEqual(outcome.code, 0)
                self.assertTrue(right.startswith(outcome.out.rstrip(b"\n")), outcome.out)
                reason, = set(re.findall(r"\[rank \d/3\] (decode, step 7.*); the transport",
                                         outcome.err))
                named = (f"what came from rank {rank} is not what it should have sent",
                         f"the contribution of rank {rank} is missing",
                         f"rank {rank} sent again what it had sent to a collective before",
                         "bits of a rank's contribution were changed")
                self.assertTrue(reason.endswith(named[:3] if kind != "corrupt" else named), reason)
                self.assert_nothing_is_left()

    def test_SlowRank_IsNoFault(self):
        command = run_command(cli.SELF, self.mark, "8")
        plain = cli.execute(command, self.extra)
        slow = cli.execute(command, {**self.extra, "TRINE_FAULT": "rank=1,kind=slow,phase=decode"})
        self.assertEqual((slow.code, slow.out), (0, plain.out))

    def test_WholeJobStopped_GoesOnWhenItIsWoken(self):
        """As by Ctrl-Z and fg, for longer than a rank may be silent or stand still."""
        plain = cli.execute(run_command(cli.SELF, self.mark, "60"), self.extra)
        slow = {**self.extra, "TRINE_FAULT": "rank=1,kind=slow"}
        process = cli.start(run_command(cli.MPI, self.mark, "60"), slow)
        time.sleep(1)
        ranks = [int(pid) for pid in processes(self.mark) if int(pid) != process.pid]
        for wake in (signal.SIGSTOP, signal.SIGCONT):
            for pid in ranks:
                os.kill(pid, wake)
            time.sleep(3 * PATIENCE_S if wake == signal.SIGSTOP else 0)
        out, err = process.communicate(timeout=40)
        self.assertEqual((process.returncode, out), (0, plain.out), err.decode())

    def test_MalformedFault_IsRefusedWithAWarning(self):
        for value in ("rank=1", "rank=x,kind=exit", "rank=1,kind=boom", "rank=1,kind=exit,phase=x",
                      "rank=1,kind=exit,step=-1", "nonsense"):
            with self.subTest(value=value):
                outcome = cli.execute(run_command(cli.SELF, self.mark, "1"),
                                      {**self.extra, "TRINE_FAULT": value})
                self.assertEqual(outcome.code, 0)
                warning, = outcome.lines("trine: warning: TRINE_FAULT")
                self.assertIn("is not understood, so no fault will happen", warning)

    def test_KilledLauncher_LeavesNothing(self):
        for launcher in (cli.SELF, cli.MPI):
            with self.subTest(launcher=launcher):
                slow = {**self.extra, "TRINE_FAULT": "rank=1,kind=slow"}  # so that it lasts
                process = cli.start(run_command(launcher, self.mark, "900"), slow)
                time.sleep(1.5)
                self.assertGreater(len(processes(self.mark)), RANKS)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                self.assert_nothing_is_left()


if __name__ == "__main__":
    cli.main()
