"""The same bits and the same text from any number of ranks, however started and divided; each rank
reads its own bytes of the file and no others."""
import os
import re
import shutil
import struct
import sys
import tempfile
import unittest

import cli
from cli import SMOL, TINY, Gguf

PROMPT = "The quick brown fox jumps over the lazy dog."
OTHER_PROMPT = "What else? 0123456789, and so on: a second text, longer than the first one."
QWEN3 = TINY / "qwen3_f32.gguf"          # 10 query heads, 5 KV heads, 11 granules
THREE_BLOCKS = TINY / "qwen3_q4_1.gguf"  # 2100 rows of vocabulary: three ranks have some

# What a job is given beside the model and the prompt: ranks, then options and environment.
EVERY_WAY = [
    ("two ranks", dict(np=2), [], {}),
    ("three ranks", dict(np=3), [], {}),
    ("four ranks", dict(np=4), [], {}),
    ("plain mpirun", dict(mpirun=2), [], {}),
    ("mpirun with its own binding", dict(command=["mpirun", "-np", "2"]), [], {}),
    ("shm", dict(np=3), ["--comm", "shm"], {}),
    ("mpi", dict(np=3), ["--comm", "mpi"], {}),
    ("mpi, chunks of 7", dict(np=2), ["--comm", "mpi", "-b", "7"], {}),
    ("chunks of 7", dict(), ["-b", "7"], {}),
    ("token by token", dict(), ["-b", "1"], {}),
    ("token by token, three ranks", dict(np=3), ["-b", "1"], {}),
    ("one thread", dict(), ["-t", "1"], {}),
    ("two threads", dict(np=2), ["-t", "2"], {}),
    ("three threads", dict(), ["-t", "3"], {}),
    ("split 2,1", dict(np=2), ["--split", "2,1"], {}),
    ("split 1,5,2", dict(np=3), ["--split", "1,5,2"], {}),
    *((f"TRINE_CPU={unit}", dict(np=np), [], {"TRINE_CPU": unit})
      for unit in cli.units() for np in (0, 2)),
]
SOME_WAYS = [
    ("two ranks", dict(np=2), [], {}),
    ("three ranks, mpi, chunks of 7", dict(np=3), ["--comm", "mpi", "-b", "7"], {}),
    ("four ranks under mpirun", dict(mpirun=4), ["-t", "1"], {}),
    ("split 2,1", dict(np=2), ["--split", "2,1"], {}),
    *((f"TRINE_CPU={unit}", dict(np=2), [], {"TRINE_CPU": unit}) for unit in cli.units()),
]


def run(model, options, command=None, **how):
    """Of `trine run`, with a command before it or as cli.trine starts it."""
    arguments = ["run", "-m", model, *options]
    if command is None:
        return cli.trine(*arguments, **how)
    return cli.execute([*command, cli.TRINE, *arguments], how.get("extra"))


class RanksCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="trine-cli-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def logits(self, model, options, number, **how):
        """Of one run: its text and the bits of its logits."""
        path = os.path.join(self.folder, f"{model.name}-{number}")
        outcome = run(model, [*options, "--save-logits", path], **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        with open(path, "rb") as file:
            return outcome.out, file.read()

    def text(self, model, *options, **how):
        outcome = run(model, options, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        return outcome.out


class SameBits(RanksCase):
    def check(self, model, vocab, tokens, ways):
        base = ["-p", PROMPT, "-n", tokens, "--temp", "0", "--ignore-eos"]
        one = self.logits(model, base, "one")
        self.check_rows(one[1], vocab, tokens)
        other = self.logits(model, ["-p", OTHER_PROMPT, *base[2:]], "other")
        self.assertNotEqual(one[1], other[1], "the logits do not depend on the prompt")
        jobs = list(enumerate(ways))
        results = cli.in_parallel(
            lambda job: cli.caught(self.logits, model, base + job[1][2], job[0], extra=job[1][3],
                                   **job[1][1]), jobs, workers=3)
        for (_, (name, *_)), result in zip(jobs, results):
            with self.subTest(name):
                if isinstance(result, AssertionError):
                    raise result
                self.assertEqual(result[0], one[0], "another text")
                self.assertTrue(result[1] == one[1], "other bits")

    def check_rows(self, data, vocab, tokens):
        self.assertEqual(len(data), 4 * vocab * tokens)
        rows = [data[i:i + 4 * vocab] for i in range(0, len(data), 4 * vocab)]
        self.assertEqual(len(set(rows)), tokens, "rows that repeat")
        values = struct.unpack(f"<{vocab}f", rows[0])
        self.assertGreater(max(values) - min(values), 0.1)

    def test_F32Model_EveryWay(self):
        self.check(QWEN3, 263, 6, EVERY_WAY)

    def test_VocabularyOnThreeRanks(self):
        self.check(THREE_BLOCKS, 2100, 6, [*SOME_WAYS, ("three", dict(np=3), [], {})])

    @cli.needs_smol
    def test_Smol(self):
        self.check(SMOL, 49152, 3, SOME_WAYS)

    def test_SideBySide_EachAsAlone(self):
        for sampling in (["--temp", "0"], ["--temp", "0.8", "--seed", "11"]):
            options = ["-n", 5, "--ignore-eos", *sampling]
            first = self.logits(QWEN3, ["-p", PROMPT, *options], "first")
            second = self.logits(QWEN3, ["-p", OTHER_PROMPT, *options], "second")
            for how in ({}, {"np": 2}, {"np": 3}):
                with self.subTest(how=how, sampling=sampling):
                    both = self.logits(QWEN3, ["-p", PROMPT, "-p", OTHER_PROMPT, *options], "both",
                                       **how)
                    self.assertEqual(both[0], first[0] + second[0])
                    self.assertTrue(both[1] == self.in_turn(first[1], second[1], 4 * 263))

    @staticmethod
    def in_turn(first, second, width):
        """Rows of two sequences as one job writes them: a step evaluates one of each."""
        rows = range(0, len(first), width)
        return b"".join(text[i:i + width] for i in rows for text in (first, second))


class Text(RanksCase):
    def test_ManyRanks_AnswerOnce(self):
        options = ["-p", PROMPT, "-n", "8", "--temp", "0"]
        one = self.text(QWEN3, *options)
        self.assertGreater(len(one), 4)
        self.assertEqual(self.text(QWEN3, *options, mpirun=3), one)

    @cli.needs_smol
    def test_Smol_AnswersAndNoMore(self):
        prompt = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
                  "Hugging Face<|im_end|>\n<|im_start|>user\nWhat is the capital of France?"
                  "<|im_end|>\n<|im_start|>assistant\n")
        for options in (["--compute", "f32"], ["-ctk", "f32"], ["-ctk", "q8_0"], []):
            with self.subTest(options=options):
                out = self.text(SMOL, "-p", prompt, "-n", 16, "--temp", 0, *options, mpirun=3)
                self.assertEqual(out, b"The capital of France is Paris.\n")

    def test_Seed_SameTextOnAnyRanks(self):
        options = ["-p", PROMPT, "-n", "24", "--temp", "0.8", "--ignore-eos", "--seed"]
        one = self.text(QWEN3, *options, "7")
        self.assertEqual(self.text(QWEN3, *options, "7"), one)
        self.assertEqual(self.text(QWEN3, *options, "7", np=3), one)
        self.assertEqual(self.text(QWEN3, *options, "7", mpirun=2), one)
        self.assertNotEqual(self.text(QWEN3, *options, "8"), one)
        self.assertNotEqual(self.text(QWEN3, *options, "8", np=3), one)

    def test_NoSeed_AnotherTextEveryTime(self):
        options = ["-p", PROMPT, "-n", "24", "--temp", "0.8", "--ignore-eos"]
        for how in ({}, {"np": 2}):
            self.assertNotEqual(self.text(QWEN3, *options, **how),
                                self.text(QWEN3, *options, **how))

    def test_NoTokens_NoText(self):
        self.assertEqual(self.text(QWEN3, "-p", PROMPT, "-n", "0").strip(), b"")

    def test_Prompt_FromFileAndInput(self):
        options = ["-n", "8", "--temp", "0"]
        one = self.text(QWEN3, "-p", PROMPT, *options)
        path = os.path.join(self.folder, "prompt")
        with open(path, "w") as file:
            file.write(PROMPT)
        self.assertEqual(self.text(QWEN3, "-f", path, *options, np=2), one)
        self.assertEqual(self.text(QWEN3, "-f", "-", *options, text=PROMPT.encode()), one)
        self.assertEqual(self.text(QWEN3, "-f", "-", *options, np=2, text=PROMPT.encode()), one)

    def test_SplitFile_AnswersAsTheWhole(self):
        options = ["-p", PROMPT, "-n", "8", "--temp", "0"]
        self.assertEqual(self.text(TINY / "llama_split-00001-of-00003.gguf", *options, np=2),
                         self.text(TINY / "llama_f32.gguf", *options))


# ---- bytes read

SHARE = re.compile(r"  rank (\d+): (\d+) query heads, (\d+) KV heads, (\d+) FFN channels, "
                   r"(\d+) vocabulary rows, ([\d.]+) MB of weights")


def weights_of(gguf, heads, kv_heads, channels, vocab_rows):
    """Bytes of a rank's weights, from the file's header: (its shard, what every rank has)."""
    dim = gguf.keys.get(f"{gguf.arch}.attention.key_length",
                        gguf["embedding_length"] // gguf["attention.head_count"])
    rows = {"attn_q": heads * dim, "attn_k": kv_heads * dim, "attn_v": kv_heads * dim,
            "ffn_gate": channels, "ffn_up": channels,
            "output" if "output.weight" in gguf.tensors else "token_embd": vocab_rows}
    cols = {"attn_output": heads * dim, "ffn_down": channels}
    shard = replicated = 0
    for name, tensor in gguf.tensors.items():
        role = name.split(".")[-2]
        if role in rows:
            shard += rows[role] * cli.row_bytes(tensor.type, tensor.shape[0])
        elif role in cols:
            shard += tensor.shape[1] * cli.row_bytes(tensor.type, cols[role])
        elif role != "token_embd":
            replicated += tensor.bytes
    return shard, replicated


@unittest.skipUnless(os.path.exists("/proc/self/io"), "this kernel does not count bytes read")
class BytesRead(RanksCase):
    """Each rank runs below a process that counts what it read (rchar, child included); what
    libraries and MPI read is taken from the same job with a model of 1.7 MB."""

    def measure(self, model, ranks):
        """[(bytes read, shard, replicated with the header and the prompt's embeddings)] by rank."""
        command = [*cli.MPIRUN, "-np", ranks, sys.executable, __file__, "count-reads", self.folder]
        outcome = cli.execute([*command, cli.TRINE, "run", "-m", model, "-p", PROMPT, "-n", 1])
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        gguf = Gguf(model)
        row = gguf.tensors["token_embd.weight"]
        ids = cli.trine("tokenize", "-m", model, "-p", PROMPT).out.splitlines()
        streamed = len(ids) * cli.row_bytes(row.type, row.shape[0])
        found = []
        for rank, *counts, megabytes in SHARE.findall(outcome.err):
            shard, replicated = weights_of(gguf, *map(int, counts))
            self.assertAlmostEqual((shard + replicated) / 1e6, float(megabytes), delta=0.051)
            with open(os.path.join(self.folder, f"read-{rank}")) as file:
                read = int(file.read())
            found.append((read, shard, replicated + gguf.header_bytes + streamed))
        self.assertEqual(len(found), ranks)
        return found

    @cli.needs_smol
    def test_Smol_ShardAndReplicated(self):
        sharded = sum(t.bytes for t in Gguf(SMOL).tensors.values() if len(t.shape) > 1)
        print("\nranks rank  start-up      read     shard  replicated   off by")
        for ranks in (2, 4):
            start_up = [read - shard - rest for read, shard, rest in self.measure(QWEN3, ranks)]
            measured = self.measure(SMOL, ranks)
            for rank, (read, shard, replicated) in enumerate(measured):
                off = (read - start_up[rank]) / (shard + replicated) - 1
                print(f"{ranks:5} {rank:4} {start_up[rank]:9} {read:9} {shard:9} {replicated:11} "
                      f"{off:8.3%}")
                with self.subTest(ranks=ranks, rank=rank):
                    self.assertLess(abs(off), 0.02)
                    self.assertLess(start_up[rank], 0.05 * read)
            total = sum(shard for _, shard, _ in measured)
            self.assertLess(total / sharded, 1.02, "shards that overlap by more than KV heads")
            self.assertGreaterEqual(total, sharded)


def count_reads(folder, command):
    """Runs the command, and leaves the bytes that it read where `measure` looks for them. The
    kernel adds a child's counts to its parent's when it is waited for."""
    def rchar():
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1])
    before = rchar()
    pid = os.posix_spawn(command[0], command, os.environ)
    _, status = os.waitpid(pid, 0)
    read = rchar() - before
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMIX_RANK"))
    with open(os.path.join(folder, f"read-{rank}"), "w") as file:
        file.write(str(read))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    if sys.argv[1:2] == ["count-reads"]:
        sys.exit(count_reads(sys.argv[2], sys.argv[3:]))
    cli.main()
