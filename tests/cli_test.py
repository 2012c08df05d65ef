"""The verbs that look at a file, the benchmark's forms, help; the warning about bound ranks; no
process and no shared memory outlives its job. Errors: cli_errors_test.py; ranks, text and bytes
read: cli_ranks_test.py."""
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import statistics
import struct
import tempfile
import time
import unittest

import cli
from cli import SMOL, TINY, Gguf

QWEN3 = TINY / "qwen3_f32.gguf"
FIXTURE = TINY.parent / "smollm2.json"
DEMO = TINY.parent / "demo" / "demo-PTQ1_0.gguf"
VERBS = ("run", "bench", "perplexity", "inspect", "tokenize", "synth")


class Inspect(cli.VerbCase):
    def expected(self, paths):
        parts = [Gguf(path) for path in paths]
        first, tensors = parts[0], [t for part in parts for t in part.tensors.values()]
        types = {}
        for tensor in tensors:
            entry = types.setdefault(tensor.type, {"tensors": 0, "bytes": 0})
            entry["tensors"] += 1
            entry["bytes"] += tensor.bytes
        hashes = [hashlib.sha256(part.data).hexdigest() for part in parts]
        return {"architecture": first.arch,
                "parameters": sum(self.values(t.shape) for t in tensors),
                "tensors": len(tensors), "tensor_bytes": sum(t.bytes for t in tensors),
                "types": types, "context": first["context_length"],
                "tokenizer": {"model": first["tokenizer.ggml.model"],
                              "pre": first["tokenizer.ggml.pre"],
                              "size": len(first["tokenizer.ggml.tokens"])},
                "sha256": hashes[0] if len(hashes) == 1 else hashes}

    @staticmethod
    def values(shape):
        count = 1
        for size in shape:
            count *= size
        return count

    def check(self, first, paths):
        found = json.loads(self.good("inspect", "--json", "--sha256", "-m", first))
        found.pop("rotation", None)
        self.assertEqual(found, self.expected(paths))

    def test_Json_AsAnotherReaderFindsIt(self):
        for name in ("llama_q4_k", "qwen2_f16b", "llama3_bf16", "qwen3_q4_1", "qwen3_f32"):
            with self.subTest(name):
                self.check(TINY / f"{name}.gguf", [TINY / f"{name}.gguf"])

    def test_Json_OfASplitFile(self):
        parts = sorted(TINY.glob("llama_split-*.gguf"))
        self.check(parts[0], parts)

    @cli.needs_smol
    def test_Json_OfSmol(self):
        self.check(SMOL, [SMOL])

    def test_Json_HashOnlyIfAsked(self):
        self.assertNotIn("sha256", json.loads(self.good("inspect", "--json", "-m", QWEN3)))

    def verify(self, model, text):
        with tempfile.NamedTemporaryFile("w", suffix=".sha256") as file:
            file.write(text)
            file.flush()
            return file.name, cli.trine("inspect", "-m", model, "--json", "--verify", file.name)

    def test_Verify_FindsTheFilesInAList(self):
        parts = sorted(TINY.glob("llama_split-*.gguf"))
        digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in [*parts, QWEN3]}
        lines = "".join(f"{digest}  {path.name}\n" for path, digest in digests.items())
        lists = [(parts[0], lines), (QWEN3, lines), (QWEN3, digests[QWEN3] + "\n"),
                 (QWEN3, f"\r\n{digests[QWEN3].upper()} *some/folder/{QWEN3.name}\r\n")]
        for model, text in lists:
            with self.subTest(model=model, text=text):
                _, outcome = self.verify(model, text)
                self.assertEqual((outcome.code, outcome.errors), (0, []))
                found = json.loads(outcome.out)
                self.assertTrue(found["verified"])
                self.assertEqual(found["sha256"], [digests[part] for part in parts]
                                 if model == parts[0] else digests[model])
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(lines)
            file.flush()
            text = self.good("inspect", "-m", parts[0], "--verify", file.name)
            for part in parts:
                self.assertIn(f"sha256        {digests[part]}  {part}: OK\n", text)

    def test_Verify_OtherDigests_AreErrors(self):
        part = sorted(TINY.glob("llama_split-*.gguf"))[0]
        digest = hashlib.sha256(QWEN3.read_bytes()).hexdigest()
        wrong = digest[:-1] + ("0" if digest[-1] != "0" else "1")
        line = f"{wrong}  {QWEN3.name}"
        no_line = "is no 'HEX  NAME' as sha256sum writes it, or not the first for its name"
        cases = [(QWEN3, line, f"{QWEN3}: its sha256 is {digest}, but FILE has {wrong}; the file is "
                  "damaged or another one, get it again"),
                 (QWEN3, f"{digest}  other.gguf",
                  f"FILE has no line 'HEX  {QWEN3.name}'; give the list of this model"),
                 (part, digest, f"FILE has no line 'HEX  {part.name}'; give the list of this model"),
                 (QWEN3, "", f"FILE has no line 'HEX  {QWEN3.name}'; give the list of this model"),
                 (QWEN3, "# sums", f"FILE, line 1: '# sums' {no_line}"),
                 (QWEN3, f"{digest}  a\n{wrong}  b/a",
                  f"FILE, line 2: '{(wrong + '  b/a')[:60]}...' {no_line}")]
        for model, text, message in cases:
            with self.subTest(text):
                name, outcome = self.verify(model, text)
                self.assertEqual((outcome.code, outcome.out, outcome.errors),
                                 (1, b"", ["trine: " + message.replace("FILE", name)]))

    def test_Json_NoRotationHere(self):
        found = json.loads(self.good("inspect", "--json", "-m", QWEN3))
        self.assertEqual(found["rotation"]["weights"], 0)

    def test_Text_NamesEveryTensor(self):
        lines = [line.split() for line in self.good("inspect", "-m", QWEN3).splitlines()]
        gguf = Gguf(QWEN3)
        self.assertIn(["architecture", "qwen3"], lines)
        for tensor in gguf.tensors.values():
            shape = " x ".join(map(str, tensor.shape)).split()
            self.assertIn([tensor.name, *shape, tensor.type, str(tensor.bytes)], lines)

    def test_SecondPart_NamesTheFirst(self):
        part = TINY / "llama_split-00002-of-00003.gguf"
        outcome = cli.trine("inspect", "-m", part)
        self.assertEqual((outcome.code, len(outcome.errors)), (1, 1))
        self.assertIn("is part 2 of a split model; give the first", outcome.errors[0])
        self.assertIn("00001-of-00003", outcome.errors[0])


