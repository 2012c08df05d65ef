"""Makes tiny/NAME.gguf, tiny/NAME.logits and tiny/tiny.json (and the split files).

Independent implementation: transformers (Llama, Qwen2, Qwen3 for causal LM, eager
attention) in float64 over exactly the weights that the GGUF holds, as decoded by
the Python `gguf` package, which also writes the files.
Remake: python3 make_tiny.py tests/data/tiny   (then check_tiny.py on the same folder)
"""
import json
import pathlib
import sys
import zlib

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGUFWriter
from gguf.quants import dequantize, quantize
from transformers import AutoConfig, AutoModelForCausalLM

import tiny_vocab
from double import float64_everywhere
from tiny_input import pick_input
from tiny_models import MODELS

CANDIDATES = 48   # random inputs tried; the one with the widest greedy gap is kept
SPLIT_EVERY = 8   # tensors per part of the split model
FILE_TYPE = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K": 15, "BF16": 32}
# K-block types: bytes per block, the scale d that gives random blocks a standard
# deviation near 1, and dmin / d such that their mean is near 0 (Q4_K and Q5_K).
K_BLOCKS = {"Q4_K": (144, 1 / 257, 7.5), "Q5_K": (176, 1 / 520, 15.5), "Q6_K": (210, 1 / 330, 0)}
HF_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def random_k_blocks(rng, name, rows, width, std):
    """Random K-quant rows: gguf decodes these types but cannot encode them."""
    size, unit, centre = K_BLOCKS[name]
    count = rows * width // 256
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    d = (std * unit * rng.uniform(0.6, 1.4, count)).astype(np.float16)
    if name == "Q6_K":
        scales = rng.integers(-31, 32, (count, 16)).astype(np.int8)
        blocks[:, 192:208] = scales.view(np.uint8)
        blocks[:, 208:210] = d.view(np.uint8).reshape(count, 2)
    else:
        blocks[:, 0:2] = d.view(np.uint8).reshape(count, 2)
        dmin = (d.astype(np.float32) * centre).astype(np.float16)
        blocks[:, 2:4] = dmin.view(np.uint8).reshape(count, 2)
    return blocks.reshape(rows, -1)


def encoded_matrix(rng, type_name, rows, width, gain):
    """A random matrix as encoded rows (bytes); outputs of unit inputs have std `gain`."""
    std = gain / np.sqrt(width)
    if type_name in K_BLOCKS:
        return random_k_blocks(rng, type_name, rows, width, std)
    values = (rng.standard_normal((rows, width)) * std).astype(np.float32)
    return np.ascontiguousarray(quantize(values, T[type_name])).view(np.uint8)


def shapes(m):
    """GGUF role -> (rows, width, gain) of every matrix of a layer."""
    q_heads, kv_heads, dim = m["heads"]
    return {
        "attn_q": (q_heads * dim, m["hidden"], 1.3),
        "attn_k": (kv_heads * dim, m["hidden"], 1.3),
        "attn_v": (kv_heads * dim, m["hidden"], 1.0),
        "attn_output": (m["hidden"], q_heads * dim, 1.6),
        "ffn_gate": (m["ffn"], m["hidden"], 1.5),
        "ffn_up": (m["ffn"], m["hidden"], 1.2),
        "ffn_down": (m["hidden"], m["ffn"], 1.5),
    }


