"""trine convert, end to end: killed at any time it leaves nothing that looks complete; shards and
their index; command lines; damaged checkpoints. What comes back and computes the same:
convert_test.cc."""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import cli

DATA = pathlib.Path(__file__).parent / "data"
GGUF = DATA / "tiny" / "llama_q4_k.gguf"
ROTATED = DATA / "tiny" / "qwen35_b_rot_ptq1_0.gguf"
HF = DATA / "hf"
KILLS = int(os.environ.get("TRINE_KILLS", "20"))


def digests(path):
    """Of a file, or of every file of a folder."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file.name not in (".lock", "conversion.json")]
    return {file.name if path.is_dir() else "": hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files}


class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trine_convert_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"

    def convert(self, *arguments):
        outcome = cli.trine("convert", *arguments)
        self.assertEqual((outcome.code, outcome.out, outcome.errors), (0, b"", []), outcome.err)
        return outcome

    def refused(self, message, *arguments, code=1):
        outcome = cli.trine("convert", *arguments)
        self.assertEqual((outcome.code, outcome.errors), (code, [f"trine: {message}"]),
                         outcome.err)

    def killed(self, seconds, *arguments):
        """True if the kill came before the end."""
        process = subprocess.Popen([cli.TRINE, "convert", *map(str, arguments)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=cli.environment())
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def kill_many(self, source, name, *options):
        started = time.monotonic()
        self.convert(source, self.folder / f"whole_{name}", *options)
        whole, took = digests(self.folder / f"whole_{name}"), time.monotonic() - started
        chance = random.Random(5)
        out, hits, tries, resumed = self.folder / name, 0, 0, 0
        partial = self.folder / f"{name}.partial"
        while hits < KILLS:
            hits += self.killed(chance.uniform(0, took), source, out, *options)
            tries += 1
            self.assertLess(tries, 20 * KILLS)
            if out.exists():
                found = digests(out)
                found.pop("conversion.json", None)  # the last that goes
                self.assertEqual(found, whole)
                shutil.rmtree(out) if out.is_dir() else out.unlink()
            elif partial.is_dir():
                # What has a shard's name is that shard; nothing names them all.
                done = {file: digest for file, digest in digests(partial).items()
                        if file.endswith(".safetensors")}
                self.assertLessEqual(done.items(), whole.items())
                resumed += bool(done)
                loads = cli.trine("inspect", "-m", partial)
                self.assertTrue(loads.code == 1 or set(whole) <= set(digests(partial)))
        self.convert(source, out, *options)
        self.assertEqual(digests(out), whole)
        self.assertFalse(partial.exists())
        print(f"{name}: {hits} kills before the end, {resumed} with shards to go on with",
              flush=True)

    def test_Killed_NothingLooksCompleteAndIsNot(self):
        self.kill_many(ROTATED, "folder", "--shard-size", "150KB")
        self.kill_many(GGUF, "one_file")
        self.kill_many(GGUF, "file.gguf", "--type", "f32")

    def test_GoesOn_WithWhatIsComplete(self):
        self.convert(ROTATED, self.out, "--shard-size", "1MB")
        whole = digests(self.out)
        partial = self.folder / "out.partial"
        self.out.rename(partial)
        # Nothing says that a conversion began it: it may be anyone's.
        refusal = (f"{partial} is there, and no conversion began it; remove it or name another "
                   "output")
        self.refused(refusal, ROTATED, self.out, "--shard-size", "1MB")
        self.assertEqual(digests(partial), whole)
        # Begun by another conversion: replaced.
        (partial / "conversion.json").write_text("{}")
        (partial / "other").write_text("x")
        self.convert(ROTATED, self.out, "--shard-size", "1MB")
        self.assertEqual(digests(self.out), whole)

    def test_ValueThatDoesNotFit_LeavesNothing(self):
        source = self.folder / "m.gguf"
        shutil.copy(DATA / "tiny" / "qwen3_f32.gguf", source)
        tensor = cli.Gguf(source).tensors["blk.1.ffn_up.weight"]
        with open(source, "r+b") as file:
            file.seek(tensor.begin + 5 * 4 * tensor.shape[0])
            file.write(struct.pack("<f", 1e6))
        for out in (self.out, self.folder / "n.gguf"):
            self.refused(f"{source}: tensor 'blk.1.ffn_up.weight', row 5 has a value beyond the "
                         "range of F16; choose f32 or bf16", source, out, "--type", "f16")
            self.convert(source, out, "--type", "bf16")
        self.assertEqual({path.name for path in self.folder.iterdir()},
                         {"m.gguf", "n.gguf", "out"})

    def test_OneAtATime_WritesAnOutput(self):
        file, folder = self.folder / "m.gguf.partial", self.folder / "out.partial"
        file.write_text("x")
        folder.mkdir()
        for path in (file, folder):
            held = os.open(path, os.O_RDONLY)
            self.addCleanup(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        self.refused(f"{self.folder}/m.gguf is being written by another process; wait for it or "
                     "name another", GGUF, self.folder / "m.gguf")
        self.refused(f"{folder} is being written by another process; wait for it", GGUF, self.out)

    def test_Source_IsNotOverwritten(self):
        def refused(source, output, victim):
            before = victim.read_bytes()
            self.refused(f"writing {output} would destroy {victim}, which is converted; name "
                         "another output", source, output)
            self.assertEqual(victim.read_bytes(), before)

        for part in (DATA / "tiny").glob("llama_split-*.gguf"):
            shutil.copy(part, self.folder)
        first, second, _ = sorted(self.folder.glob("llama_split-*"))
        refused(first, second, second)
        shutil.copy(GGUF, self.folder / "m.gguf.partial")
        refused(self.folder / "m.gguf.partial", self.folder / "m.gguf",
                self.folder / "m.gguf.partial")
        shutil.copytree(HF / "qwen3", self.folder / "m.partial")
        refused(self.folder / "m.partial", self.folder / "m",
                self.folder / "m.partial" / "model.safetensors")

    def test_Output_IsRefusedBeforeTheWork(self):
        (self.folder / "file").write_text("")
        (self.folder / "link").symlink_to("nowhere")
        for name in ("file", "link"):
            self.refused(f"{self.folder / name} is there already; remove it or name another output",
                         GGUF, self.folder / name)
            self.assertFalse((self.folder / f"{name}.partial").exists())
        os.mkfifo(self.folder / "pipe.gguf.partial")
        self.refused(f"{self.folder}/pipe.gguf: cannot create: No such device or address", GGUF,
                     self.folder / "pipe.gguf")

    def test_Shards_HaveAnIndex(self):
        outcome = self.convert(ROTATED, self.out, "--shard-size", "1MB")
        self.assertIn("none missing", outcome.err)
        index = json.loads((self.out / "model.safetensors.index.json").read_text())
        files = sorted(self.out.glob("*.safetensors"))
        self.assertGreater(len(files), 3)
        self.assertEqual(files[0].name, f"model-00001-of-{len(files):05}.safetensors")
        seen, total = {}, 0
        for path in files:
            with open(path, "rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            header.pop("__metadata__")
            ends = [entry["data_offsets"] for entry in header.values()]
            largest = max(end - begin for begin, end in ends)
            self.assertLessEqual(max(end for _, end in ends), max(10 ** 6, largest))
            total += sum(end - begin for begin, end in ends)
            seen |= {name: path.name for name in header}
        self.assertEqual((index["weight_map"], index["metadata"]["total_size"]), (seen, total))
        self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {0o644})

    def test_Report_NamesWhatIsLeftOut(self):
        outcome = self.convert(HF / "qwen35", self.folder / "m.gguf")
        self.assertIn("2 tensors beside the language model left out: "
                      "'model.visual.blocks.0.norm1.weight', 'mtp.fc.weight'", outcome.err)
        outcome = self.convert(DATA / "tiny" / "qwen3_q4_1.gguf", self.folder / "n.gguf",
                               "--type", "q8_0")
        self.assertIn("2 matrices kept in their type, whose rows are no whole blocks of the new "
                      "one: 'blk.0.attn_output.weight', 'blk.1.attn_output.weight'", outcome.err)

    def test_CommandLines(self):
        usage = "convert needs a model and what to make of it: trine convert IN OUT"
        self.refused(usage, code=2)
        self.refused(usage, GGUF, code=2)
        self.refused("--type is 'q6_k'; possible are f16, bf16, f32, q8_0, tq1_0, tq2_0, q2_0, "
                     "pq2_0, ptq1_0", GGUF, self.out, "--type", "q6_k", code=2)
        self.refused("--shard-size is '5'; a size from 1KB on is needed, such as 500MB or 5GB",
                     GGUF, self.out, "--shard-size", "5", code=2)
        self.refused("--type Q8_0 has no place in safetensors; f32, f16 and bf16 have".join(
            [f"{GGUF}: ", ""]), GGUF, self.out, "--type", "q8_0")
        self.out.mkdir()
        (self.out / "x").write_text("x")
        self.refused(f"{self.out} is there already; remove it or name another output", GGUF,
                     self.out)
        self.refused(f"{GGUF} is the model that is converted; name another output", GGUF, GGUF)


class Damaged(unittest.TestCase):
    """A checkpoint with one thing wrong, at one rank and at two: one line that names it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trine_damaged_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, name="qwen3"):
        target = self.folder / f"m{len(list(self.folder.iterdir()))}"
        shutil.copytree(HF / name, target)
        return target

    def refused(self, path, message, model=None):
        model = model or path
        for ranks in (0, 2):
            outcome = cli.trine("run", "-m", model, "-p", "x", "-n", "1", np=ranks, deadline=60)
            self.assertEqual((outcome.code, outcome.errors), (1, [f"trine: {message}"]),
                             outcome.err)

    def configure(self, change, name="qwen3"):
        path = self.copy(name)
        config = json.loads((path / "config.json").read_text())
        change(config)
        (path / "config.json").write_text(json.dumps(config))
        return path

    def rewrite(self, change, name="qwen3", data=lambda data: data):
        """The file with its header changed."""
        path = self.copy(name)
        file = path / "model.safetensors"
        raw = file.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + length])
        text = change(header)
        text = (json.dumps(header) if text is None else text).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + data(raw[8 + length:]))
        return path

    def test_Config(self):
        def put(key, value):
            return lambda config: config.update({key: value})

        for change, end in [
            (put("architectures", ["GPT2LMHeadModel"]),
             'architectures[0] is "GPT2LMHeadModel"; supported are Qwen3_5ForCausalLM, '
             "Qwen3_5ForConditionalGeneration, Qwen3ForCausalLM, Qwen2ForCausalLM, "
             "LlamaForCausalLM"),
            (put("architectures", None), "architectures is null or missing; an array is needed"),
            (put("hidden_size", "96"), 'hidden_size is "96"; an integer is needed'),
            (put("hidden_act", "gelu"), "hidden_act is \"gelu\"; 'silu' is supported"),
            (put("num_attention_heads", 0), "num_attention_heads is 0; at least 1 is needed"),
            (put("quantization_config", {"quant_method": "fp8"}),
             "quantization_config is an object; only F32, F16 and BF16 weights are read; get the "
             "unquantised model"),
            (put("use_sliding_window", True), "use_sliding_window is true; it is not supported"),
            (put("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e6}),
             'rope_parameters.rope_type is "dynamic"; default, linear, yarn and llama3 are '
             "supported"),
            (put("attention_bias", True), "attention_bias is true; it is not supported"),
            (put("rope_parameters", 3), "rope_parameters is 3; an object is needed"),
            (put("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
             "rope_scaling is an object; rope_parameters says otherwise; keep one of them"),
            (put("dtype", "int8"),
             'dtype is "int8"; float32, float16 and bfloat16 are supported'),
        ]:
            path = self.configure(change)
            with self.subTest(end):
                self.refused(path, f"{path}/config.json: {end}")

    def test_ConfigInOtherWords_SameLogits(self):
        def logits(model):
            path = self.folder / "logits"
            outcome = cli.trine("run", "-m", model, "-p", "Hello, world", "-n", "1",
                                "--save-logits", path)
            self.assertEqual(outcome.code, 0, outcome.err)
            return path.read_bytes()

        def beside(config):
            config["rope_theta"] = config["rope_parameters"].pop("rope_theta")

        def within_scaling(config):
            config["rope_scaling"] = config.pop("rope_parameters")

        def tied(config):  # a head that is stored counts all the same
            config["tie_word_embeddings"] = True

        expected = logits(HF / "qwen3")
        for change in (beside, within_scaling, tied):
            self.assertEqual(logits(self.configure(change)), expected)

    def test_ConfigAgainstTensors(self):
        path = self.configure(lambda config: config.update(dtype="bfloat16"))
        self.refused(path, f"{path}: tensor 'lm_head.weight' is stored as F16, config.json's dtype "
                     "says BF16; one of them is wrong: correct dtype, or get the files again")
        path = self.configure(lambda config: config.update(vocab_size=300))
        self.refused(path, f"{path}: the embedding has 263 rows, config.json's vocab_size says "
                     "300; correct it, or get the files again")
        path = self.configure(lambda config: config.update(num_hidden_layers=3))
        self.refused(path, f"{path}: 11 tensors are missing: "
                     "'model.layers.2.self_attn.k_proj.weight', "
                     "'model.layers.2.self_attn.k_norm.weight', "
                     "'model.layers.2.input_layernorm.weight', "
                     "'model.layers.2.self_attn.o_proj.weight', "
                     "'model.layers.2.self_attn.q_proj.weight', "
                     "'model.layers.2.self_attn.q_norm.weight', "
                     "'model.layers.2.self_attn.v_proj.weight', "
                     "'model.layers.2.mlp.down_proj.weight', "
                     "...; the model is incomplete, get it again")
        path = self.configure(lambda config: config.update(attention_bias=True), "llama")
        self.refused(path, f"{path}: config.json's attention_bias is true, but 0 of 2 x 4 biases "
                     "are there; get the files again")
        path = self.configure(lambda config: config.update(intermediate_size=128))
        self.refused(path, f"{path}: tensor 'model.layers.0.mlp.down_proj.weight' has shape [160, "
                     "96]; the model's metadata asks for [128, 96]")

    def test_Files(self):
        path = self.copy()
        (path / "model.safetensors").unlink()
        self.refused(path, f"{path} has neither model.safetensors nor "
                     "model.safetensors.index.json; give a .gguf file or a folder of Hugging "
                     "Face's with safetensors")
        path = self.copy()
        (path / "config.json").unlink()
        self.refused(path, f"{path}/config.json: cannot open: No such file or directory")
        path = self.copy("qwen35")
        shard = sorted(path.glob("*.safetensors"))[1]
        shard.unlink()
        self.refused(path, f"{shard}: cannot open: No such file or directory")
        path = self.copy("qwen35")
        index = path / "model.safetensors.index.json"
        table = json.loads(index.read_text())
        name = "model.language_model.layers.0.mlp.up_proj.weight"
        first = table["weight_map"][name]
        other = next(file for file in table["weight_map"].values() if file != first)
        table["weight_map"][name] = other
        index.write_text(json.dumps(table))
        self.refused(path, f"{index}: tensor '{name}' should be in {other} and is in {first}; get "
                     "the files again")
        table["weight_map"][name] = "../x.safetensors"
        index.write_text(json.dumps(table))
        self.refused(path, f"{index}: weight_map.{name} is \"../x.safetensors\"; the name of a "
                     ".safetensors file beside it is needed")

    def test_Header(self):
        name = "model.norm.weight"

        def entry(**changes):
            return lambda header: header[name].update(changes)

        def twice(header):
            text = json.dumps(header)
            return text[:-1] + ", " + json.dumps({name: header[name]})[1:]

        cases = [
            (entry(dtype="F64"), f"tensor '{name}' has 192 bytes; its shape and type F64 need 768; "
             "it is truncated or damaged, get it again"),
            (entry(shape=[97]), f"tensor '{name}' has 192 bytes; its shape and type F16 need 194; "
             "it is truncated or damaged, get it again"),
            (entry(shape=[-1]), f"{name}.shape[0] is -1; sizes are not negative and their product "
             "fits 60 bits"),
            (entry(data_offsets=[0]), f"{name}.data_offsets is an array; two numbers, begin and "
             "end, are needed"),
            (entry(data_offsets=[0, 192]), f"tensors 'lm_head.weight' and '{name}' overlap at byte "
             "2758"),
            (twice, f"header: '{name}' occurs twice"),
            (lambda header: "[1]", "header is no JSON object; get the file again"),
            (lambda header: '{"a":', "header is no JSON: parse error at line 1, column 6: syntax "
             "error while parsing value - unexpected end of input; expected '[', '{', or a "
             "literal; fetch the file again"),
        ]
        for change, end in cases:
            path = self.rewrite(change)
            with self.subTest(end):
                self.refused(path, f"{path}/model.safetensors: {end}")

    def test_Truncated_AtEveryBoundary(self):
        whole = (HF / "qwen3" / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        path = self.copy()
        for size in (0, 1, 7, 8, 9, 8 + length // 2, 8 + length - 1, 8 + length, len(whole) // 2,
                     len(whole) - 1):
            (path / "model.safetensors").write_bytes(whole[:size])
            with self.subTest(size=size):
                outcome = cli.trine("inspect", "-m", path)
                self.assertEqual((outcome.code, len(outcome.errors)), (1, 1), outcome.err)
                self.assertIn("model.safetensors", outcome.errors[0])


if __name__ == "__main__":
    cli.main()
