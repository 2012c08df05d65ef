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
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

import numpy_qwen35
import ternary
import tiny_vocab
from double import float64_everywhere
from tiny_input import pick_input
from tiny_qwen35 import (CONV, SHAPES, dense_tensors, hf_model, layer_tensors, rotated_names,
                         sign_vectors, stored_tensors)

CANDIDATES = 24   # random inputs tried; the one with the widest greedy gap is kept
EXACT = 1e-9      # numpy against transformers, relative to the largest logit
FILE_TYPE = {"F16": 1, "PQ2_0": 128, "PTQ1_0": 129}
# Types of the matrices of the rotated files; F16 only where it is small.
ROTATED = {"qwen35_a": ["F16", "PQ2_0", "PTQ1_0", "Q2_0"], "qwen35_b": ["PQ2_0", "PTQ1_0"],
           "qwen35_c": ["PTQ1_0"]}
GGML_QUANT_SIZES.update(ternary.SIZES)


def encoded(name, value, kind):
    """(type id, rows of bytes); `kind` is that of the matrices, ternary or no longer so."""
    if isinstance(value, ternary.Ternary):
        if kind in ternary.TYPES:
            return ternary.TYPES[kind], ternary.encode(value, kind)
        value = value.dense()
    elif "ssm_alpha" in name or "ssm_beta" in name:
        kind = "BF16"
    elif value.ndim == 1 or "ssm_conv1d" in name:
        kind = "F32"
    data = quantize(np.asarray(value, np.float32), T[kind])
    return T[kind], np.ascontiguousarray(data).view(np.uint8)


def model_keys(m, mtp):
    (q_heads, kv_heads, dim), (keys, rep, state) = m["heads"], m["linear"]
    out = {"block_count": len(m["recurrent"]) + mtp, "context_length": m["context"],
           "embedding_length": m["hidden"], "feed_forward_length": m["ffn"],
           "attention.head_count": q_heads, "attention.head_count_kv": kv_heads,
           "attention.key_length": dim, "attention.value_length": dim, "ssm.conv_kernel": CONV,
           "ssm.state_size": state, "ssm.group_count": keys, "ssm.time_step_rank": keys * rep,
           "ssm.inner_size": keys * rep * state, "rope.dimension_count": m["rotary"][0]}
    if m["interval"]:
        out["full_attention_interval"] = m["interval"]
    return out | ({"nextn_predict_layers": 1} if mtp else {})


def write_rotation(writer, name, m, tensors, grouped):
    at, signs = "prism.hadamard.", sign_vectors(name, m)
    writer.add_uint32(f"{at}version", 2 if m["tied"] else 1)
    writer.add_uint32(f"{at}block_size", m["block"])
    writer.add_string(f"{at}transform", "normalized-sylvester-walsh-hadamard")
    writer.add_string(f"{at}axis", "input-last-dimension")
    writer.add_string(f"{at}sign_mode", "explicit")
    writer.add_array(f"{at}sign_widths", list(signs))
    writer.add_array(f"{at}sign_values", np.concatenate(list(signs.values())).tolist())
    writer.add_array(f"{at}weight_names", rotated_names(tensors))
    writer.add_array(f"{at}inverse_weight_names", ["token_embd.weight"])
    writer.add_bool(f"{at}gdn_v_grouped", grouped)
    if m["tied"]:
        writer.add_bool(f"{at}tied_output", True)


def write_gguf(path, name, m, tensors, kind, rotation=None, mtp=0):
    """`rotation` is None, "grouped" or "tiled"."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_string("general.name", path.stem)
    if kind in FILE_TYPE:
        writer.add_uint32("general.file_type", FILE_TYPE[kind])
    writer.add_uint32("general.quantization_version", 2)
    for key, value in model_keys(m, mtp).items():
        writer.add_uint32(f"qwen35.{key}", value)
    if not m["interval"]:
        writer.add_array("qwen35.attention.recurrent_layers", m["recurrent"])
    writer.add_array("qwen35.rope.dimension_sections", m["rotary"][1])
    writer.add_float32("qwen35.rope.freq_base", m["rotary"][2])
    writer.add_float32("qwen35.attention.layer_norm_rms_epsilon", m["eps"])
    if rotation:
        write_rotation(writer, name, m, tensors, rotation == "grouped")
    tokens, types, merges = tiny_vocab.build(m["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    for tensor, value in tensors.items():
        type_id, rows = encoded(tensor, value, kind)
        writer.add_tensor(tensor, rows, raw_dtype=type_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