class Tokenize(cli.VerbCase):
    TEXT = "naïve café 😀\tend"

    def ids(self, model, *options, **how):
        return [entry["id"] for entry in
                json.loads(self.good("tokenize", "-m", model, "--json", *options, **how))]

    def test_Ids_GiveTheTextBack(self):
        for model in (QWEN3, *([SMOL] if SMOL.exists() else [])):
            ids = self.ids(model, "-p", self.TEXT)
            self.assertGreater(len(ids), 4)
            back = self.good("tokenize", "-m", model, "--decode", " ".join(map(str, ids)))
            self.assertEqual(back, self.TEXT + "\n")

    def test_TokenizerJson_AndSentencePiece_GiveTheTextBack(self):
        tokenizers = TINY.parent / "tokenizers"
        for model in (tokenizers / "qwen.json", tokenizers / "spm_bytes.gguf"):
            ids = self.ids(model, "-p", "hi  a b")
            back = self.good("tokenize", "-m", model, "--decode", " ".join(map(str, ids)))
            self.assertEqual(back, "hi  a b\n")

    @cli.needs_smol
    def test_Smol_IdsAsTransformers(self):
        for prompt in json.loads(FIXTURE.read_text())["prompts"]:
            ids = self.ids(SMOL, "--no-escape", "-p", prompt["text"])
            self.assertEqual(ids, prompt["ids"])
            back = self.good("tokenize", "-m", SMOL, "--decode", " ".join(map(str, ids)))
            self.assertEqual(back, prompt["text"] + "\n")

    @cli.needs_smol
    def test_Smol_ControlTokensOnlyIfWanted(self):
        self.assertEqual(self.ids(SMOL, "-p", "<|im_end|>"), [2])
        self.assertNotIn(2, self.ids(SMOL, "-p", "<|im_end|>", "--no-parse-special"))

    def test_Text_IdAndPieceOnALine(self):
        lines = self.good("tokenize", "-m", QWEN3, "-p", self.TEXT).splitlines()
        rows = [line.split("\t") for line in lines]
        self.assertEqual([int(row[0]) for row in rows], self.ids(QWEN3, "-p", self.TEXT))
        pieces = json.loads(self.good("tokenize", "-m", QWEN3, "--json", "-p", self.TEXT))
        self.assertEqual([json.loads(row[1]) for row in rows], [e["piece"] for e in pieces])

    def test_SeveralPrompts_AreToldApart(self):
        both = ("-p", "one two", "-p", "three")
        entries = json.loads(self.good("tokenize", "-m", QWEN3, "--json", *both))
        for index, text in enumerate(("one two", "three")):
            ids = [entry["id"] for entry in entries if entry["prompt"] == index]
            self.assertEqual(ids, self.ids(QWEN3, "-p", text))
        blocks = self.good("tokenize", "-m", QWEN3, *both).split("\n\n")
        self.assertEqual([len(block.splitlines()) for block in blocks],
                         [sum(e["prompt"] == index for e in entries) for index in (0, 1)])

    def test_Sources_GiveTheSameIds(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a\nb")
            file.flush()
            ids = self.ids(QWEN3, "-f", file.name)
        self.assertEqual(self.ids(QWEN3, "-f", "-", text=b"a\nb"), ids)
        self.assertEqual(self.ids(QWEN3, "-p", "a\\nb"), ids)
        self.assertNotEqual(self.ids(QWEN3, "--no-escape", "-p", "a\\nb"), ids)


class Bench(cli.VerbCase):
    TINY_TEST = ["-p", "16", "-n", "4", "-r", "1"]
    OPTIONAL = ("weight_gb_per_second", "read_gb_per_second", "read_fraction")
    NAMES = ["model", "type", "model_filename", "model_size", "model_n_params", "np", "threads",
             "device", "comm", "compute", "cache_type", "n_batch", "n_prompt", "n_gen", "n_depth",
             "n_parallel", "test", "tokens_per_second", "stddev", "samples_ts", *OPTIONAL, "comm_fraction",
             "wait_fraction", "split", "version", "commit", "mpi", "cpu", "test_time"]
    SPLIT = ["linear", "attention", "delta", "norm", "rotation", "rope", "candidates", "other",
             "collectives", "rest"]

    def rows(self, *options, **how):
        return json.loads(self.good("bench", "-t", "1", "-m", QWEN3, *options, "--json", **how))

    def test_Json_OneEntryATest(self):
        for how, np in (({}, 1), ({"np": 2}, 2), ({"mpirun": 2}, 2)):
            with self.subTest(how=how):
                rows = self.rows(*self.TINY_TEST, **how)
                self.assertEqual([row["test"] for row in rows], ["pp16", "tg4"])
                for row in rows:
                    self.assertEqual(list(row), self.NAMES)
                    self.assertEqual((row["model"], row["type"], row["np"]), ("qwen3", "F32", np))
                    self.assertEqual((row["comm"], row["threads"]), ("self" if np == 1 else "shm",
                                                                     1))
                    self.assertIn("cpu", row["device"])
                    self.assertIn("MPI", row["mpi"])
                    self.assertGreater(row["tokens_per_second"], 0)
                    self.assertEqual(row["stddev"], 0)  # of one repetition
                    self.check_shares(row)

    def check_shares(self, row):
        self.assertEqual(list(row["split"]), self.SPLIT)
        self.assertAlmostEqual(sum(row["split"].values()), 1)
        for name, share in row["split"].items():
            self.assertTrue(0 <= share < 1, (name, share))
        for name in ("linear", "attention", "norm", "rope", "candidates", "other", "rest"):
            self.assertGreater(row["split"][name], 0, name)
        self.assertEqual((row["split"]["delta"], row["split"]["rotation"]), (0, 0))
        comm, wait = row["comm_fraction"], row["wait_fraction"]
        self.assertTrue(0 < comm <= 1 and 0 <= wait <= 1, (comm, wait))
        self.assertAlmostEqual(comm + wait, row["split"]["collectives"])
        self.assertEqual(wait > 0, row["np"] > 1)  # nobody is the last every time

    def test_WeightRate_IsBytesTimesTokens_BesideAPlainRead(self):
        """The bytes are those that the plan keeps in memory, but for what is no matrix."""
        for np in (1, 2):
            with self.subTest(np=np):
                plan = json.loads(self.good("plan", "-m", QWEN3, "--np", np, "--json"))
                resident = sum(rank["resident_bytes"] for rank in plan["ranks"])
                prefill, decode = self.rows(*self.TINY_TEST, np=np)
                streamed = decode["weight_gb_per_second"] * 1e9 / decode["tokens_per_second"]
                self.assertTrue(0.97 * resident < streamed < resident, (streamed, resident))
                self.assertAlmostEqual(decode["weight_gb_per_second"] / decode["read_gb_per_second"]
                                       / decode["read_fraction"], 1)  # of one repetition
                self.assertEqual([prefill[name] for name in self.OPTIONAL], [None] * 3)

    def test_Lists_Ranges_PairsAndDepths_InLlamaBenchsOrder(self):
        rows = self.rows("-p", "4,8", "-n", "1-3", "-pg", "8,2", "-pg", "4,1", "-d", "0,16", "-b",
                         "2-8*4", "-r", "3")
        each = ["pp4", "pp8", "tg1", "tg2", "tg3", "pp8+tg2", "pp4+tg1"]
        self.assertEqual([(row["test"], row["n_depth"], row["n_batch"]) for row in rows],
                         [(test + ("" if depth == 0 else f" @ d{depth}"), depth, batch)
                          for depth in (0, 16) for batch in (2, 8) for test in each])
        self.assertEqual([(row["n_prompt"], row["n_gen"]) for row in rows[:7]],
                         [(4, 0), (8, 0), (0, 1), (0, 2), (0, 3), (8, 2), (4, 1)])
        for row in rows:
            samples = row["samples_ts"]
            self.assertEqual(len(samples), 3)
            self.assertAlmostEqual(statistics.mean(samples) / row["tokens_per_second"], 1)
            self.assertAlmostEqual(statistics.stdev(samples) / row["stddev"], 1)

    def test_SmallBatches_TakeMoreSteps(self):
        """The best of several, since others may use the machine."""
        small, large = self.rows("-p", "64", "-n", "0", "-b", "1,64", "-r", "5")
        self.assertGreater(max(large["samples_ts"]), 1.5 * max(small["samples_ts"]))

    def test_Depth_IsNotTimed(self):
        """It would be 125 times as many steps."""
        short, deep = self.rows("-p", "0", "-n", "2", "-d", "0,250", "-b", "1", "-r", "5")
        self.assertGreater(max(deep["samples_ts"]), max(short["samples_ts"]) / 20)

    def test_Depth_IsFilled(self):
        """With the prompt's first token alone the model works, with any other it does not."""
        gguf = Gguf(QWEN3)
        table = gguf.tensors["token_embd.weight"]
        row = table.bytes // table.shape[1]
        first = ((6364136223846793005 + 1442695040888963407) % 2**64 >> 33) % table.shape[1]
        data = bytearray(gguf.data)
        data[table.begin:table.begin + table.bytes] = struct.pack("<f", float("nan")) * (
            table.bytes // 4)
        begin = table.begin + first * row
        data[begin:begin + row] = gguf.data[begin:begin + row]
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(data)
            file.flush()
            bench = ("bench", "-m", file.name, "-p", "0", "-n", "1", "-r", "1", "-o", "csv", "-d")
            self.assertIn('"tg1"', self.good(*bench, "0"))
            outcome = cli.trine(*bench, "40")
        self.assertEqual((outcome.code, outcome.errors), (1, [
            "trine: tg1 @ d40: a value was not finite or beyond 2^22; nothing to time"]))

    def test_Parallel_CountsTheTokensOfAllSequences(self):
        rows = self.rows("-p", "20", "-n", "4", "-npl", "1,3", "-r", "1", np=2)
        self.assertEqual([row["test"] for row in rows], ["pp20", "tg4", "pp20 x3", "tg4 x3"])
        self.assertEqual([row["n_parallel"] for row in rows], [1, 1, 3, 3])
        for row in rows:  # a weight is read once a step, whatever the number of sequences
            if row["n_gen"] > 0:
                steps = row["tokens_per_second"] / row["n_parallel"]
                resident = row["weight_gb_per_second"] * 1e9 / steps
                self.assertAlmostEqual(resident, rows[1]["weight_gb_per_second"] * 1e9 /
                                       rows[1]["tokens_per_second"], delta=1)
        for options, message in (
                (("-b", "2"), "-npl is 3 and -b 2; a step must have room for a token of every "
                              "sequence"),
                (("-d", "5"), "-npl is 3 and -d 5; several sequences begin at -d 0 only")):
            outcome = cli.trine("bench", "-m", QWEN3, "-npl", "3", *options)
            self.assertEqual((outcome.code, outcome.errors), (2, ["trine: " + message]))

    def test_Context_GrowsWithTheTests_UpToTheModels(self):
        self.assertEqual(self.rows("-p", "0", "-n", "4", "-d", "40", "-r", "1", "-c", "16")[0]
                         ["test"], "tg4 @ d40")
        outcome = cli.trine("bench", "-m", QWEN3, "-p", "8,200", "-n", "0", "-d", "8,100")
        self.assertEqual((outcome.code, outcome.out, outcome.errors), (1, b"", [
            "trine: pp200 @ d100 needs a context of 301 tokens, but the model was made for 256; "
            "ask for less"]))

    def test_Table_ColumnsAndWhereTheTimeGoes(self):
        table, split, build = self.good("bench", "-m", QWEN3, *self.TINY_TEST, np=2).split("\n\n")
        cells = [[cell.strip() for cell in line.strip("|").split("|")]
                 for line in table.splitlines()]
        self.assertEqual(cells[0], ["model", "type", "size", "params", "device", "comm", "np",
                                    "n_batch", "test", "t/s", "comm %", "wait %", "weights GB/s",
                                    "% of read"])
        self.assertEqual({len(row) for row in cells}, {14})
        self.assertEqual(len({len(line) for line in table.splitlines()}), 1)
        self.assertEqual([row[8] for row in cells[2:]], ["pp16", "tg4"])
        self.assertEqual([row[12] != "" for row in cells[2:]], [False, True])
        for line, row in zip(split.splitlines(), cells[2:], strict=True):
            name, shares = line.split(": ")
            self.assertEqual(name, row[8])
            percents = [float(share.split()[1]) for share in shares.split(",")]
            self.assertAlmostEqual(sum(percents), 100, delta=0.6)  # each is rounded
        self.assertRegex(build, r"^build: \w+, Trine [\d.]+, .*MPI")

    def test_OtherForms_HoldWhatJsonHolds(self):
        flat = [name for name in self.NAMES if name not in ("samples_ts", "split")]
        where = flat.index("version")
        flat[where:where] = ["split_" + name for name in self.SPLIT]
        bench = ["bench", "-m", QWEN3, *self.TINY_TEST]
        lines = [json.loads(line) for line in self.good(*bench, "-o", "jsonl").splitlines()]
        self.assertEqual([list(row) for row in lines], [self.NAMES] * 2)
        rows = list(csv.DictReader(io.StringIO(self.good(*bench, "-o", "csv"))))
        self.assertEqual([list(row) for row in rows], [flat] * 2)
        database = sqlite3.connect(":memory:")
        database.row_factory = sqlite3.Row
        for _ in range(2):  # a table may grow
            database.executescript(self.good(*bench, "-o", "sql"))
        table = [dict(row) for row in database.execute("select * from trine_bench")]
        self.assertEqual([list(row) for row in table], [flat] * 4)
        for prefill, decode, none in ((lines[0], lines[1], None), (rows[0], rows[1], ""),
                                      (table[2], table[3], None)):
            self.assertEqual([prefill["test"], decode["test"]], ["pp16", "tg4"])
            self.assertEqual(prefill["device"], lines[0]["device"])  # there are commas in it
            self.assertEqual([prefill[name] for name in self.OPTIONAL], [none] * 3)
            for name in ("tokens_per_second", *self.OPTIONAL):
                self.assertGreater(float(decode[name]), 0)

    def test_OddFileName_IsQuoted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.fsencode(folder) + b"/it's \"odd\",\xff.gguf"
            shutil.copy(QWEN3, path)
            for form in ("json", "csv", "sql"):
                with self.subTest(form):
                    outcome = cli.trine("bench", "-m", os.fsdecode(path), *self.TINY_TEST, "-o",
                                        form)
                    self.assertEqual((outcome.code, outcome.errors), (0, []))
                    if form == "json":
                        text = outcome.out.decode()
                        self.assertIn("it's \"odd\",", json.loads(text)[0]["model_filename"])
                    elif form == "csv":
                        text = outcome.out.decode(errors="replace")
                        row = next(csv.DictReader(io.StringIO(text)))
                        self.assertIn("it's \"odd\",", row["model_filename"])
                    else:
                        database = sqlite3.connect(":memory:")
                        database.executescript(outcome.out.decode(errors="replace"))
                        name, = database.execute("select model_filename from trine_bench "
                                                 "limit 1").fetchone()
                        self.assertIn("it's \"odd\",", name)

    def test_StepsThatFail_AreNoResult(self):
        """With embeddings that are not finite every test ends at its first step."""
        gguf = Gguf(QWEN3)
        table = gguf.tensors["token_embd.weight"]
        data = bytearray(gguf.data)
        data[table.begin:table.begin + table.bytes] = struct.pack("<f", float("nan")) * (
            table.bytes // 4)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(data)
            file.flush()
            outcome = cli.trine("bench", "-m", file.name, *self.TINY_TEST)
        self.assertEqual((outcome.code, len(outcome.errors), outcome.out), (1, 1, b""))


class Help(cli.VerbCase):
    def test_Help_NamesVerbsAndOptions(self):
        overview = self.good("--help")
        for verb in VERBS:
            self.assertIn(f"\n  {verb} ", overview)
            text = self.good(verb, "--help")
            self.assertIn("--preset" if verb == "synth" else "--model", text)
            self.assertNotIn("terminate", text)
        self.assertEqual(self.good("-h"), overview)
        self.assertIn("--save-logits", self.good("run", "--help"))
        self.assertIn("--kl-divergence", self.good("perplexity", "--help"))

    def test_Help_OnceUnderMpirun(self):
        self.assertEqual(self.good("--help", mpirun=3), self.good("--help"))
        self.assertEqual(self.good("run", "--help", mpirun=3), self.good("run", "--help"))

    def test_Version_IsTheProjects(self):
        cmake = (cli.TESTS.parent / "CMakeLists.txt").read_text()
        version = re.search(r"project\(trine VERSION ([\d.]+)", cmake).group(1)
        self.assertEqual(self.good("--version"), f"trine {version}\n")


def physical_cores():
    folder = pathlib.Path("/sys/devices/system/cpu")
    files = (folder / f"cpu{n}/topology/thread_siblings_list" for n in os.sched_getaffinity(0))
    return len({file.read_text() for file in files if file.exists()})


class Binding(cli.VerbCase):
    def warnings(self, command, threads):
        outcome = cli.execute([*command, cli.TRINE, "run", "-m", QWEN3, "-p", "x", "-n", "1",
                               "-t", threads])
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        return outcome.lines("trine: warning: ")

    @unittest.skipUnless(physical_cores() >= 2, "ranks cannot be bound apart on one core")
    def test_RankWithFewerCoresThanThreads_WarnedOnce(self):
        cores = len(os.sched_getaffinity(0))
        for binding in (["--bind-to", "core"], []):  # the second: Open MPI's default for two
            with self.subTest(binding=binding):
                warnings = self.warnings(["mpirun", "-np", "2", *binding], cores)
                self.assertEqual(len(warnings), 1, warnings)
                self.assertRegex(warnings[0], f"each rank is bound to \\d+ of {cores} cores and "
                                 f"runs {cores} threads; give mpirun --bind-to none, or start "
                                 "with trine --np$")

    def test_FreeRanks_NotWarned(self):
        cores = len(os.sched_getaffinity(0))
        mpirun = ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"]
        self.assertEqual(self.warnings(mpirun, cores), [])
        outcome = cli.trine("run", "-m", QWEN3, "-p", "x", "-n", "1", np=2)
        self.assertEqual(outcome.lines("trine: "), [])

    def test_MoreThreadsThanCores_IsNotABinding(self):
        for line in self.warnings([], len(os.sched_getaffinity(0)) + 1):
            self.assertNotIn("bound", line)
            self.assertNotIn("mpirun", line)


class Processes(cli.VerbCase):
    """Two ranks at work whose job ends, one way or another."""

    def start(self, repetitions, *options):
        """A job, its ranks and the files by which they share memory."""
        self.ranks, self.memory = [], set()
        self.job = cli.start([cli.TRINE, "bench", "--np", "2", "-m", QWEN3, "-p", "0", "-n", "250",
                              "-r", repetitions, "-t", "1", *options])
        self.addCleanup(self.clean)
        self.ranks = self.wait_for(self.find_ranks, 8, "two ranks at work")
        self.memory = set().union(*(self.mapped(pid, "/dev/shm/", "/ompi.") for pid in self.ranks))

    def clean(self):
        if self.job.poll() is None:
            cli.end(self.job)
        self.job.communicate()
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        for path in self.memory:  # a killed mpirun leaves them, and its own folder
            pathlib.Path(path).unlink(missing_ok=True)
        for folder in pathlib.Path(tempfile.gettempdir()).glob(f"ompi.*/pid.{self.job.pid}"):
            shutil.rmtree(folder, ignore_errors=True)

    def wait_for(self, what, seconds, name):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := what():
                return found
            time.sleep(0.02)
        self.fail(f"not within {seconds} s: {name}")

    @staticmethod
    def stat(pid):
        """(state, parent, clock ticks used) of a process, or None."""
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return fields[0], int(fields[1]), int(fields[11]) + int(fields[12])

    def find_ranks(self):
        """Both of them, once they have computed for a while."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        seen = {pid: self.stat(pid) for pid in pids}
        children = [pid for pid in pids if seen[pid] and seen[pid][1] == self.job.pid]
        ranks = [pid for pid in pids if seen[pid] and seen[pid][1] in children
                 and seen[pid][2] > 4]
        return ranks if len(ranks) == 2 else []

    @staticmethod
    def mapped(pid, *names):
        """Files that a process has in its memory and that have not been unlinked."""
        lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) > 5}
        return {path for path in paths
                if any(name in path for name in names) and not path.endswith(" (deleted)")}

    def alive(self):
        states = {pid: self.stat(pid) for pid in self.ranks}
        return [pid for pid, state in states.items() if state and state[0] not in "ZX"]

    def all_end(self, seconds):
        self.wait_for(lambda: not self.alive(), seconds, "no rank alive")

    def left_over(self):
        return [path for path in sorted(self.memory) if os.path.exists(path)]

    def test_KilledSupervisor_TakesItsRanks(self):
        """The stopped one too, which cannot learn of it by itself."""
        self.start(1000)
        os.kill(self.ranks[1], signal.SIGSTOP)
        os.kill(self.job.pid, signal.SIGKILL)
        self.all_end(2)

    def test_KilledRank_EndsTheJob(self):
        self.start(1000)
        os.kill(self.ranks[1], signal.SIGKILL)
        self.all_end(4)
        self.assertNotEqual(self.job.wait(5), 0)

    def test_InterruptedJob_LeavesNothing(self):
        self.start(1000)
        self.job.send_signal(signal.SIGINT)
        self.assertNotEqual(self.job.wait(8), 0)
        self.all_end(1)
        self.assertEqual(self.left_over(), [])

    def test_NormalEnd_LeavesNothing(self):
        for comm in ("shm", "mpi"):
            with self.subTest(comm):
                self.start(30, "--comm", comm)
                self.assertTrue(self.memory)
                self.assertEqual(self.job.wait(150), 0)  # seconds, on a loaded machine minutes
                self.assertEqual((self.alive(), self.left_over()), ([], []))


if __name__ == "__main__":
    cli.main()
