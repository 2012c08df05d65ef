"""Writes the parts of a qwen35 GGUF file that every oracle shares (imported by
make_tiny_qwen35.py and export_demo.py). A model `m` is a dict as tiny_qwen35.shape makes it.
"""
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import quantize

import ternary
from tiny_qwen35 import CONV

FILE_TYPE = {"F16": 1, "PQ2_0": 128, "PTQ1_0": 129}
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


def write_model(writer, m, kind, mtp=0):
    """The keys of the architecture; `kind` is the type of the matrices."""
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


def write_rotation(writer, m, names, signs, grouped):
    """The rotation of the weights `names`; `signs` is {input width: vector}."""
    at = "prism.hadamard."
    writer.add_uint32(f"{at}version", 2 if m["tied"] else 1)
    writer.add_uint32(f"{at}block_size", m["block"])
    writer.add_string(f"{at}transform", "normalized-sylvester-walsh-hadamard")
    writer.add_string(f"{at}axis", "input-last-dimension")
    writer.add_string(f"{at}sign_mode", "explicit")
    writer.add_array(f"{at}sign_widths", list(signs))
    writer.add_array(f"{at}sign_values", np.concatenate(list(signs.values())).tolist())
    writer.add_array(f"{at}weight_names", names)
    writer.add_array(f"{at}inverse_weight_names", ["token_embd.weight"])
    writer.add_bool(f"{at}gdn_v_grouped", grouped)
    if m["tied"]:
        writer.add_bool(f"{at}tied_output", True)


def write_tensors(writer, tensors, kind):
    """Adds the tensors, writes the file and closes it."""
    for tensor, value in tensors.items():
        type_id, rows = encoded(tensor, value, kind)
        writer.add_tensor(tensor, rows, raw_dtype=type_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
