"""Every bad file and bad option ends a job of one rank, of --np 3 and of mpirun -np 3 alike: one
line on stderr that names the thing, its value and the remedy, exit code 1 (2: a wrong command
line), nothing on stdout, no hang."""
import os
import re
import shutil
import stat
import struct
import tempfile
import unittest
from dataclasses import dataclass, field

import cli
from cli import ALONE, MPI, SELF, TINY, Gguf

F32_MODEL = TINY / "qwen3_f32.gguf"
FOUR_HEADS = TINY / "qwen2_f16b.gguf"
FIVE_GRANULES = TINY / "llama_q4_k.gguf"  # of ffn_down, and 8 query heads
GET_AGAIN = "it is truncated or damaged, get it again"
READ_TYPES = ("F32 (0), F16 (1), BF16 (30), Q8_0 (8), Q4_0 (2), Q4_1 (3), Q4_K (12), Q5_K (13), "
              "Q6_K (14), TQ1_0 (34), TQ2_0 (35), Q1_0 (41), Q2_0 (42), PQ2_0 (142), "
              "PTQ1_0 (143)")
USAGE, FAILURE = 2, 1


@dataclass
class Case:
    name: str
    arguments: list
    message: str  # all of it, after "trine: "
    code: int = FAILURE
    extra: dict = field(default_factory=dict)  # environment
    rank: int = -1  # the one that finds the error, where it is not all of them
    launchers: tuple = (ALONE, SELF, MPI)


