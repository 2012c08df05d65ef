"""A float64 forward pass in plain numpy straight from GGUF tensors (no transformers).

It follows the GGUF conventions as an engine would: adjacent rope pairs for llama,
half-split pairs for qwen, rope_freqs as divisors, YaRN from its keys.  Used by
check_tiny.py as a second witness; makes nothing itself.
"""
import numpy as np


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rope_tables(keys, weights, n, dim):
    """Cosines and sines, [n, dim / 2], with the scaling the file asks for."""
    theta = keys["rope.freq_base"]
    i = np.arange(dim // 2)
    freq = theta ** (-2.0 * i / dim)
    if "rope_freqs.weight" in weights:
        freq = freq / weights["rope_freqs.weight"]
    scaling = keys.get("rope.scaling.type", "none")
    factor = keys.get("rope.scaling.factor", 1.0)
    magnitude = 1.0
    if scaling == "linear":
        freq = freq / factor
    elif scaling == "yarn":
        context = keys["rope.scaling.original_context_length"]
        corr = lambda turns: dim * np.log(context / (2 * np.pi * turns)) / (2 * np.log(theta))
        low = max(0, np.floor(corr(keys.get("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(dim - 1, np.ceil(corr(keys.get("rope.scaling.yarn_beta_slow", 1.0))))
        keep = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
        freq = freq / factor * (1 - keep) + freq * keep
        magnitude = keys.get("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * np.log(factor))
    angle = np.arange(n)[:, None] * freq
    return np.cos(angle) * magnitude, np.sin(angle) * magnitude


def rotate(x, cos, sin, adjacent):
    """x is [n, heads, dim]; pairs are (2i, 2i+1) or (i, i + dim/2)."""
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if adjacent else \
                    (slice(0, half), slice(half, None))
    a, b, c, s = x[..., first], x[..., second], cos[:, None], sin[:, None]
    out = np.empty_like(x)
    out[..., first] = a * c - b * s
    out[..., second] = a * s + b * c
    return out


def attention(x, keys, weights, at, tables, stats):
    n, heads, kv_heads = len(x), keys["attention.head_count"], keys["attention.head_count_kv"]

    def project(role, inputs):
        out = inputs @ weights[f"{at}{role}.weight"].T
        return out + weights.get(f"{at}{role}.bias", 0.0)

    q = project("attn_q", x).reshape(n, heads, -1)
    k = project("attn_k", x).reshape(n, kv_heads, -1)
    v = project("attn_v", x).reshape(n, kv_heads, -1)
    if f"{at}attn_q_norm.weight" in weights:
        eps = keys["attention.layer_norm_rms_epsilon"]
        q = rms_norm(q, weights[f"{at}attn_q_norm.weight"], eps)
        k = rms_norm(k, weights[f"{at}attn_k_norm.weight"], eps)
    adjacent = keys.arch == "llama"
    q, k = rotate(q, *tables, adjacent), rotate(k, *tables, adjacent)
    out = np.empty_like(q)
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    for head in range(heads):
        kv = head * kv_heads // heads
        scores = q[:, head] @ k[:, kv].T / np.sqrt(q.shape[-1]) + hidden
        probabilities = softmax(scores)
        stats.append(probabilities[-1].max() * n)
        out[:, head] = probabilities @ v[:, kv]
    return project("attn_output", out.reshape(n, -1))


def forward(keys, weights, tokens, stats=None):
    """Logits [n, vocab] of one pass over `tokens`; `weights` are float64.

    `stats` collects, per head, the last row's largest attention weight relative
    to uniform attention.
    """
    stats = [] if stats is None else stats
    eps = keys["attention.layer_norm_rms_epsilon"]
    dim = keys.get("attention.key_length",
                   keys["embedding_length"] // keys["attention.head_count"])
    tables = rope_tables(keys, weights, len(tokens), dim)
    x = weights["token_embd.weight"][tokens]
    for layer in range(keys["block_count"]):
        at = f"blk.{layer}."
        normed = rms_norm(x, weights[f"{at}attn_norm.weight"], eps)
        x = x + attention(normed, keys, weights, at, tables, stats)
        normed = rms_norm(x, weights[f"{at}ffn_norm.weight"], eps)
        gate = normed @ weights[f"{at}ffn_gate.weight"].T
        up = normed @ weights[f"{at}ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{at}ffn_down.weight"].T
    x = rms_norm(x, weights["output_norm.weight"], eps)
    return x @ weights.get("output.weight", weights["token_embd.weight"]).T
