"""trine synth, end to end: files of every preset as another reader finds them, the same bytes from
the same seed, generation from them on ranks, errors. The totals of whole presets: synth_test.cc."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import cli
from cli import Gguf

PRESETS = {"ternary-bonsai-2-27b": "qwen35", "ternary-bonsai-27b": "qwen35",
           "ternary-bonsai-8b": "qwen3", "ternary-bonsai-4b": "qwen3",
           "ternary-bonsai-1.7b": "qwen3", "qwen3.8-27b-f16": "qwen35"}
SMALL = ("--preset", "ternary-bonsai-1.7b")


class Synth(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trine_synth_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = self.folder / "model.gguf"

    def write(self, *options, name="model.gguf"):
        outcome = cli.trine("synth", "-o", self.folder / name, *options, deadline=120)
        self.assertEqual((outcome.code, outcome.out, outcome.errors), (0, b"", []), outcome.err)
        return self.folder / name

    def refused(self, code, part, *options, **how):
        outcome = cli.trine("synth", *options, **how)
        self.assertEqual((outcome.code, len(outcome.errors)), (code, 1), outcome.err)
        self.assertIn(part, outcome.errors[0])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_EveryPreset_AsAnotherReaderFindsIt(self):
        for preset, architecture in PRESETS.items():
            with self.subTest(preset):
                layers = 4 if architecture == "qwen35" else 1  # the fourth is its first attention
                gguf = Gguf(self.write("--preset", preset, "--layers", layers, "--type", "q1_0"))
                self.assertEqual((gguf.version, gguf.arch, gguf["block_count"]),
                                 (3, architecture, layers))
                embedding = gguf.tensors["token_embd.weight"]
                self.assertEqual(embedding.shape[1], len(gguf["tokenizer.ggml.tokens"]))
                self.assertEqual(len(set(gguf["tokenizer.ggml.tokens"])), embedding.shape[1])
                self.assertEqual(embedding.type, "Q1_0")
                end = max(tensor.begin + tensor.bytes for tensor in gguf.tensors.values())
                self.assertEqual(-(-end // 32) * 32, self.file.stat().st_size)
                found = json.loads(cli.trine("inspect", "--json", "-m", self.file).out)
                self.assertEqual((found["architecture"], found["tensors"], found["tensor_bytes"]),
                                 (architecture, len(gguf.tensors),
                                  sum(tensor.bytes for tensor in gguf.tensors.values())))

    def test_HybridLayers_HaveTheirTensorsAndKeys(self):
        gguf = Gguf(self.write("--preset", "ternary-bonsai-2-27b", "--layers", "4",
                               "--type", "q1_0"))
        shapes = {name: (tensor.shape, tensor.type) for name, tensor in gguf.tensors.items()}
        self.assertEqual(shapes["blk.0.attn_qkv.weight"], ([5120, 10240], "Q1_0"))
        self.assertEqual(shapes["blk.0.ssm_alpha.weight"], ([5120, 48], "BF16"))
        self.assertEqual(shapes["blk.2.ssm_a"], ([48], "F32"))
        self.assertEqual(shapes["blk.2.ssm_conv1d.weight"], ([4, 10240], "F32"))
        self.assertEqual(shapes["blk.3.attn_q.weight"], ([5120, 12288], "Q1_0"))
        self.assertEqual(shapes["blk.3.attn_output.weight"], ([6144, 5120], "Q1_0"))
        self.assertNotIn("blk.3.ssm_a", shapes)
        self.assertEqual(len(shapes), 3 + 4 * 5 + 6 + 3 * 9)
        names = gguf["prism.hadamard.weight_names"]
        self.assertEqual(len(names), 4 * 3 + 3 * 3 + 4 + 1)
        self.assertLessEqual(set(names), set(shapes))
        self.assertEqual(gguf["rope.dimension_sections"], [11, 11, 10, 0])
        self.assertEqual((gguf["full_attention_interval"], gguf["ssm.inner_size"]), (4, 6144))
        self.assertEqual(gguf["tokenizer.ggml.tokens"][248046], "<|im_end|>")
        self.assertEqual(gguf["tokenizer.ggml.token_type"][248069:248071], [4, 5])

    def test_Seed_DecidesTheBytes(self):
        files = [self.write(*SMALL, "--layers", "1", "--type", "ptq1_0", "--seed", seed,
                            name=f"{i}.gguf").read_bytes() for i, seed in enumerate("112")]
        self.assertEqual(files[0], files[1])
        self.assertNotEqual(files[0], files[2])

    def test_TernaryPackings_GenerateTheSameText(self):
        texts = set()
        for kind, ranks in (("pq2_0", 0), ("ptq1_0", 2), ("q2_0", 0)):
            self.write(*SMALL, "--layers", "2", "--type", kind)
            outcome = cli.trine("run", "-m", self.file, "--temp", "0", "-n", "8", "-p", "once upon",
                                "--ignore-eos", np=ranks, deadline=60)
            self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
            texts.add(outcome.out)
        self.assertEqual(len(texts), 1, texts)

    def test_Text_ComesBack(self):
        self.write(*SMALL, "--layers", "1", "--type", "q1_0")
        text = "the naïve fox 😀 123\tend"
        rows = json.loads(cli.trine("tokenize", "-m", self.file, "--json", "-p", text).out)
        ids = " ".join(str(row["id"]) for row in rows)
        back = cli.trine("tokenize", "-m", self.file, "--decode", ids).out
        self.assertEqual(back.decode(), text + "\n")

    def test_ManyRanks_WriteOneFile(self):
        outcome = cli.trine("synth", "-o", self.file, *SMALL, "--layers", "1", "--type", "q1_0",
                            mpirun=2, deadline=60)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["model.gguf"])

    def test_WrongOptions_ExitTwo(self):
        self.refused(2, "synth needs a file to write: -o FILE.gguf", *SMALL)
        self.refused(2, "--preset is 'x'; possible are ternary-bonsai-2-27b, ", "-o", self.file,
                     "--preset", "x")
        self.refused(2, "--type is 'q6_k'; possible are f32, f16, ", "-o", self.file, "--type",
                     "q6_k")
        self.refused(2, "--layers is 0; ternary-bonsai-1.7b has 1 to 28", "-o", self.file, *SMALL,
                     "--layers", "0")
        self.refused(2, "--layers is 65; ternary-bonsai-2-27b has 4 to 64", "-o", self.file,
                     "--layers", "65")
        self.refused(2, "too many positional options", "model.gguf")

    def test_PlacesThatCannotBeWritten_AreNamed(self):
        self.refused(1, "cannot create", "-o", self.folder / "absent" / "m.gguf", *SMALL)
        self.refused(1, "exists and is not a regular file", "-o", "/dev/null", *SMALL)

    @unittest.skipUnless(os.path.isdir("/dev/shm"), "/dev/shm is absent")
    def test_FullDisk_NamesBothNumbers(self):
        free = shutil.disk_usage("/dev/shm").free
        if free > 10 ** 11:
            self.skipTest("/dev/shm holds more than any preset")
        wanted = pathlib.Path("/dev/shm") / f"trine_synth_{os.getpid()}.gguf"
        self.refused(1, "are free on that disk", "-o", wanted,
                     "--preset", "qwen3.8-27b-f16", "--type", "f32")
        self.assertFalse(wanted.exists())


if __name__ == "__main__":
    cli.main()