class ErrorCase(unittest.TestCase):
    """Runs lists of cases; the checks every error has to pass."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="trine-cli-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def patched(self, name, gguf, *patches):
        """A copy of gguf with bytes replaced: (place, bytes)."""
        data = bytearray(gguf.data)
        for place, new in patches:
            data[place:place + len(new)] = new
        return self.write(name, data)

    def check(self, outcome, message, code):
        if isinstance(outcome, AssertionError):
            raise outcome
        self.assertEqual(outcome.errors, ["trine: " + message], outcome.err)
        self.assertEqual(outcome.code, code)
        self.assertEqual(outcome.out, b"")
        # The last is mpirun's event library, now and then, as it closes the pipes of a dead rank.
        known = re.compile(r"trine: |fabric: |  rank \d|  [a-z_.]+ +\w+ +x |  loaded |  KV cache: |[^ ]+: \w+, \d+ ranks?, cpu|\[warn\] Epoll ")
        unknown = [line for line in outcome.err.splitlines() if not known.match(line)]
        self.assertEqual(unknown, [], "lines that are none of ours on stderr")

    def run_cases(self, cases):
        jobs = [(case, launcher) for case in cases for launcher in case.launchers]
        outcomes = cli.in_parallel(
            lambda job: cli.caught(cli.launch, job[1], *job[0].arguments, extra=job[0].extra),
            jobs)
        for (case, launcher), outcome in zip(jobs, outcomes):
            with self.subTest(case.name, launcher=launcher):
                prefix = f"rank {case.rank}: " if case.rank > 0 and launcher != ALONE else ""
                self.check(outcome, prefix + case.message, case.code)


class FileErrors(ErrorCase):
    def case(self, name, path, message, **options):
        return Case(name, ["run", "-m", path, "-p", "x", "-n", "1"], f"{path}{message}", **options)

    def test_NotAModel_OneLine(self):
        folder, absent = self.path("folder.gguf"), self.path("absent.gguf")
        os.mkdir(folder)
        self.run_cases([
            self.case("directory", folder, " has neither model.safetensors nor "
                      "model.safetensors.index.json; give a .gguf file or a folder of Hugging "
                      "Face's with safetensors"),
            self.case("absent", absent, ": cannot open: No such file or directory"),
            self.case("device", "/dev/null", " is not a regular file"),
            self.case("empty", self.write("empty.gguf", b""),
                      ": the file is empty (0 bytes); get it again"),
            self.case("text", self.write("text.gguf", b"This is not a model.\n"),
                      ": not a GGUF file: it starts with 'This' instead of 'GGUF'"),
        ])

    def test_Truncated_OneLine(self):
        gguf = Gguf(FOUR_HEADS)
        second, last = list(gguf.tensors.values())[1], list(gguf.tensors.values())[-1]
        in_data = last.begin + last.bytes - 1

        def cut(name, size, what):
            path = self.write(f"cut-{size}.gguf", gguf.data[:size])
            return self.case(name, path, f": {what}, the file ends at {size}; {GET_AGAIN}")

        self.run_cases([
            cut("magic", 2, "magic needs 4 bytes at 0"),
            cut("version", 6, "version needs 4 bytes at 4"),
            cut("counts", 12, "tensor count needs 8 bytes at 8"),
            cut("tensor table", second.type_at + 1,
                f"tensor '{second.name}' needs 4 bytes at {second.type_at}"),
            cut("data", in_data,
                f"tensor '{last.name}' needs bytes {last.begin} to {last.begin + last.bytes}"),
        ])

    def test_TruncatedAnywhere_SaysSo(self):
        gguf = Gguf(FOUR_HEADS)
        places = {*gguf.key_at.values(), *gguf.value_at.values(),
                  *(t.name_at for t in gguf.tensors.values()),
                  *(t.type_at for t in gguf.tensors.values())}
        cuts = sorted({*range(1, gguf.header_bytes, 97), *places, *(p + 3 for p in places),
                       gguf.header_bytes, len(gguf.data) // 2, len(gguf.data) - 1})

        def inspect(cut):
            path = self.write(f"part-{cut}.gguf", gguf.data[:cut])
            return path, cli.caught(cli.trine, "inspect", "-m", path)

        wrong = []
        for cut, (path, outcome) in zip(cuts, cli.in_parallel(inspect, cuts)):
            if isinstance(outcome, AssertionError):
                raise outcome
            line = outcome.err.rstrip("\n")
            if not (outcome.code == FAILURE and outcome.out == b"" and "\n" not in line
                    and line.startswith(f"trine: {path}: ") and line.endswith(GET_AGAIN)):
                wrong.append(f"{cut} bytes: {outcome.code} {line}")
        self.assertEqual(wrong[:3], [], f"{len(wrong)} of {len(cuts)} cuts")

    def test_DamagedHeader_OneLine(self):
        gguf = Gguf(F32_MODEL)
        gate = gguf.tensors["blk.0.ffn_gate.weight"]
        arch = gguf.value_at["general.architecture"] + 8
        heads, blocks = gguf.value_at["qwen3.attention.head_count_kv"], "qwen3.block_count"
        huge = 1 << 60
        self.run_cases([
            self.case("architecture", self.patched("arch.gguf", gguf, (arch, b"qwen9")),
                      ": architecture 'qwen9' is not supported; supported are llama, qwen2, qwen3, "
                      "qwen35"),
            self.case("type", self.patched("type.gguf", gguf, (gate.type_at, b"\x63")),
                      f": tensor '{gate.name}' has type 99; this version reads {READ_TYPES}"),
            self.case("version", self.patched("v9.gguf", gguf, (4, b"\x09")),
                      ": GGUF version 9; 2 and 3 are read"),
            self.case("key", self.patched("key.gguf", gguf, (gguf.key_at[blocks] + 6, b"blocX")),
                      f": metadata key '{blocks}' is missing; the file is incomplete"),
            self.case("heads", self.patched("heads.gguf", gguf, (heads, b"\x03")),
                      ": 'qwen3.attention.head_count' 10 is not a multiple of head_count_kv 3"),
            self.case("size", self.patched("size.gguf", gguf,
                                           (gate.type_at - 8, struct.pack("<Q", huge))),
                      f": tensor '{gate.name}': dimension 1 is {huge}; "
                      "it must be at least 1 and fit in memory"),
        ])

    def test_MissingTensor_NamesIt(self):
        gguf = Gguf(F32_MODEL)
        cases = []
        for name in ("token_embd.weight", "output_norm.weight", "blk.0.ffn_gate.weight",
                     "blk.2.ffn_down.weight", "blk.1.attn_q_norm.weight"):
            place = gguf.tensors[name].name_at + len(name) - 1
            path = self.patched(f"no-{name}.gguf", gguf, (place, b"X"))
            cases.append(self.case(
                name, path, f": tensor '{name}' is missing; the file is incomplete, get it again"))
        place = gguf.tensors["output.weight"].name_at
        path = self.patched("unknown.gguf", gguf, (place, b"0"))
        cases.append(self.case("a tensor too many", path,
                               ": tensor '0utput.weight' has no place in architecture 'qwen3'; "
                               "a part of the model would be left out"))
        self.run_cases(cases)

    def test_NotFiniteWeight_NamesTensorAndRank(self):
        gguf = Gguf(F32_MODEL)
        nan = struct.pack("<f", float("nan"))
        up, norm = gguf.tensors["blk.1.ffn_up.weight"], gguf.tensors["blk.0.attn_norm.weight"]
        what = "holds a value that is not finite; the file is damaged, get it again"
        last = self.patched("nan-last.gguf", gguf, (up.begin + up.bytes - 4, nan))
        first = self.patched("inf-first.gguf", gguf, (up.begin, struct.pack("<f", float("inf"))))
        self.run_cases([
            self.case("last row", last, f": tensor '{up.name}' {what}", rank=2),
            self.case("first row", first, f": tensor '{up.name}' {what}"),
            self.case("norm", self.patched("nan-norm.gguf", gguf, (norm.begin + 4, nan)),
                      f": tensor '{norm.name}' {what}"),
        ])


class RankErrors(ErrorCase):
    def test_TooManyRanks_NamesCountsThatWork(self):
        cases = [(FOUR_HEADS, 5, "attn_q: 4 query heads", 4),
                 (FIVE_GRANULES, 6, "ffn_down: 5 granules of 256 channels", 5),
                 (FIVE_GRANULES, 9, "attn_q: 8 query heads", 5)]
        jobs = [(case, how) for case in cases for how in ("np", "mpirun")]
        outcomes = cli.in_parallel(
            lambda job: cli.caught(cli.trine, "run", "-m", job[0][0], "-p", "x",
                                   **{job[1]: job[0][1]}), jobs)
        for ((model, ranks, units, most), how), outcome in zip(jobs, outcomes):
            with self.subTest(f"{model.name} on {ranks}", how=how):
                self.check(outcome, f"{model}: {units} cannot be shared by {ranks} ranks; "
                           f"use 1 to {most} ranks", FAILURE)

    def test_TooLittleMemory_IsSeenBeforeWeightsAreRead(self):
        gguf = Gguf(F32_MODEL)
        weights = gguf.tensors["blk.1.ffn_up.weight"]
        nan = struct.pack("<f", float("nan"))
        model = self.patched("nan-weights.gguf", gguf, (weights.begin, nan))
        jobs = [(launcher, options) for launcher in (ALONE, SELF, MPI)
                for options in (["--memory-fraction", "1e-6"], ["--kv-memory", "1KB"])]
        outcomes = cli.in_parallel(lambda job: cli.caught(cli.launch, job[0], "run", "-m", model,
                                                          "-p", "x", *job[1]), jobs)
        for (launcher, options), outcome in zip(jobs, outcomes):
            with self.subTest(launcher=launcher, options=options):
                who, cache = ("the model", 430.1) if launcher == ALONE else ("rank 0", 172.0)
                message = outcome.errors[0].removeprefix("trine: ")
                self.check(outcome, message, FAILURE)
                if options[0] == "--kv-memory":
                    self.assertEqual(message, f"a context of 256 tokens needs {cache} KB of KV "
                                     "cache, --kv-memory is 1.0 KB; use --kv-memory "
                                     f"{cache + 1:.0f}KB")
                else:
                    self.assertRegex(message, f"^{who} needs [23]\\.\\d MB for a context of 256 "
                                     f"tokens \\({cache} KB of KV cache, .* beside it\\) of the .* "
                                     "that it may take; use ranks on more hosts or a larger "
                                     "--memory-fraction$")

    def test_CountsThatWork_DoWork(self):
        for model, most in ((FOUR_HEADS, 4), (FIVE_GRANULES, 5)):
            outcome = cli.trine("run", "-m", model, "-p", "x", "-n", "1", np=most)
            self.assertEqual((outcome.code, outcome.errors), (0, []))

    def test_Split_ForAnotherRankCount(self):
        arguments = ["run", "-m", F32_MODEL, "-p", "x", "--split", "2,1"]
        message = f"{F32_MODEL}: --split has 2 numbers for {{}}; give one a rank"
        self.run_cases([
            Case("one", arguments, message.format("1 ranks"), launchers=(ALONE,)),
            Case("three", arguments, message.format("3 ranks"), launchers=(SELF, MPI)),
        ])

    def test_Np_InsideAJobOfOtherSize(self):
        outcome = cli.trine("run", "--np", "2", "-m", F32_MODEL, "-p", "x", mpirun=3)
        self.check(outcome, "--np 2 inside a job of 3 ranks; leave one of them out", FAILURE)

    def test_NoMpirun_SaysWhatToInstall(self):
        outcome = cli.trine("run", "-m", F32_MODEL, "-p", "x", np=2, extra={"PATH": self.folder})
        self.check(outcome, "--np 2: cannot start mpirun: No such file or directory; "
                   "install Open MPI (apt-get install openmpi-bin)", FAILURE)

    def unlike(self, *theirs):
        """Two ranks of one job that were given different command lines."""
        mine = [cli.TRINE, "run", "-m", F32_MODEL, "-n", "1"]
        return cli.execute([*cli.MPIRUN, "-np", 1, *mine, "-p", "x", ":", "-np", 1, *mine, *theirs])

    def test_FileThatOneRankLacks_EndsAll(self):
        absent = self.path("absent.txt")
        self.check(self.unlike("-f", absent), "rank 1: its command line is not that of rank 0; start "
                   "all ranks with the same one", FAILURE)

    def test_EnvironmentOfOneRank_DoesNotMatter(self):
        mine = [cli.TRINE, "run", "-m", F32_MODEL, "-n", "8", "--temp", "0", "-p", "x"]
        both = cli.execute([*cli.MPIRUN, "-np", 2, *mine])
        self.assertEqual(both.code, 0, both.err)
        for variable in ("TRINE_SPLIT=1,4", "TRINE_CTX_SIZE=9", "TRINE_COMM=mpi",
                         "TRINE_COMPUTE=f32"):
            with self.subTest(variable):
                one = cli.execute([*cli.MPIRUN, "-np", 1, *mine, ":", "-np", 1, "-x", variable,
                                   *mine])
                self.assertEqual((one.code, one.out), (0, both.out), one.err)

    def test_OptionsThatDiffer_EndAll(self):
        outcome = self.unlike("-p", "x", "--no-such-option")
        self.check(outcome, "rank 1: unrecognised option '--no-such-option' (trine run --help)",
                   USAGE)

    def test_MpirunSaysMore_OursIsOneLine(self):
        """As a user sees it: mpirun's paragraphs between lines of dashes, and one line of ours."""
        outcome = cli.trine("run", "-m", self.path("absent.gguf"), "-p", "x", mpirun=3,
                            extra={"OMPI_MCA_orte_execute_quiet": "0",
                                   "OMPI_MCA_odls_base_sigkill_timeout": "1"})
        ours = re.sub(r"(?ms)^-{70,}$.*?^-{70,}$\n?", "", outcome.err)
        ours = re.sub(r"(?m)^(fabric: |trine: warning: \d+ ranks share ).*\n", "", ours)
        self.assertEqual(ours.strip(), f"trine: {self.path('absent.gguf')}: cannot open: "
                         "No such file or directory")


