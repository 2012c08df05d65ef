"""Makes tiny/qwen35_*.gguf, their .logits and tiny/qwen35.json.

Independent implementation: transformers (Qwen3.5 text model, eager attention) in float64
over the unrotated weights. Every file is read back by numpy_qwen35.py, which must agree.
Remake: python3 make_tiny_qwen35.py tests/data/tiny   (then check_tiny_qwen35.py)
"""
import json
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter
from gguf.quants import dequantize

import numpy_qwen35
import ternary
import tiny_vocab
from double import float64_everywhere
from qwen35_file import write_model, write_rotation, write_tensors
from tiny_input import pick_input
from tiny_qwen35 import (SHAPES, dense_tensors, hf_model, layer_tensors, rotated_names, sign_vectors,
                         stored_tensors)

CANDIDATES = 24   # random inputs tried; the one with the widest greedy gap is kept
EXACT = 1e-9      # numpy against transformers, relative to the largest logit
# Types of the matrices of the rotated files; F16 only where it is small.
ROTATED = {"qwen35_a": ["F16", "PQ2_0", "PTQ1_0", "Q2_0"], "qwen35_b": ["PQ2_0", "PTQ1_0"],
           "qwen35_c": ["PTQ1_0"]}


def write_gguf(path, name, m, tensors, kind, rotation=None, mtp=0):
    """`rotation` is None, "grouped" or "tiled"."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_string("general.name", path.stem)
    write_model(writer, m, kind, mtp)
    if rotation:
        write_rotation(writer, m, rotated_names(tensors), sign_vectors(name, m),
                       rotation == "grouped")
    tokens, types, merges = tiny_vocab.build(m["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    write_tensors(writer, tensors, kind)


class Maker:
    def __init__(self, out):
        self.out, self.index = out, {}

    def reference(self, name, m, dense):
        """Runs transformers and stores its logits as NAME.logits."""
        with float64_everywhere():
            model = hf_model(m, dense)
            tokens, greedy, gap = pick_input(name, m, model, CANDIDATES)
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
        assert logits.dtype == np.float64 and gap > 1e-3 * abs(logits).max()
        (self.out / f"{name}.logits").write_bytes(logits.astype("<f4").tobytes())
        print(f"{name}: logits std {logits.std():.2f}, max {abs(logits).max():.1f}, "
              f"smallest greedy gap {gap:.4f}, {len(set(greedy))} distinct greedy tokens")
        entry = {"tokens": tokens, "greedy": greedy, "vocab": m["vocab"]}
        return entry | {"logits": f"{name}.logits"}, logits

    def file(self, file_name, reference, name, m, tensors, kind, **options):
        path = self.out / f"{file_name}.gguf"
        write_gguf(path, name, m, tensors, kind, **options)
        self.index[file_name], logits = reference
        keys, decoded = numpy_qwen35.read(path)
        if kind == "F16":  # types that the package's reader knows
            for t in GGUFReader(path).tensors:
                assert np.array_equal(dequantize(t.data, t.tensor_type), decoded[t.name][1])
        weights = {tensor: value for tensor, (_, value) in decoded.items()}
        plain = numpy_qwen35.Model(keys, weights).forward(self.index[file_name]["tokens"])
        error = abs(plain - logits).max() / abs(logits).max()
        print(f"    {file_name}: {path.stat().st_size} bytes, numpy differs by {error:.1e}")
        assert error < EXACT


def mtp_tensors(m):
    """A next-token block behind the trunk; engines that only run the trunk skip it."""
    rng, at = np.random.default_rng(5), f"blk.{len(m['recurrent'])}."
    out = {at + role: value for role, value in layer_tensors(rng, m, False, True).items()}
    hidden = m["hidden"]
    out[f"{at}nextn.eh_proj.weight"] = ternary.random_ternary(rng, hidden, 2 * hidden, 1.0)
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        out[f"{at}nextn.{norm}.weight"] = rng.uniform(0.6, 1.4, hidden).astype(np.float32)
    return out


def make_shape(maker, name, m):
    tensors, signs = stored_tensors(name, m), sign_vectors(name, m)
    dense = dense_tensors(m, tensors, signs, grouped=True)
    rotated = maker.reference(f"{name}_rot", m, dense)
    for kind in ROTATED[name]:
        maker.file(f"{name}_rot_{kind.lower()}", rotated, name, m, tensors, kind,
                   rotation="grouped")
    if name == "qwen35_a":
        tiled = maker.reference(f"{name}_rot_tiled", m, dense_tensors(m, tensors, signs))
        maker.file(f"{name}_rot_tiled_pq2_0", tiled, name, m, tensors, "PQ2_0", rotation="tiled")
        halves = {tensor: value.astype(np.float16).astype(np.float64)
                  if isinstance(tensors[tensor], ternary.Ternary) else value
                  for tensor, value in dense.items()}
        plain = maker.reference(f"{name}_plain_f16", m, halves)
        maker.file(f"{name}_plain_f16", plain, name, m, halves, "F16")
    if name != "qwen35_b":
        # The same trits taken in the normal basis, and ternary alpha and beta.
        tensors = stored_tensors(name, m, ternary_gates=True)
        plain = maker.reference(f"{name}_plain_pq2_0", m, dense_tensors(m, tensors))
        maker.file(f"{name}_plain_pq2_0", plain, name, m, tensors, "PQ2_0")
        if name == "qwen35_a":
            maker.file(f"{name}_mtp_pq2_0", plain, name, m, tensors | mtp_tensors(m), "PQ2_0",
                       mtp=1)


def main(out):
    torch.set_num_threads(1)
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    maker = Maker(out)
    for name, m in SHAPES.items():
        make_shape(maker, name, m)
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in maker.index.items()]
    (out / "qwen35.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
