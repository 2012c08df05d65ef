"""Tiny qwen35 models: shapes, stored tensors and their transformers counterparts.

Imported by make_tiny_qwen35.py; makes nothing itself. Tensors have GGUF names and GGUF
order (value heads tiled: head r * key_heads + k); transformers orders them k * rep + r.
"""
import zlib

import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from hadamard import unrotate
from ternary import Ternary, random_ternary

CONV = 4


def shape(hidden, ffn, vocab, recurrent, heads, linear, rotary, block=128, **extra):
    """`heads` is (query, kv, dim), `linear` is (key heads, rep, dim), `rotary` is
    (dimensions, sections, theta); `recurrent` marks the Gated DeltaNet layers."""
    return dict(hidden=hidden, ffn=ffn, vocab=vocab, recurrent=recurrent, heads=heads,
                linear=linear, rotary=rotary, block=block, interval=None, tied=False,
                n_tokens=40, eps=1e-6, context=256) | extra


SHAPES = {
    "qwen35_a": shape(128, 640, 300, [True, False], (6, 2, 64), (4, 3, 32),
                      (16, [3, 3, 2, 0], 1e7), interval=2, n_tokens=72),
    "qwen35_b": shape(128, 896, 1100, [False, True, True, False, False], (10, 5, 64), (5, 2, 64),
                      (32, [6, 5, 5, 0], 1e4)),
    # Old converters wrote three sections.
    "qwen35_c": shape(256, 1280, 300, [True, False], (4, 1, 64), (6, 2, 64),
                      (16, [3, 3, 2], 1e4), block=256, interval=2, tied=True),
}
HF_NAMES = {
    "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z", "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b", "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
}


def matrices(m, recurrent):
    """Role -> (rows, width, gain) of the ternary matrices of a layer."""
    (q_heads, kv_heads, dim), (keys, rep, state) = m["heads"], m["linear"]
    hidden, values = m["hidden"], keys * rep * state
    out = {"ffn_gate": (m["ffn"], hidden, 1.5), "ffn_up": (m["ffn"], hidden, 1.2),
           "ffn_down": (hidden, m["ffn"], 1.5)}
    if recurrent:
        return out | {"attn_qkv": (2 * keys * state + values, hidden, 1.0),
                      "attn_gate": (values, hidden, 1.2), "ssm_out": (hidden, values, 1.5)}
    return out | {"attn_q": (2 * q_heads * dim, hidden, 1.3),  # gates are rows too
                  "attn_k": (kv_heads * dim, hidden, 1.3), "attn_v": (kv_heads * dim, hidden, 1.0),
                  "attn_output": (hidden, q_heads * dim, 2.0)}


def layer_tensors(rng, m, recurrent, ternary_gates):
    norm = lambda size: rng.uniform(0.6, 1.4, size).astype(np.float32)
    out = {"attn_norm.weight": norm(m["hidden"]), "post_attention_norm.weight": norm(m["hidden"])}
    for role, (rows, width, gain) in matrices(m, recurrent).items():
        out[f"{role}.weight"] = random_ternary(rng, rows, width, gain)
    if not recurrent:
        return out | {f"attn_{x}_norm.weight": norm(m["heads"][2]) for x in "qk"}
    keys, rep, state = m["linear"]
    heads, channels = keys * rep, (2 + rep) * keys * state
    for role in ("ssm_alpha", "ssm_beta"):
        gate = random_ternary(rng, heads, m["hidden"], 1.2)
        if not ternary_gates:
            gate = dequantize(quantize(gate.dense().astype(np.float32) * norm(m["hidden"]), T.BF16),
                              T.BF16)
        out[f"{role}.weight"] = gate
    # Decays exp(ssm_a * softplus(alpha + dt)) of about 0.3 to 0.98 per token.
    return out | {
        "ssm_conv1d.weight": rng.normal(0, 0.6, (channels, CONV)).astype(np.float32),
        "ssm_a": -np.exp(rng.uniform(-3.0, 0.3, heads)).astype(np.float32),
        "ssm_dt.bias": rng.normal(0, 0.7, heads).astype(np.float32),
        "ssm_norm.weight": norm(state)}


