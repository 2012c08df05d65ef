"""A float64 forward pass of qwen35 in plain numpy, from the bytes of a GGUF file alone.

Rotates activations as an engine would and keeps value heads tiled, so it shares neither
the unrotated weights nor the head order of the transformers run. Reads every tensor type
the fixtures use with its own decoders. Imported by the make and check scripts.
"""
import struct

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
# type id: weights and bytes per block
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 42: (64, 18), 142: (128, 34), 143: (128, 28)}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def one(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.one("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind != 9:
            return self.one(SCALARS[kind])
        element, count = self.one("I"), self.one("Q")
        return [self.value(element) for _ in range(count)]


def read(path):
    """Returns (keys, {name: (type id, float64 array)})."""
    r = Reader(open(path, "rb").read())
    assert r.data[:4] == b"GGUF" and struct.unpack_from("<I", r.data, 4) == (3,)
    r.at = 8
    n_tensors, n_keys = r.one("Q"), r.one("Q")
    keys = {}
    for _ in range(n_keys):
        name = r.string()
        keys[name] = r.value(r.one("I"))
    infos = [(r.string(), [r.one("Q") for _ in range(r.one("I"))], r.one("I"), r.one("Q"))
             for _ in range(n_tensors)]
    start, out = (r.at + 31) // 32 * 32, {}
    for name, dims, kind, offset in infos:
        weights, size = BLOCKS[kind]
        count = int(np.prod(dims)) // weights
        raw = np.frombuffer(r.data, np.uint8, count * size, start + offset)
        out[name] = kind, decode(raw.reshape(count, size), kind).reshape(dims[::-1])
    return keys, out


def trits_of(blocks, kind):
    """Codes, 0 to 2 or 3, of blocks without their scales."""
    blocks = blocks.astype(np.int64)
    if kind != 143:
        return (blocks[:, :, None] >> np.array([0, 2, 4, 6]) & 3).reshape(len(blocks), -1)
    parts = [(0, 16, 5), (16, 24, 5), (24, 26, 4)]
    return np.concatenate([blocks[:, a:b] * 3 ** n % 256 * 3 >> 8
                           for a, b, digits in parts for n in range(digits)], axis=1)


def decode(blocks, kind):
    if kind in (0, 1):
        return blocks.copy().view("<f4" if kind == 0 else "<f2").astype(np.float64)
    if kind == 30:
        return (blocks.copy().view("<u2").astype(np.uint32) << 16).view(np.float32) + 0.0
    codes, scale = np.split(blocks, [26], axis=1) if kind == 143 else (blocks[:, 2:], blocks[:, :2])
    return (trits_of(codes, kind) - 1) * scale.copy().view("<f2").astype(np.float64)


class Rotation:
    """The keys prism.hadamard.*; does nothing for weights that are not listed."""

    def __init__(self, keys, rotate_first=False):
        get = lambda key, default: keys.get(f"prism.hadamard.{key}", default)
        self.listed = set(get("weight_names", []))
        self.inverse_listed = set(get("inverse_weight_names", []))
        self.grouped, self.rotate_first = get("gdn_v_grouped", False), rotate_first
        self.block = get("block_size", 1)
        index = np.arange(self.block)
        odd = np.bitwise_count(index[:, None] & index) & 1
        self.matrix = (1.0 - 2.0 * odd) / np.sqrt(self.block)
        self.signs, at = {}, 0
        for width in get("sign_widths", []):
            self.signs[width] = np.array(get("sign_values", None)[at:at + width])
            at += width

    def blocks(self, x):
        return (x.reshape(*x.shape[:-1], -1, self.block) @ self.matrix).reshape(x.shape)

    def forward(self, x, name):
        if name not in self.listed:
            return x
        signs = self.signs[x.shape[-1]]
        return self.blocks(x) * signs if self.rotate_first else self.blocks(signs * x)

    def inverse(self, z, name):
        if name not in self.inverse_listed:
            return z
        signs = self.signs[z.shape[-1]]
        return self.blocks(signs * z) if self.rotate_first else signs * self.blocks(z)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


class Model:
    """`rotate_first`, `llama_l2` and `key_head_of` exist to see that they would matter."""

    def __init__(self, keys, weights, rotate_first=False, llama_l2=False, key_head_of=None):
        self.keys, self.weights, self.llama_l2 = keys, weights, llama_l2
        self.rotation = Rotation(keys, rotate_first)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.key_head_of = key_head_of or (lambda v, key_heads, rep: v % key_heads)

    def key(self, name, default=None):
        return self.keys.get(f"qwen35.{name}", default)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weights[name]

    def l2(self, x):
        if self.llama_l2:
            return x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), self.eps)
        return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)

    def project(self, x, name):
        return self.rotation.forward(x, name) @ self.weights[name].T

    def rope(self, x):
        """x is [n, heads, dim]; pairs (i, i + rotary / 2) of the first `rotary` dims."""
        rotary = self.key("rope.dimension_count")
        half = rotary // 2
        frequency = self.key("rope.freq_base") ** (-2.0 * np.arange(half) / rotary)
        angle = (np.arange(len(x))[:, None] * frequency)[:, None]
        a, b = x[..., :half], x[..., half:rotary]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                               b * np.cos(angle) + a * np.sin(angle), x[..., rotary:]], axis=-1)

    def attention(self, h, at):
        heads, kv_heads = self.key("attention.head_count"), self.key("attention.head_count_kv")
        dim, n = self.key("attention.key_length"), len(h)
        q, gate = np.split(self.project(h, f"{at}attn_q.weight").reshape(n, heads, 2 * dim), 2, -1)
        k = self.project(h, f"{at}attn_k.weight").reshape(n, kv_heads, dim)
        v = self.project(h, f"{at}attn_v.weight").reshape(n, kv_heads, dim)
        q = self.rope(self.norm(q, f"{at}attn_q_norm.weight"))
        k = self.rope(self.norm(k, f"{at}attn_k_norm.weight"))
        out = np.empty_like(q)
        hidden = np.triu(np.full((n, n), -np.inf), 1)
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, kv].T / np.sqrt(dim) + hidden
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, kv]
        return self.project((out * sigmoid(gate)).reshape(n, -1), f"{at}attn_output.weight")

    def delta_net(self, h, at):
        key_heads, value_heads = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        dim, taps, n = self.key("ssm.state_size"), self.key("ssm.conv_kernel"), len(h)
        mixed = self.project(h, f"{at}attn_qkv.weight")
        z = self.project(h, f"{at}attn_gate.weight").reshape(n, value_heads, dim)
        padded = np.concatenate([np.zeros((taps - 1, mixed.shape[1])), mixed])
        kernel = self.weights[f"{at}ssm_conv1d.weight"]
        y = silu(sum(padded[j:j + n] * kernel[:, j] for j in range(taps)))
        q, k, v = (part.reshape(n, -1, dim) for part in
                   np.split(y, [key_heads * dim, 2 * key_heads * dim], axis=1))
        source = [self.key_head_of(i, key_heads, value_heads // key_heads)
                  for i in range(value_heads)]
        q, k = self.l2(q)[:, source] / np.sqrt(dim), self.l2(k)[:, source]
        beta = sigmoid(h @ self.weights[f"{at}ssm_beta.weight"].T)
        step = np.log1p(np.exp(h @ self.weights[f"{at}ssm_alpha.weight"].T
                               + self.weights[f"{at}ssm_dt.bias"]))
        decay = np.exp(self.weights[f"{at}ssm_a"] * step)
        state, out = np.zeros((value_heads, dim, dim)), np.empty_like(v)  # [head, key, value]
        for t in range(n):
            state *= decay[t][:, None, None]
            delta = beta[t][:, None] * (v[t] - np.einsum("hij,hi->hj", state, k[t]))
            state += k[t][:, :, None] * delta[:, None]
            out[t] = np.einsum("hij,hi->hj", state, q[t])
        out = self.norm(out, f"{at}ssm_norm.weight") * silu(z)
        name = f"{at}ssm_out.weight"
        if self.rotation.grouped and name in self.rotation.listed:  # tiled to grouped
            out = out.reshape(n, -1, key_heads, dim).swapaxes(1, 2)
        return self.project(out.reshape(n, -1), name)

    def recurrent(self, layer):
        flags = self.key("attention.recurrent_layers")
        return flags[layer] if flags else (layer + 1) % self.key("full_attention_interval", 4) != 0

    def forward(self, tokens):
        """Logits [n, vocab] of one pass over `tokens`."""
        embedding = "token_embd.weight"
        x = self.rotation.inverse(self.weights[embedding][tokens], embedding)
        for layer in range(self.key("block_count") - self.key("nextn_predict_layers", 0)):
            at = f"blk.{layer}."
            h = self.norm(x, f"{at}attn_norm.weight")
            x = x + (self.delta_net(h, at) if self.recurrent(layer) else self.attention(h, at))
            h = self.norm(x, f"{at}post_attention_norm.weight")
            hidden = silu(self.project(h, f"{at}ffn_gate.weight")) \
                * self.project(h, f"{at}ffn_up.weight")
            x = x + self.project(hidden, f"{at}ffn_down.weight")
        x = self.norm(x, "output_norm.weight")
        if "output.weight" in self.weights:
            return self.project(x, "output.weight")
        if self.keys.get("prism.hadamard.tied_output", False):
            x = self.rotation.blocks(self.rotation.signs[x.shape[-1]] * x)
        return x @ self.weights[embedding].T
