"""trine fabric, and the same check at the start of every job: what it prints, and that a path which
gives wrong data, or cannot be had, is not used."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import cli

DEMO = cli.TESTS / "data" / "demo" / "demo-PTQ1_0.gguf"
RUN = ["run", "-m", DEMO, "-t", "1", "-n", "8", "--temp", "0", "-p", "Hello"]
OPS = ["all-reduce int64", "all-reduce f32", "all-gather", "reduce-scatter"]
SIZES = [1024 << i for i in range(16)]  # to 32 MB
LONG_S = 120  # both paths with all sizes take some seconds a rank
LINE = re.compile(r"fabric: (\w+) (ok|slow) in \d+ ms, all-reduce of 16 KB in \d+ us, 1 MB at "
                  r"\d+\.\d GB/s(; .* at best, more than \d+)?$")
WRONG = (r"all-reduce int64 of 1 KB gives wrong data: element \d+ is 0x[0-9a-f]{16} in place of "
         r"0x[0-9a-f]{16} on every rank")


def fault(kind, rank=1):
    return {"TRINE_FAULT": f"rank={rank},kind={kind},phase=fabric"}


class Verb(cli.VerbCase):
    def test_Json_HasAllPathsSizesAndOperations(self):
        for np, paths in ((0, ["self"]), (1, ["self"]), (2, ["shm", "mpi"]), (3, ["shm", "mpi"])):
            with self.subTest(np=np):
                rows = json.loads(self.good("fabric", "--json", np=np, deadline=LONG_S))
                self.assertEqual([(row["path"], row["bytes"], row["op"]) for row in rows],
                                 [(path, size, op) for path in paths for size in SIZES
                                  for op in OPS])
                for row in rows:
                    self.assertEqual(list(row), ["path", "op", "bytes", "correct", "microseconds",
                                                 "gb_per_second", "verdict"])
                    self.assertIs(row["correct"], True)
                    self.assertIn(row["verdict"], ("ok", "slow"))
                    self.assertGreater(row["microseconds"], 0)

    def test_Table_HasARowForEachSize(self):
        for how, path, ranks in (({"np": 1}, "self", "1 rank"), ({"np": 2}, "shm", "2 ranks"),
                                 ({"mpirun": 3}, "mpi", "3 ranks")):
            with self.subTest(path=path):
                comm = [] if path == "self" else ["--comm", path]
                lines = self.good("fabric", *comm, deadline=LONG_S, **how).splitlines()
                self.assertEqual(lines[0], f"{path}, {ranks}: us, GB/s")
                self.assertEqual(lines[1].split(), " ".join(OPS).split())
                rows = [re.fullmatch(r" *(\d+ [KM]B)(?: +\d+\.\d +\d+\.\d\d){4}", line)
                        for line in lines[2:-2]]
                self.assertEqual([row and row[1] for row in rows],
                                 [f"{size >> 10} KB" if size < 1 << 20 else f"{size >> 20} MB"
                                  for size in SIZES])
                self.assertRegex(lines[-2], f"^{path}: (ok|slow; .*)$")
                self.assertEqual(lines[-1], "")

    def test_WrongData_IsShownAndFails(self):
        outcome = cli.trine("fabric", "--comm", "shm", np=2, extra=fault("corrupt"),
                            deadline=LONG_S)
        self.assertEqual(outcome.code, 1)
        self.assertRegex(outcome.errors[0], f"^trine: shm: {WRONG}; the transport or the memory of "
                         "a host is not sound$")
        out = outcome.out.decode()
        self.assertRegex(out, r"\n    1 KB +wrong +\d+\.\d ")
        self.assertEqual(len(re.findall("wrong ", out)), 2)  # in the table and below it
        self.assertRegex(out, f"\nshm: wrong; {WRONG}\n")

        outcome = cli.trine("fabric", "--json", "--comm", "mpi", np=2, extra=fault("zero", 0),
                            deadline=LONG_S)
        self.assertEqual(outcome.code, 1)
        rows = json.loads(outcome.out)
        self.assertEqual([row["op"] for row in rows if not row["correct"]], [OPS[0]])
        self.assertEqual((rows[0]["correct"], rows[0]["verdict"]), (False, "wrong"))

    def test_OptionsOfOthers_AreRefused(self):
        for words in (["--threads", "2"], ["-m", DEMO], [DEMO], ["--comm", "nccl"]):
            outcome = cli.trine("fabric", *words)
            self.assertEqual((outcome.code, len(outcome.errors), outcome.out), (2, 1, b""))


class StartCase(cli.VerbCase):
    def setUp(self):
        self.text = cli.trine(*RUN).out
        self.assertGreater(len(self.text), 4)


class Start(StartCase):
    def start(self, path, *options, **how):
        """A run that gives the text of one rank by that path; its warnings about paths."""
        outcome = cli.trine(*RUN, *options, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        line, = outcome.lines("fabric: ")
        self.assertEqual(LINE.match(line)[1], path)
        self.assertIn(f", comm {path}\n", outcome.err)
        self.assertEqual(outcome.out, self.text)
        return [line for line in outcome.lines("trine: warning: ") if "ranks share" not in line]

    def test_SoundPath_IsUsedAndNamedInOneLine(self):
        for path, options, how in (("shm", [], {"np": 2}), ("shm", [], {"np": 3}),
                                   ("mpi", ["--comm", "mpi"], {"np": 2}),
                                   ("shm", ["--comm", "shm"], {"mpirun": 3})):
            with self.subTest(path=path, how=how):
                self.assertEqual(self.start(path, *options, **how), [])

    def test_OneRank_HasNothingToCheck(self):
        outcome = cli.trine(*RUN)
        self.assertEqual((outcome.lines("fabric: "), outcome.lines("trine: ")), ([], []))

    def test_VerbsOfOneRank_CheckNothing(self):
        outcome = cli.trine("inspect", "-m", DEMO, mpirun=2)
        self.assertEqual((outcome.code, outcome.lines("fabric: ")), (0, []), outcome.err)

    def test_WrongShm_MpiIsUsed(self):
        for np, kind, rank in ((2, "corrupt", 1), (3, "corrupt", 1), (2, "zero", 0),
                               (3, "stale", 2)):
            with self.subTest(np=np, kind=kind, rank=rank):
                warning, = self.start("mpi", np=np, extra=fault(kind, rank))
                self.assertRegex(warning, f"^trine: warning: shm: {WRONG}; mpi is used$")

    def test_WrongPathThatWasAskedFor_IsAnError(self):
        for path, verb in (("shm", "run"), ("mpi", "run"), ("shm", "bench"),
                           ("mpi", "perplexity")):
            for how in ({"np": 2}, {"mpirun": 3}):
                with self.subTest(path=path, verb=verb, how=how):
                    text = [] if verb == "bench" else ["-p", "Hello"]
                    outcome = cli.trine(verb, "-m", DEMO, *text, "--comm", path,
                                        extra=fault("corrupt"), **how)
                    self.assertEqual((outcome.code, outcome.out), (1, b""))
                    error, = outcome.errors
                    self.assertRegex(error, f"^trine: {path}: {WRONG}; --comm {path} leaves no "
                                     "other path, and the job ends before a wrong answer$")
                    self.assertEqual(outcome.lines("["), [], "a rank's end is no death")
                    self.assertNotIn("loaded", outcome.err)


@unittest.skipUnless(shutil.which("unshare") and subprocess.run(
    ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True,
    check=False).returncode == 0, "this user cannot make a /dev/shm of its own")
class Containers(StartCase):
    """Ranks, or a whole job, with a /dev/shm of their own, as containers have."""
    SCRIPT = 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"\n'

    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        script = os.path.join(self.folder.name, "box.sh")
        with open(script, "w") as file:
            file.write(self.SCRIPT)
        self.box = lambda size: ["unshare", "-rm", "sh", script, size]
        # MPI's own messages go through what is left.
        self.extra = {"OMPI_MCA_btl": "self,tcp"}

    def run_in(self, command, *options):
        outcome = cli.execute([*command, cli.TRINE, *RUN, *options], self.extra)
        self.assertEqual(outcome.lines("["), [], outcome.err)
        return outcome

    def check(self, command, why):
        outcome = self.run_in(command)
        self.assertEqual((outcome.code, outcome.errors, outcome.out), (0, [], self.text))
        self.assertEqual(outcome.lines("trine: warning: "),
                         [f"trine: warning: {why}; mpi is used, which is slower"])
        self.assertEqual(LINE.match(outcome.lines("fabric: ")[0])[1], "mpi")
        outcome = self.run_in(command, "--comm", "shm")
        self.assertEqual((outcome.code, outcome.errors), (1, [f"trine: --comm shm: {why}"]))

    def test_ApartFromEachOther_TheyUseMpi(self):
        self.check([*cli.MPIRUN, "-np", "2", *self.box("64m")],
                   "rank 1 is on the host of rank 0 but has another /dev/shm, as containers have; "
                   "start all ranks in one, or each with --ipc=host")

    def test_SmallSharedMemory_TheyUseMpi(self):
        self.check([*self.box("1m"), *cli.MPIRUN, "-np", "2"],
                   "/dev/shm has 1.0 MB free and 2 ranks share 4.2 MB there; start the container "
                   "with --shm-size=1g or --ipc=host")


if __name__ == "__main__":
    cli.main()