def stored_tensors(name, m, ternary_gates=False):
    """All tensors of a file. Every 12th scale of the embedding is a subnormal fp16."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    embedding = random_ternary(rng, m["vocab"], m["hidden"], 2.0)
    some = embedding.scales.reshape(-1)[::12]
    some[:] = rng.uniform(1.1e-5, 6e-5, some.size)
    out = {"token_embd.weight": embedding,
           "output_norm.weight": rng.uniform(0.6, 1.4, m["hidden"]).astype(np.float32)}
    if not m["tied"]:
        out["output.weight"] = random_ternary(rng, m["vocab"], m["hidden"], 2.0)
    for layer, recurrent in enumerate(m["recurrent"]):
        for role, value in layer_tensors(rng, m, recurrent, ternary_gates).items():
            out[f"blk.{layer}.{role}"] = value
    return out


def rotated_names(tensors):
    """The ternary weights other than the embedding."""
    return [name for name, value in tensors.items()
            if isinstance(value, Ternary) and name != "token_embd.weight"]


def sign_vectors(name, m):
    """One vector of signs per input width."""
    rng = np.random.default_rng(zlib.crc32(f"{name} signs".encode()))
    (q_heads, _, dim), (keys, rep, state) = m["heads"], m["linear"]
    widths = dict.fromkeys([m["hidden"], q_heads * dim, keys * rep * state, m["ffn"]])
    return {width: rng.choice([-1, 1], width) for width in widths}


def grouped_of_tiled(m):
    """Element i of the tiled order of value channels is this element of the grouped order."""
    keys, rep, state = m["linear"]
    return np.arange(keys * rep * state).reshape(keys, rep, state).swapaxes(0, 1).reshape(-1)


def dense_tensors(m, tensors, signs=None, grouped=False):
    """What the stored tensors mean: float64, normal basis, everything tiled."""
    out = {}
    for name, value in tensors.items():
        if not isinstance(value, Ternary):
            out[name] = value.astype(np.float64)
            continue
        out[name] = value.dense()
        if signs is not None:
            out[name] = unrotate(out[name], signs[out[name].shape[1]], m["block"])
            if grouped and "ssm_out" in name:
                out[name] = out[name][:, grouped_of_tiled(m)]
    return out


def hf_state(m, dense):
    keys, rep, state = m["linear"]
    tiled = np.argsort(grouped_of_tiled(m))
    heads = tiled[::state] // state
    behind = 2 * keys * state  # q and k rows come first
    rows = np.concatenate([np.arange(behind), behind + tiled])
    order = {"attn_qkv": rows, "ssm_conv1d": rows, "attn_gate": tiled, "ssm_alpha": heads,
             "ssm_beta": heads, "ssm_a": heads, "ssm_dt": heads}
    outer = {"token_embd.weight": "model.embed_tokens.weight",
             "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    out = {}
    for name, value in dense.items():
        _, layer, role = (name.split(".") + [""])[:3]
        if role in order:
            value = value[order[role]]
        if role == "ssm_out":
            value = value[:, tiled]
        if role == "ssm_conv1d":
            value = value[:, None]
        if "_norm" in name and role != "ssm_norm":
            value = value - 1
        if role == "ssm_a":
            hf, value = "linear_attn.A_log", np.log(-value)
        elif role == "ssm_dt":
            hf = "linear_attn.dt_bias"
        else:
            hf = f"{HF_NAMES.get(role)}.weight"
        out[outer.get(name, f"model.layers.{layer}.{hf}")] = torch.tensor(value)
    out.setdefault("lm_head.weight", out["model.embed_tokens.weight"])
    return out


def hf_model(m, dense):
    (q_heads, kv_heads, dim), (keys, rep, state) = m["heads"], m["linear"]
    rotary, sections, theta = m["rotary"]
    config = Qwen3_5TextConfig(
        hidden_size=m["hidden"], intermediate_size=m["ffn"], vocab_size=m["vocab"],
        num_hidden_layers=len(m["recurrent"]), num_attention_heads=q_heads,
        num_key_value_heads=kv_heads, head_dim=dim, linear_conv_kernel_dim=CONV,
        linear_key_head_dim=state, linear_value_head_dim=state, linear_num_key_heads=keys,
        linear_num_value_heads=keys * rep, rms_norm_eps=float(np.float32(m["eps"])),
        max_position_embeddings=m["context"], tie_word_embeddings=m["tied"],
        layer_types=["linear_attention" if r else "full_attention" for r in m["recurrent"]],
        rope_parameters={"rope_type": "default", "rope_theta": theta,
                         "partial_rotary_factor": rotary / dim, "mrope_section": sections[:3]})
    config._attn_implementation = "eager"
    model = Qwen3_5ForCausalLM(config).to(torch.float64)
    model.load_state_dict(hf_state(m, dense), strict=True)
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    return model.eval()