class OptionErrors(ErrorCase):
    def usage(self, options, message, **more):
        return Case(" ".join(map(str, options)), ["run", "-m", F32_MODEL, "-p", "x", *options],
                    message, USAGE, **more)

    def test_WrongOptions_ExitTwo(self):
        self.run_cases([
            self.usage(["--foo"], "unrecognised option '--foo' (trine run --help)"),
            self.usage(["--tem", "0"], "unrecognised option '--tem' (trine run --help)"),
            self.usage(["-np", "2"], "-np means different things elsewhere; use --np N for ranks "
                       "or --parallel N for sequences"),
            self.usage(["--temp", "x"],
                       "the argument ('x') for option '--temp' is invalid (trine run --help)"),
            self.usage(["--temp", "nan"], "--temp is nan; 0 to 100 is possible"),
            self.usage(["-t", "-1"], "--threads is -1; 0 to 1024 is possible"),
            self.usage(["-b", "0"], "--batch-size is 0; 1 to 1048576 is possible"),
            self.usage(["-c", "-1"], "--ctx-size is -1; 0 to 16777216 is possible"),
            self.usage(["--split", "1,x"], "--split 1,x: 'x' is not a number >= 0"),
            self.usage(["-ctk", "f16", "-ctv", "f32"],
                       "-ctk is f16 and -ctv f32; they must be equal"),
            self.usage(["-ctk", "q9"], "-ctk is 'q9'; possible are f16, q8_0, f32"),
            self.usage(["-ctv", "q9"], "-ctv is 'q9'; possible are f16, q8_0, f32"),
            self.usage(["-ctk", "q9", "-ctv", "f16"], "-ctk is 'q9'; possible are f16, q8_0, f32"),
            self.usage(["--kv-memory", "5"], "--kv-memory is '5'; a size from 1KB on is needed, such "
                       "as 500MB or 5GB"),
            self.usage(["--memory-fraction", "1.5"],
                       "--memory-fraction is 1.5; 1e-06 to 1 is possible"),
            self.usage(["--parallel", "4097"], "--parallel is 4097; 0 to 4096 is possible"),
            self.usage(["--ctx-checkpoints", "-1"],
                       "--ctx-checkpoints is -1; 0 to 1024 is possible"),
            self.usage(["--draft", "65"], "--draft-max is 65; 0 to 64 is possible"),
            self.usage(["--typical", "2"], "--typical is 2; 0 to 1 is possible"),
            self.usage(["--min-tokens", "-1"], "--min-tokens is -1; 0 to 16777216 is possible"),
            self.usage(["-r", ""], "--reverse-prompt is empty; give the text to stop at"),
            *(self.usage(["--logit-bias", text], f"--logit-bias is '{text}'; a token's id with a "
                         "number behind it is needed, such as 15043+1.5, 15043-1 or 15043-inf")
              for text in ("15043", "x+1", "5+x", "5+inf", "5-1e39", "5+ 1")),
            self.usage(["--comm", "tcp"], "--comm is 'tcp'; possible are auto, shm, mpi"),
            self.usage(["--temp", "0"], "the argument ('x') for option 'top-k' is invalid "
                       "(trine run --help)", extra={"TRINE_TOP_K": "x"}),
        ])

    def test_BiasOfNoToken_NamesBothNumbers(self):
        self.run_cases([Case("bias", ["run", "-m", F32_MODEL, "-p", "x", "--logit-bias", "262+1e3",
                                      "--logit-bias", "263-inf"],
                             "--logit-bias names token 263, the model has 263; trine tokenize "
                             "shows the ids of a text")])

    def test_WrongCommandLines_ExitTwo(self):
        mpi = (ALONE, MPI)  # --np would come after the error
        self.run_cases([
            Case("verb", ["walk"], "unknown verb 'walk'; run, bench, perplexity, fabric, inspect, "
                 "plan, tokenize, convert and synth exist (trine --help)", USAGE, launchers=mpi),
            Case("no model", ["run", "-p", "x"], "run needs a model: -m MODEL.gguf", USAGE),
            Case("no prompt", ["run", "-m", F32_MODEL],
                 "run needs a prompt: -p TEXT or -f FILE", USAGE),
            Case("bench list", ["bench", "-m", F32_MODEL, "-p", "16,a"], "-p: 'a' is neither a "
                 "number >= 0 nor a range such as 1-4, 1-9+4 or 1-8*2", USAGE),
            Case("bench output", ["bench", "-m", F32_MODEL, "-o", "xml"],
                 "--output is 'xml'; possible are md, csv, json, jsonl, sql", USAGE),
            Case("tokenize", ["tokenize", "-m", F32_MODEL],
                 "tokenize needs text: -p TEXT, -f FILE or --decode IDS", USAGE, launchers=mpi),
            Case("np", ["run", "--np", "x", "-m", F32_MODEL, "-p", "x"],
                 "the argument ('x') for option '--np' is invalid (trine run --help)", USAGE,
                 launchers=mpi),
        ])

    def test_WrongListsOfBench_ExitTwo(self):
        """Parsed alike on every launcher, so one will do."""
        form = "is neither a number >= 0 nor a range such as 1-4, 1-9+4 or 1-8*2"
        for options, message in (
                (["-n", "8,"], f"-n: '' {form}"), (["-d", "-1"], f"-d: '-1' {form}"),
                (["-p", "1-"], f"-p: '1-' {form}"), (["-p", "1-8/2"], f"-p: '1-8/2' {form}"),
                (["-b", "0"], "-b is 0; 1 to 16777216 is possible"),
                (["-p", "1-16777217"], "-p is 16777217; 0 to 16777216 is possible"),
                (["-p", "8-4"], "-p: the range '8-4' does not get to its last number"),
                (["-p", "1-8*1"], "-p: the range '1-8*1' does not get to its last number"),
                (["-p", "0-8*2"], "-p: the range '0-8*2' does not get to its last number"),
                (["-p", "1-8+0"], "-p: the range '1-8+0' does not get to its last number"),
                (["-p", "1-2000"], "-p: with '1-2000' there are more than 1000 numbers"),
                (["-pg", "8"], "-pg is '8'; two numbers PP,TG are needed"),
                (["-pg", "8,0"], "-pg is 0; 1 to 16777216 is possible"),
                (["-p", "0", "-n", "0"],
                 "nothing to time: give -p, -n or -pg a length above 0")):
            with self.subTest(options):
                self.check(cli.trine("bench", "-m", F32_MODEL, *options), message, USAGE)

    def test_WrongValues_ExitOne(self):
        absent = self.path("absent")
        run = ["run", "-m", F32_MODEL, "-p", "0123456789"]
        unwritable = self.path("absent/logits")
        self.run_cases([
            Case("TRINE_CPU", run, "TRINE_CPU=nonsense is none of generic, avx2, avx512",
                 extra={"TRINE_CPU": "nonsense"}),
            Case("context", [*run, "-c", "12", "-n", "8"],
                 "the prompt has 10 tokens and 8 are to follow, but the context holds 12; "
                 "use a larger --ctx-size"),
            Case("prompt file", ["run", "-m", F32_MODEL, "-f", absent],
                 f"--file {absent}: cannot open it"),
            Case("config", [*run, "--config", absent], f"--config {absent}: cannot open it"),
            Case("empty prompt", ["run", "-m", F32_MODEL, "-p", ""],
                 "the prompt is empty; give -p some text"),
            Case("logits file", [*run, "--save-logits", unwritable],
                 f"{unwritable}: cannot create: No such file or directory"),
            Case("token id", ["tokenize", "-m", F32_MODEL, "--decode", "1 263"],
                 "--decode: '263' is not a token id; 0 to 262 exist", launchers=(ALONE,)),
        ])

    def test_PromptLongerThanTheModelsContext_NamesIt(self):
        """A larger --ctx-size is no remedy there."""
        outcome = cli.trine("run", "-m", F32_MODEL, "-p", "0123456789", "-n", "300", "-c", "4096")
        self.assertEqual((outcome.code, len(outcome.errors)), (FAILURE, 1))
        self.assertIn("256", outcome.errors[0])
        self.assertNotIn("larger --ctx-size", outcome.errors[0])

    def test_DirectoryAsTextFile_IsAnError(self):
        for options in (["-f", self.folder], ["-p", "x", "--config", self.folder]):
            with self.subTest(options=options):
                outcome = cli.trine("run", "-m", F32_MODEL, "-n", "1", *options)
                self.assertEqual((outcome.code, len(outcome.errors)), (FAILURE, 1))
                self.assertIn(self.folder, outcome.errors[0])


