"""Rebuilds a transformers model from a GGUF file alone (llama, qwen2, qwen3).

Weights are decoded by the Python `gguf` package; the q and k rows of llama files
are put back into HF order.  Used by check_tiny.py and make_smollm2.py; makes
nothing itself.
"""
import re

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
           "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
RENAMES = [
    (r"^token_embd\.", "model.embed_tokens."), (r"^output_norm\.", "model.norm."),
    (r"^output\.", "lm_head."), (r"^blk\.(\d+)\.", r"model.layers.\1."),
    (r"\.attn_norm\.", ".input_layernorm."), (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.attn_([qk])_norm\.", r".self_attn.\1_norm."), (r"\.attn_([qkv])\.", r".self_attn.\1_proj."),
    (r"\.attn_output\.", ".self_attn.o_proj."), (r"\.ffn_(gate|up|down)\.", r".mlp.\1_proj."),
]


def read(path):
    """Returns (keys, {tensor name: float32 array})."""
    reader = GGUFReader(path)
    weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32)
               for t in reader.tensors}
    return Keys(reader), weights


class Keys:
    """Metadata of a GGUF file; the architecture prefix of a key may be left out."""

    def __init__(self, reader):
        self.fields = reader.fields
        self.arch = self["general.architecture"]

    def __getitem__(self, key):
        return self.fields[key if key in self.fields else f"{self.arch}.{key}"].contents()

    def get(self, key, default):
        try:
            return self[key]
        except KeyError:
            return default


def unpermute(rows, heads):
    """GGUF llama rows (2i, 2i+1 adjacent) back to HF rows (i, i + dim/2)."""
    dim = rows.shape[0] // heads
    pairs = rows.reshape(heads, dim // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def rope_parameters(keys):
    """HF rope settings; llama3 divisors are applied to inv_freq by `build`."""
    out = {"rope_type": keys.get("rope.scaling.type", "default"),
           "rope_theta": keys["rope.freq_base"]}
    if out["rope_type"] != "default":
        out["factor"] = keys["rope.scaling.factor"]
    if out["rope_type"] == "yarn":
        out["original_max_position_embeddings"] = keys["rope.scaling.original_context_length"]
    return out


def hf_config(keys, weights):
    hidden, heads = keys["embedding_length"], keys["attention.head_count"]
    dim = keys.get("attention.key_length", hidden // heads)
    return dict(
        hidden_size=hidden, num_hidden_layers=keys["block_count"], head_dim=dim,
        num_attention_heads=heads, num_key_value_heads=keys["attention.head_count_kv"],
        intermediate_size=keys["feed_forward_length"],
        vocab_size=weights["token_embd.weight"].shape[0],
        rms_norm_eps=keys["attention.layer_norm_rms_epsilon"],
        max_position_embeddings=keys["context_length"],
        tie_word_embeddings="output.weight" not in weights,
        rope_parameters=rope_parameters(keys))


def hf_state(keys, weights, dtype):
    state = {}
    for name, values in weights.items():
        if name == "rope_freqs.weight":
            continue
        role = name.split(".")[-2]
        if keys.arch == "llama" and role in ("attn_q", "attn_k"):
            key = "attention.head_count" if role == "attn_q" else "attention.head_count_kv"
            values = unpermute(values, keys[key])
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        state[name] = torch.tensor(values, dtype=dtype)
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    return state


def build(keys, weights, dtype):
    config_class, model_class = CLASSES[keys.arch]
    config = config_class(**hf_config(keys, weights))
    config._attn_implementation = "eager"
    model = model_class(config).to(dtype)
    if "blk.0.attn_output.bias" in weights:
        for layer in model.model.layers:
            layer.self_attn.o_proj.bias = torch.nn.Parameter(
                torch.zeros(config.hidden_size, dtype=dtype))
    model.load_state_dict(hf_state(keys, weights, dtype), strict=True)
    if "rope_freqs.weight" in weights:
        divisors = torch.tensor(weights["rope_freqs.weight"])
        model.model.rotary_emb.inv_freq /= divisors
    return model.eval()
