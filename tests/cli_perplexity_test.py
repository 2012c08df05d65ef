"""Perplexity and KL divergence: against figures of an independent float64 reference
(oracle/make_perplexity.py), against formulas written out here, digit for digit at every rank count
and in any steps; what is written and what is refused."""
import csv
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import struct
import tempfile
import unittest

import cli
from cli import SMOL, TINY, Gguf

ORACLE = json.loads((TINY.parent / "perplexity.json").read_text())
LICENCE = TINY.parent.parent.parent / "LICENSE"
LLAMA, QWEN3 = TINY / "llama_f32.gguf", TINY / "qwen3_f32.gguf"
VOCAB = 263
CONTEXT, CHUNKS = ORACLE["tiny"]["context"], ORACLE["tiny"]["chunks"]
ROWS = CHUNKS * (CONTEXT - 1 - CONTEXT // 2)
BASE = ["-f", LICENCE, "-c", CONTEXT, "--chunks", CHUNKS]
STEPS = ["-b", 2 * CONTEXT]  # several for a text


class PerplexityCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="trine-perplexity-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def good(self, model, *options, **how):
        outcome = cli.trine("perplexity", "-m", model, *options, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        return outcome.out.decode()

    def figures(self, model, *options, **how):
        return json.loads(self.good(model, *options, "--json", **how))

    def refused(self, message, model, *options, code=1, **how):
        outcome = cli.trine("perplexity", "-m", model, *options, **how)
        self.assertEqual((outcome.code, outcome.out, outcome.errors),
                         (code, b"", ["trine: " + message]), outcome.err)

    def saved(self, model, name, *options, **how):
        """(path, figures) of a run that saved its logits."""
        path = self.path(name)
        return path, self.figures(model, *BASE, "--save-logits", path, *options, **how)

    def close(self, found, expected, relative, what=""):
        if isinstance(expected, dict):
            for key, value in expected.items():
                if key not in ("model", "reference", "bos"):
                    self.close(found[key], value, relative, key)
        else:
            self.assertLessEqual(abs(found - expected), relative * abs(expected), what)

    def with_bos(self):
        """LLAMA, wanting BOS in front of a text."""
        gguf = Gguf(LLAMA)
        data = bytearray(gguf.data)
        data[gguf.value_at["tokenizer.ggml.add_bos_token"]] = 1
        path = self.path("bos.gguf")
        pathlib.Path(path).write_bytes(data)
        return path


class Oracle(PerplexityCase):
    """f32 against float64: logits of a few tens within 1e-6 of their size, so nll within 1e-5."""

    def test_Tiny_AsInFloat64(self):
        for case in ORACLE["tiny"]["cases"]:
            with self.subTest(case["model"], bos=case["bos"]):
                model = self.with_bos() if case["bos"] else TINY / f"{case['model']}.gguf"
                found = self.figures(model, *BASE, "--compute", "f32")
                self.close(found, case, 1e-5)
                self.assertEqual((found["windows"], found["context"]), (CHUNKS, CONTEXT))

    def test_Divergence_AsInFloat64(self):
        reference, _ = self.saved(LLAMA, "reference", "--compute", "f32")
        found = self.figures(QWEN3, *BASE, "--compute", "f32", "--kl-divergence", reference)
        self.close(found, ORACLE["tiny"]["kl"], 1e-5)

    @cli.needs_smol
    def test_Smol_NearFloat32(self):
        oracle = ORACLE["smollm2"]
        text = pathlib.Path(oracle["text"])
        if (not text.exists()
                or hashlib.sha256(text.read_bytes()).hexdigest() != oracle["text_sha256"]):
            self.skipTest(f"{text} is absent or another version; Debian's base-files has it")
        for compute, chunks, share in (("f32", 1, 1e-5), ("int", 2, 3e-4)):
            found = self.figures(SMOL, "-f", text, "--chunks", chunks, "--compute", compute,
                                 deadline=120)
            self.close(found["perplexity"], oracle["perplexity"][chunks - 1], share, compute)


class SameDigits(PerplexityCase):
    WAYS = [("two ranks", dict(np=2), []), ("three ranks", dict(np=3), []),
            ("plain mpirun", dict(mpirun=3), ["--comm", "mpi"]),
            ("steps of 7", dict(), ["-b", 7]), ("steps of 7, two ranks", dict(np=2), ["-b", 7]),
            ("windows side by side", dict(), ["-b", 3 * CONTEXT]),
            ("all windows, three ranks", dict(np=3), ["-b", 1000]),
            ("one thread", dict(), ["-t", 1]), ("three threads", dict(), ["-t", 3]),
            *((f"TRINE_CPU={unit}", dict(extra={"TRINE_CPU": unit}), [])
              for unit in cli.units())]

    def test_AnyRanksAndSteps(self):
        for model in (QWEN3, TINY / "qwen3_q4_1.gguf", TINY / "qwen35_a_rot_pq2_0.gguf"):
            one = self.saved(model, "one")
            other = self.saved(LLAMA, "other", "--compute", "f32")[1]
            self.assertNotEqual(one[1], other)
            bits = pathlib.Path(one[0]).read_bytes()
            jobs = [(model, name, how, options) for name, how, options in self.WAYS]
            results = cli.in_parallel(
                lambda job: cli.caught(self.saved, job[0], job[1], *job[3], **job[2]), jobs,
                workers=3)
            for (_, name, *_), result in zip(jobs, results):
                with self.subTest(f"{model.name}, {name}"):
                    if isinstance(result, AssertionError):
                        raise result
                    self.assertEqual(result[1], one[1], "other digits")
                    self.assertTrue(pathlib.Path(result[0]).read_bytes() == bits, "other logits")

    @cli.needs_smol
    def test_Smol(self):
        options = ["-f", LICENCE, "-c", 128, "--chunks", 2]
        one = self.figures(SMOL, *options)
        for ranks in (2, 3):
            self.assertEqual(self.figures(SMOL, *options, np=ranks, deadline=60), one)

    def test_Compute_GivesOtherDigits(self):
        model = TINY / "qwen3_q4_1.gguf"
        exact, rounded = (self.figures(model, *BASE, "--compute", compute)["perplexity"]
                          for compute in ("f32", "int"))
        self.assertNotEqual(exact, rounded)
        self.close(rounded, exact, 1e-2)


class Divergence(PerplexityCase):
    def test_FromItself_IsNothing(self):
        reference, alone = self.saved(QWEN3, "self")
        for ranks in (0, 3):
            found = self.figures(QWEN3, *BASE, *STEPS, "--kl-divergence", reference, np=ranks)
            self.assertEqual({name: found[name] for name in alone}, alone)
            self.assertEqual(set(found["kl_percentiles"].values()), {0})
            for name, value in found.items():
                if name.startswith(("mean_kl", "max_kl", "mean_delta", "rms_delta")):
                    self.assertEqual(value, 0, name)
            self.assertEqual((found["top1_agreement"], found["ppl_ratio"]), (1, 1))
            self.assertEqual(found["ppl_ratio_stderr"], 0)
            self.assertEqual(found["reference_perplexity"], alone["perplexity"])

    def test_FromNoisyLogits_AsTheFormulas(self):
        """Everything worked out from the saved logits, in sums of another order."""
        path, _ = self.saved(QWEN3, "noise")
        mine = struct.unpack(f"<{ROWS * VOCAB}f", pathlib.Path(path).read_bytes())
        source = random.Random(5)
        noisy = struct.pack(f"<{len(mine)}f", *(x + source.gauss(0, 0.3) for x in mine))
        theirs = struct.unpack(f"<{len(mine)}f", noisy)
        pathlib.Path(path).write_bytes(noisy)
        table = self.path("noise.csv")
        found = self.figures(QWEN3, *BASE, *STEPS, "--kl-divergence", path, "--csv", table)
        with open(table, newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), ROWS)
        scores = [self.score(mine[i * VOCAB:(i + 1) * VOCAB], theirs[i * VOCAB:(i + 1) * VOCAB],
                             int(line["token"])) for i, line in enumerate(lines)]
        for line, (nll, base, kl, same) in zip(lines, scores):
            for name, value in (("nll", nll), ("kl", kl), ("p", math.exp(-nll)),
                                ("reference_p", math.exp(-base)), ("same_top", same)):
                self.assertAlmostEqual(float(line[name]), value, delta=1e-11, msg=name)
        self.close(found, self.summary(scores), 1e-9)
        self.assertTrue(0.1 < found["top1_agreement"] < 0.99, "the noise shows nothing")

    @staticmethod
    def score(row, reference, token):
        def logs(values):
            total = max(values) + math.log(math.fsum(math.exp(v - max(values)) for v in values))
            return [v - total for v in values]
        mine, theirs = logs(row), logs(reference)
        kl = math.fsum(math.exp(p) * (p - q) for p, q in zip(theirs, mine))
        same = row.index(max(row)) == reference.index(max(reference))
        return -mine[token], -theirs[token], kl, same

    @staticmethod
    def summary(scores):
        n = len(scores)

        def mean(values):
            values = list(values)
            middle = math.fsum(values) / n
            return middle, math.sqrt(math.fsum((v - middle) ** 2 for v in values) / n / (n - 1))
        (nll, error), (base, _) = mean(s[0] for s in scores), mean(s[1] for s in scores)
        ratio, ratio_error = mean(s[0] - s[1] for s in scores)
        delta = [math.exp(-s[0]) - math.exp(-s[1]) for s in scores]
        square, square_error = mean(d * d for d in delta)
        out = {"perplexity": math.exp(nll), "stderr": math.exp(nll) * error, "tokens": n,
               "reference_perplexity": math.exp(base), "ppl_ratio": math.exp(ratio),
               "ppl_ratio_stderr": math.exp(ratio) * ratio_error,
               "max_kl": max(s[2] for s in scores), "mean_delta_p": mean(delta)[0],
               "rms_delta_p": math.sqrt(square),
               "rms_delta_p_stderr": square_error / 2 / math.sqrt(square)}
        out["mean_kl"], out["mean_kl_stderr"] = mean(s[2] for s in scores)
        out["top1_agreement"], out["top1_agreement_stderr"] = mean(float(s[3]) for s in scores)
        out["kl_percentiles"] = {"50": sorted(s[2] for s in scores)[n // 2]}
        return out

    def test_Text_SaysTheSame(self):
        reference, alone = self.saved(QWEN3, "text")
        text = self.good(QWEN3, *BASE, "--kl-divergence", reference)
        first = f"Final estimate: PPL = {alone['perplexity']:.4f} +/- {alone['stderr']:.5f}"
        self.assertEqual(text.splitlines()[0], first)
        self.assertIn(f"{'same top token':24} {100:11.6f} +/- {0:.6f} %", text)
        self.assertEqual(self.good(QWEN3, *BASE).splitlines(), [first])


class Written(PerplexityCase):
    def ids(self, model):
        tokens = json.loads(cli.trine("tokenize", "-m", model, "--json", "-f", LICENCE).out)
        return [token["id"] for token in tokens]

    def test_Csv_NamesEveryScoredToken(self):
        half = CONTEXT // 2
        for model, shift in ((LLAMA, 0), (self.with_bos(), 1)):
            table = self.path("tokens.csv")
            found = self.figures(model, *BASE, "--csv", table)
            with open(table, newline="") as file:
                lines = list(csv.DictReader(file))
            ids = self.ids(LLAMA)
            expected = [(w + 1, p, ids[w * CONTEXT + p - shift]) for w in range(CHUNKS)
                        for p in range(half + 1, CONTEXT)]
            self.assertEqual([(int(line["window"]), int(line["position"]), int(line["token"]))
                              for line in lines], expected)
            nll = [float(line["nll"]) for line in lines]
            self.assertAlmostEqual(math.exp(math.fsum(nll) / len(nll)), found["perplexity"],
                                   delta=1e-9 * found["perplexity"])

    def test_SaveLogits_AreThoseOfTheScoredTokens(self):
        """One row a scored token: softmax of row i gives line i of --csv."""
        table = self.path("rows.csv")
        path, _ = self.saved(LLAMA, "rows", "--csv", table)
        data = pathlib.Path(path).read_bytes()
        self.assertEqual(len(data), ROWS * VOCAB * 4)
        with open(table, newline="") as file:
            for i, line in enumerate(csv.DictReader(file)):
                row = struct.unpack_from(f"<{VOCAB}f", data, i * VOCAB * 4)
                nll = math.log(math.fsum(map(math.exp, row))) - row[int(line["token"])]
                self.assertAlmostEqual(nll, float(line["nll"]), delta=1e-9)

    def test_RunningEstimate_EndsAtTheResult(self):
        outcome = cli.trine("perplexity", "-m", LLAMA, *BASE, "--json")
        lines = [line for line in outcome.err.splitlines() if line.startswith("[1]")]
        self.assertEqual(len(lines), 1)
        windows = lines[0].rstrip(",").split(",")
        self.assertEqual(len(windows), CHUNKS)
        self.assertEqual(windows[-1],
                         f"[{CHUNKS}]{json.loads(outcome.out)['perplexity']:.4f}")

    def test_Prompt_AndInput_AreAsTheFile(self):
        text = LICENCE.read_text().removesuffix("\n")
        options = ["-c", CONTEXT, "--chunks", 2]
        one = self.figures(LLAMA, "-f", LICENCE, *options)
        self.assertEqual(self.figures(LLAMA, "-p", text, *options), one)
        self.assertEqual(self.figures(LLAMA, "-f", "-", *options, np=2,
                                      text=LICENCE.read_bytes()), one)

    def test_ControlTokens_AreText(self):
        text = "<|im_start|> and <|im_end|>. " * 60
        ids = [token["id"] for token in json.loads(
            cli.trine("tokenize", "-m", LLAMA, "--json", "--no-parse-special", "-p", text).out)]
        table = self.path("control.csv")
        self.figures(LLAMA, "-p", text, "-c", 32, "--csv", table)
        with open(table, newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(int(lines[0]["token"]), ids[17])
        self.assertFalse({0, 1, 2} & {int(line["token"]) for line in lines})


class Refused(PerplexityCase):
    def test_ShortText_NamesBothNumbers(self):
        self.refused("the text has 16 tokens, but two windows of 9 need 18; give a longer text or "
                     "a smaller --ctx-size", LLAMA, "-p", "0123456789012345", "-c", 9)
        self.figures(LLAMA, "-p", "0123456789012345", "-c", 8)
        path = self.path("line")
        pathlib.Path(path).write_text("012345678901234\n")  # the end of the line does not count
        self.refused("the text has 15 tokens, but two windows of 8 need 16; give a longer text or "
                     "a smaller --ctx-size", LLAMA, "-f", path, "-c", 8)

    def test_ContextBeyondTheModels(self):
        self.refused("--ctx-size is 512, but the model was made for 256 tokens; give that or less",
                     LLAMA, "-f", LICENCE)

    def test_ReferenceOfAnotherSize_NamesBoth(self):
        path, _ = self.saved(LLAMA, "short")
        os.truncate(path, ROWS * VOCAB * 4 - 4)
        for ranks in (0, 2):
            self.refused(f"{path} has {ROWS * VOCAB * 4 - 4} bytes, but {ROWS} scored tokens "
                         f"and a vocabulary of {VOCAB} make {ROWS * VOCAB * 4}; give what "
                         "--save-logits wrote for the same text, --ctx-size and --chunks",
                         LLAMA, *BASE, "--kl-divergence", path, np=ranks)

    def test_ReferenceThatIsNotFinite_NamesTheToken(self):
        path, _ = self.saved(LLAMA, "nan")
        with open(path, "r+b") as file:
            file.seek((ROWS - 1) * VOCAB * 4)
            file.write(struct.pack("<f", math.nan))
        self.refused(f"window {CHUNKS}, token {CONTEXT - 2}: a logit in {path} is not finite; the "
                     "file is damaged", LLAMA, *BASE, "--kl-divergence", path)

    def test_ValueOutOfRange_NamesWindowAndToken(self):
        """A token whose embedding is not a number, first met in the later half of a window."""
        gguf = Gguf(LLAMA)
        ids = Written.ids(self, LLAMA)
        place = next(i for i in range(CONTEXT, CHUNKS * CONTEXT)
                     if ids[i] not in ids[:i] and CONTEXT // 2 <= i % CONTEXT < CONTEXT - 1)
        table = gguf.tensors["token_embd.weight"]
        data = bytearray(gguf.data)
        struct.pack_into("<f", data, table.begin + ids[place] * table.shape[0] * 4, math.nan)
        path = self.path("nan.gguf")
        pathlib.Path(path).write_bytes(data)
        logits = self.path("partial")
        for how in (dict(), dict(np=3)):
            self.refused(f"window {place // CONTEXT + 1}, token {place % CONTEXT}, or one before "
                         "it in the window: a value was not finite or beyond 2^22; the file is "
                         "damaged, or the model needs --compute f32", path, *BASE, "--save-logits",
                         logits, **how)
            self.assertFalse([name for name in os.listdir(self.folder) if "partial" in name])

    def test_WrongOptions(self):
        absent = self.path("absent")
        usage = "perplexity needs one text: -f FILE or -p TEXT"
        self.refused(usage, LLAMA, code=2)
        self.refused(usage, LLAMA, "-p", "x", "-f", LICENCE, code=2)
        self.refused(usage, LLAMA, "-p", "x", "-p", "y", code=2)
        self.refused("--ctx-size is 2; 3 to 16777216 is possible", LLAMA, "-p", "x", "-c", 2,
                     code=2)
        self.refused("--chunks is 0; 1 to 16777216 is possible", LLAMA, "-p", "x", "--chunks",
                     0, code=2)
        self.refused("unrecognised option '--kl-divergence-base' (trine perplexity --help)", LLAMA,
                     "-p", "x", "--kl-divergence-base", "f", code=2)
        self.refused(f"{absent}: cannot open: No such file or directory", LLAMA, "-p", "x",
                     "--kl-divergence", absent, np=2)
        self.refused(f"--file {absent}: cannot open it", LLAMA, "-f", absent, np=2)
        for option in ("--save-logits", "--csv"):
            self.refused(f"{absent}/x: cannot create: No such file or directory", LLAMA, *BASE,
                         option, absent + "/x")

    def test_FullStdout_IsAnError(self):
        with open("/dev/full", "wb") as full:
            outcome = cli.trine("perplexity", "-m", LLAMA, *BASE, stdout=full)
        self.assertEqual((outcome.code, len(outcome.errors)), (1, 1))


if __name__ == "__main__":
    cli.main()