class OutputErrors(ErrorCase):
    def test_FullStdout_IsAnError(self):
        for arguments in (["inspect"], ["tokenize", "-p", "x"], ["run", "-p", "x", "-n", "4"],
                          ["bench", "-p", "4", "-n", "1", "-r", "1"]):
            with self.subTest(arguments[0]), open("/dev/full", "wb") as full:
                outcome = cli.trine(*arguments, "-m", F32_MODEL, stdout=full)
                self.assertEqual((outcome.code, len(outcome.errors)), (FAILURE, 1))

    def test_SaveLogits_LeavesWhatIsNoFileInPlace(self):
        """Renaming over it would take /dev/null from the machine when root says so."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            cli.trine("run", "-m", F32_MODEL, "-p", "x", "-n", "1", "--save-logits", pipe)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode), "the pipe was replaced")
        finally:
            os.close(reader)

    def test_FailedRun_LeavesNoPartOfAFile(self):
        logits = self.path("full-context")
        cli.trine("run", "-m", F32_MODEL, "-p", "x", "-c", "2", "-n", "5", "--save-logits", logits)
        self.assertEqual([name for name in os.listdir(self.folder) if "full-context" in name], [])


class Corners(ErrorCase):
    def test_SplitPartUnderAShortName_IsRefused(self):
        for part, words in (("1", "'split.count' is 3"), ("2", "is part 2 of a split model")):
            path = self.path("m.gguf")
            shutil.copy(TINY / f"llama_split-0000{part}-of-00003.gguf", path)
            outcome = cli.trine("inspect", path)
            self.assertEqual((outcome.code, len(outcome.errors)), (FAILURE, 1))
            self.assertIn(words, outcome.errors[0])
            self.assertIn("-00001-of-00003.gguf", outcome.errors[0])

    def test_NameTooLong_IsRefused(self):
        long = "x" * 300
        self.check(cli.trine("run", "-m", F32_MODEL, "-f", long),
                   f"--file {long}: cannot open it", FAILURE)
        self.check(cli.trine("run", "-m", F32_MODEL, "-p", "x", "--config", long),
                   f"--config {long}: cannot open it", FAILURE)

    def test_LoneColon_IsRefusedBeforeMpirun(self):
        self.check(cli.trine("run", "-m", F32_MODEL, "-p", ":", np=2), "a lone ':' parts mpirun's "
                   "programs; write it behind its option, as in --prompt=:", FAILURE)

    def test_BenchOfBillions_IsRefused(self):
        self.check(cli.trine("bench", "-m", F32_MODEL, "-n", 4294967297),
                   "-n is 4294967297; 0 to 16777216 is possible", USAGE)

    def test_PenaltyThatIsNoNumber_IsRefused(self):
        outcome = cli.trine("run", "-m", F32_MODEL, "-p", "x", "--presence-penalty", "nan")
        self.assertEqual((outcome.code, len(outcome.errors)), (USAGE, 1))

    def test_TinyTemperature_IsGreedy(self):
        texts = {cli.trine("run", "-m", F32_MODEL, "-p", "x", "-n", 8, "--top-k", 0, "--top-p", 1,
                           "--min-p", 0, "--temp", t).out for t in ("0", "1e-30", "1e-39")}
        self.assertEqual(len(texts), 1)

    def test_FlagSetToZeroInTheEnvironment_IsOff(self):
        outcome = cli.trine("inspect", F32_MODEL, extra={"TRINE_JSON": "0"})
        self.assertTrue(outcome.out.startswith(b"architecture"), outcome.out)

    def test_ControlCharactersOfAFile_AreEscaped(self):
        path = self.path("lines.gguf")
        with open(path, "wb") as file:
            file.write(b"\n\n\n\n" + bytes(100))
        self.check(cli.trine("inspect", path), f"{path}: not a GGUF file: it starts with "
                   "'\\x0a\\x0a\\x0a\\x0a' instead of 'GGUF'", FAILURE)


if __name__ == "__main__":
    cli.main()
