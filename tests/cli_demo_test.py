"""The demo model that the repository ships, tests/data/demo: a trained one, so that perplexity
means something. Its figures against those of transformers (oracle/eval_demo.py), against its own FP16
expansion, at every rank count; and that mistakes which leave a random model random ruin it."""
import hashlib
import json
import pathlib
import shutil
import tempfile
import unittest

import cli

DEMO = pathlib.Path(__file__).parent / "data" / "demo"
MODEL, TEXT = DEMO / "demo-PTQ1_0.gguf", DEMO / "heldout.txt"
FIGURES = json.loads((DEMO / "demo.json").read_text())
CHUNKS = ["--chunks", FIGURES["windows"]]


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="trine_demo_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.logits = cls.folder / "f16.logits"

    def measure(self, model, *options, **how):
        outcome = cli.trine("perplexity", "-m", model, "-f", TEXT, *CHUNKS, "--json", *options,
                            deadline=120, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        return json.loads(outcome.out)

    def patched(self, name, *changes):
        """A copy of the model with each of some byte strings, found once, replaced."""
        data = MODEL.read_bytes()
        for old, new in changes:
            self.assertEqual((data.count(old), len(new)), (1, len(old)))
            data = data.replace(old, new)
        path = self.folder / f"{name}.gguf"
        path.write_bytes(data)
        return path

    def test_File_IsTheOneOfTheCard(self):
        digest = hashlib.sha256(MODEL.read_bytes()).hexdigest()
        self.assertEqual((DEMO / "demo-PTQ1_0.gguf.sha256").read_text(),
                         f"{digest}  demo-PTQ1_0.gguf\n")
        self.assertIn(digest, (DEMO / "README.md").read_text())
        self.assertLess(MODEL.stat().st_size, 8_000_000)

    def test_Perplexity_AsByTransformers(self):
        found = self.measure(MODEL)
        self.assertEqual(found["windows"], FIGURES["windows"])
        self.assertAlmostEqual(found["perplexity"] / FIGURES["perplexity"], 1, delta=0.005)
        exact = self.measure(MODEL, "--compute", "f32")
        self.assertAlmostEqual(exact["perplexity"] / FIGURES["perplexity"], 1, delta=1e-4)

    # Each weight of the export is off by up to 2^-11 of itself, the activations of the ternary path
    # by up to 1/254 of the largest of their group.
    def test_Fp16Expansion_IsTheSameModel(self):
        export = self.folder / "f16"
        outcome = cli.trine("convert", MODEL, export)
        self.assertEqual(outcome.code, 0, outcome.err)
        reference = self.measure(export, "--save-logits", self.logits, np=2)
        self.assertAlmostEqual(reference["perplexity"] / FIGURES["perplexity"], 1, delta=0.002)
        found = self.measure(MODEL, "--kl-divergence", self.logits)
        print(f"mean KL {found['mean_kl']:.2e}, PPL ratio {found['ppl_ratio']:.5f}", flush=True)
        self.assertLess(found["mean_kl"], 2e-3)
        self.assertGreater(found["mean_kl"], 0)
        self.assertAlmostEqual(found["ppl_ratio"], 1, delta=0.01)

    def test_RankCounts_SameFigure(self):
        figures = {self.measure(MODEL, np=ranks)["perplexity"] for ranks in (0, 2, 3, 4)}
        self.assertEqual(len(figures), 1, figures)

    def test_Mistakes_RuinIt(self):
        good = self.measure(MODEL)["perplexity"]
        data = MODEL.read_bytes()
        key = b"prism.hadamard.sign_values"
        start = data.index(key) + len(key) + 4 + 4 + 8  # type, element type, count
        signs = data[start:start + 4 * 64]
        flipped = b"".join((-int.from_bytes(signs[i:i + 4], "little", signed=True))
                           .to_bytes(4, "little", signed=True) for i in range(0, len(signs), 4))
        bad = {"64 signs": self.patched("signs", (signs, flipped))}
        skipped = data.replace(b"prism.hadamard.", b"prism.hadamarx.")
        bad["no rotation"] = self.folder / "skipped.gguf"
        bad["no rotation"].write_bytes(skipped)
        grouped = b"prism.hadamard.gdn_v_grouped" + (7).to_bytes(4, "little")
        bad["order of value heads"] = self.patched("heads", (grouped + b"\1", grouped + b"\0"))
        for name, path in bad.items():
            with self.subTest(name):
                worse = self.measure(path)["perplexity"]
                print(f"{name}: perplexity {worse:.1f} for {good:.1f}", flush=True)
                self.assertGreater(worse, 2 * good)

    def test_Text_IsEnglish(self):
        """No word of it is promised, but letters, spaces and no loop: one of a few words leaves a
        handful of distinct ones in sixty tokens; the Bible's style has 4 in 10."""
        for prompt in ("Emma was", "In the beginning", "The server"):
            outcome = cli.trine("run", "-m", MODEL, "-p", prompt, "-n", 60, "--temp", "0.8",
                                "--seed", "1", "--ignore-eos", deadline=60)
            self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
            text = outcome.out.decode()
            words = text.split()
            self.assertGreater(len(set(words)), len(words) / 4, text)
            self.assertGreater(sum(c.isalpha() or c == " " for c in text), 0.8 * len(text), text)


if __name__ == "__main__":
    cli.main()