def make_tensors(name, m):
    """All tensors in GGUF order: {gguf name: (type name, bytes in HF row order)}."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = lambda role: m["types"].get(role, m["default"])
    out = {}

    def matrix(tensor, role, rows, width, gain):
        out[tensor] = (kind(role), encoded_matrix(rng, kind(role), rows, width, gain))

    def vector(tensor, values):
        out[tensor] = ("F32", values.astype(np.float32).view(np.uint8))

    matrix("token_embd.weight", "token_embd", m["vocab"], m["hidden"], 2.0)
    vector("output_norm.weight", rng.uniform(0.6, 1.4, m["hidden"]))
    if not m["tied"]:
        matrix("output.weight", "output", m["vocab"], m["hidden"], 2.0)
    for layer in range(m["layers"]):
        at = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            vector(f"{at}{norm}.weight", rng.uniform(0.6, 1.4, m["hidden"]))
        for role, (rows, width, gain) in shapes(m).items():
            matrix(f"{at}{role}.weight", role, rows, width, gain)
        for role in biased(m):
            vector(f"{at}{role}.bias", rng.normal(0, 0.5, shapes(m)[role][0]))
        if m["arch"] == "qwen3":
            for norm in ("attn_q_norm", "attn_k_norm"):
                vector(f"{at}{norm}.weight", rng.uniform(0.7, 1.7, m["heads"][2]))
    return out


def biased(m):
    roles = ["attn_q", "attn_k", "attn_v"] if m["arch"] == "qwen2" else []
    return roles + (["attn_output"] if m["o_bias"] else [])


def hf_name(tensor):
    outer = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight"}
    if tensor in outer:
        return outer[tensor]
    _, layer, role = tensor.split(".", 2)
    if role not in HF_LAYER:  # a projection: translate the part before .weight or .bias
        role, suffix = role.rsplit(".", 1)
        return f"model.layers.{layer}.{HF_LAYER[role]}.{suffix}"
    return f"model.layers.{layer}.{HF_LAYER[role]}"


def hf_model(m, tensors):
    q_heads, kv_heads, dim = m["heads"]
    config = AutoConfig.for_model(
        m["arch"], hidden_size=m["hidden"], num_hidden_layers=m["layers"],
        num_attention_heads=q_heads, num_key_value_heads=kv_heads, head_dim=dim,
        intermediate_size=m["ffn"], vocab_size=m["vocab"], tie_word_embeddings=m["tied"],
        rms_norm_eps=float(np.float32(m["eps"])), max_position_embeddings=m["context"],
        rope_parameters={"rope_type": "default", "rope_theta": m["theta"], **m["rope"]})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                             dtype=torch.float64)
    if m["o_bias"]:
        for layer in model.model.layers:
            old = layer.self_attn.o_proj
            layer.self_attn.o_proj = torch.nn.Linear(
                old.in_features, old.out_features, bias=True, dtype=torch.float64)
    state = {hf_name(name): torch.tensor(dequantize(data, T[kind]), dtype=torch.float64)
             for name, (kind, data) in tensors.items()}
    if m["tied"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    return model.eval()


def gguf_row_order(m, tensor):
    """llama files pair rope rows as (2i, 2i+1) where HF pairs (i, i + dim/2)."""
    q_heads, kv_heads, dim = m["heads"]
    heads = {"attn_q": q_heads, "attn_k": kv_heads}.get(tensor.split(".")[-2])
    if m["arch"] != "llama" or heads is None:
        return None
    order = np.empty(heads * dim, dtype=np.int64)
    for head in range(heads):
        for i in range(dim // 2):
            order[head * dim + 2 * i] = head * dim + i
            order[head * dim + 2 * i + 1] = head * dim + i + dim // 2
    return order


def llama3_divisors(m):
    """rope_freqs.weight: what each pair's frequency is divided by."""
    rope, dim = m["rope"], m["heads"][2]
    context, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    out = []
    for i in range(dim // 2):
        wave = 2 * np.pi * m["theta"] ** (2 * i / dim)
        blend = np.clip((context / wave - low) / (high - low), 0, 1)
        out.append(1 / ((1 - blend) / factor + blend))
    return np.array(out, dtype=np.float32)


def write_rope_keys(writer, m):
    arch, rope = m["arch"], m["rope"]
    writer.add_float32(f"{arch}.rope.freq_base", m["theta"])
    if arch == "llama":
        writer.add_uint32("llama.rope.dimension_count", m["heads"][2])
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_string(f"{arch}.rope.scaling.type", rope["rope_type"])
        writer.add_float32(f"{arch}.rope.scaling.factor", rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_uint32(f"{arch}.rope.scaling.original_context_length",
                          rope["original_max_position_embeddings"])


def write_keys(writer, name, m):
    arch, (q_heads, kv_heads, dim) = m["arch"], m["heads"]
    writer.add_string("general.name", name)
    writer.add_uint32("general.file_type", FILE_TYPE[m["default"]])
    writer.add_uint32("general.quantization_version", 2)
    keys = {"block_count": m["layers"], "embedding_length": m["hidden"],
            "feed_forward_length": m["ffn"], "attention.head_count": q_heads,
            "attention.head_count_kv": kv_heads, "context_length": m["context"],
            "vocab_size": m["vocab"]}
    if arch == "qwen3" or dim * q_heads != m["hidden"]:
        keys |= {"attention.key_length": dim, "attention.value_length": dim}
    for key, value in keys.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", m["eps"])
    write_rope_keys(writer, m)
    tokens, types, merges = tiny_vocab.build(m["vocab"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def write_gguf(path, name, m, tensors, split_every=0):
    writer = GGUFWriter(path, m["arch"], split_max_tensors=split_every)
    write_keys(writer, name, m)
    for tensor, (kind, data) in tensors.items():
        order = gguf_row_order(m, tensor)
        rows = data if order is None else np.ascontiguousarray(data[order])
        writer.add_tensor(tensor, rows, raw_dtype=T[kind])
    if m["rope"].get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(m))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_model(out, name, m):
    tensors = make_tensors(name, m)
    with float64_everywhere():
        model = hf_model(m, tensors)
        tokens, greedy, gap = pick_input(name, m, model, CANDIDATES)
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    assert logits.dtype == np.float64 and gap > 1e-3
    write_gguf(out / f"{name}.gguf", name, m, tensors)
    if name == "llama_f32":
        write_gguf(out / "llama_split.gguf", name, m, tensors, SPLIT_EVERY)
    (out / f"{name}.logits").write_bytes(logits.astype("<f4").tobytes())
    print(f"{name}: logits std {logits.std():.2f}, max {abs(logits).max():.1f}, "
          f"smallest greedy gap {gap:.4f}, {len(set(greedy))} distinct greedy tokens")
    return {"tokens": tokens, "vocab": m["vocab"], "greedy": greedy}


def main(out):
    torch.set_num_threads(1)
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    index = {name: make_model(out, name, m) for name, m in MODELS.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in index.items()]
    (out / "tiny.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
