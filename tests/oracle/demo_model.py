"""The demo model in PyTorch: qwen35 with ternary weights in a rotated basis, made for training.

Parameters have GGUF names ("blk.0.ffn_up.weight") and are latent float weights in the stored,
rotated basis; value heads are in grouped order (head k * rep + r), as transformers keeps them.
`dense` makes the weights of the normal basis that forward uses: it takes the trits and scales (the
gradient passes straight through) and rotates them back, which costs less a step than rotating the
activations and means the same. Imported by train_demo.py and export_demo.py.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from demo_delta import delta_rule

GROUP = 128
CONV = 4
# Rotation blocks of 256 lie across ranks: one for head outputs, five for FFN channels.
SHAPE = dict(hidden=512, ffn=1280, vocab=4096, recurrent=[True, True, True, False], interval=4,
             heads=(4, 2, 64), linear=(4, 2, 32), rotary=(32, [6, 5, 5, 0], 1e4), block=256,
             tied=True, eps=1e-6, context=1024)
SIGN_SEED = 20


def widths(m):
    (q_heads, _, dim), (keys, rep, state) = m["heads"], m["linear"]
    return list(dict.fromkeys([m["hidden"], q_heads * dim, keys * rep * state, m["ffn"]]))


def sign_vectors(m):
    """One vector of signs per input width."""
    rng = np.random.default_rng(SIGN_SEED)
    return {width: rng.choice([-1, 1], width) for width in widths(m)}


def matrices(m, recurrent):
    """Role -> (rows, width) of the ternary matrices of a layer."""
    (q_heads, kv_heads, dim), (keys, rep, state) = m["heads"], m["linear"]
    hidden, values = m["hidden"], keys * rep * state
    out = {"ffn_gate": (m["ffn"], hidden), "ffn_up": (m["ffn"], hidden),
           "ffn_down": (hidden, m["ffn"])}
    if recurrent:
        return out | {"attn_qkv": (2 * keys * state + values, hidden),
                      "attn_gate": (values, hidden), "ssm_out": (hidden, values)}
    return out | {"attn_q": (2 * q_heads * dim, hidden), "attn_k": (kv_heads * dim, hidden),
                  "attn_v": (kv_heads * dim, hidden), "attn_output": (hidden, q_heads * dim)}


def trits_and_scales(latent):
    """Trits [rows, width / 128, 128] and their fp16 scales: the mean magnitude of each group."""
    groups = latent.unflatten(-1, (-1, GROUP))
    scales = groups.abs().mean(-1, keepdim=True).half().float()
    return (groups / scales.clamp_min(1e-7)).round().clamp(-1, 1), scales


class Ternary(torch.autograd.Function):
    """latent + blend * (trits * scales - latent); the gradient passes straight through."""

    @staticmethod
    def forward(ctx, latent, blend):
        trits, scales = trits_and_scales(latent)
        return torch.lerp(latent, (trits * scales).flatten(-2), blend)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def hadamard(block):
    index = np.arange(block)
    odd = np.bitwise_count(index[:, None] & index) & 1
    return torch.tensor((1.0 - 2.0 * odd) / np.sqrt(block), dtype=torch.float32)


def rms(x, weight, eps):
    return F.rms_norm(x.float(), x.shape[-1:], weight, eps)


class Demo(nn.Module):
    def __init__(self, m, ternary=True):
        super().__init__()
        self.m, self.ternary, self.tensors = m, ternary, nn.ParameterDict()
        self.register_buffer("matrix", hadamard(m["block"]), persistent=False)
        for width, signs in sign_vectors(m).items():
            self.register_buffer(f"signs{width}", torch.tensor(signs, dtype=torch.float32),
                                 persistent=False)
        self.rotated = ["token_embd.weight"]
        self.add("token_embd.weight", torch.randn(m["vocab"], m["hidden"]) * 0.03)
        self.add("output_norm.weight", torch.ones(m["hidden"]))
        for layer, recurrent in enumerate(m["recurrent"]):
            self.add_layer(f"blk.{layer}.", recurrent)

    def add(self, name, value):
        self.tensors[name.replace(".", ":")] = nn.Parameter(value)

    def add_layer(self, at, recurrent):
        m = self.m
        depth = (2 * len(m["recurrent"])) ** -0.5
        for role, (rows, width) in matrices(m, recurrent).items():
            gain = depth if rows == m["hidden"] else 1.0
            self.add(f"{at}{role}.weight", torch.randn(rows, width) * gain * width ** -0.5)
            self.rotated.append(f"{at}{role}.weight")
        for norm in ("attn_norm", "post_attention_norm"):
            self.add(f"{at}{norm}.weight", torch.ones(m["hidden"]))
        if not recurrent:
            for norm in ("attn_q_norm", "attn_k_norm"):
                self.add(f"{at}{norm}.weight", torch.ones(m["heads"][2]))
            return
        keys, rep, state = m["linear"]
        heads, channels = keys * rep, (2 + rep) * keys * state
        for role in ("ssm_alpha", "ssm_beta"):
            self.add(f"{at}{role}.weight", torch.randn(heads, m["hidden"]) * 0.02)
        self.add(f"{at}ssm_conv1d.weight", torch.rand(channels, CONV) - 0.5)
        self.add(f"{at}ssm_norm.weight", torch.ones(state))
        # Decays of exp(-0.001) to exp(-1.6) a token.
        step = torch.exp(torch.empty(heads).uniform_(np.log(1e-3), np.log(1e-1)))
        self.add(f"{at}ssm_dt.bias", step + torch.log(-torch.expm1(-step)))
        self.add(f"{at}ssm_a", torch.empty(heads).uniform_(1, 16).log())

    def get(self, name):
        return self.tensors[name.replace(".", ":")]

    def dense(self, blend, dtype):
        """The weights that forward takes: normal basis, matrices in `dtype`."""
        out = {}
        for key, value in self.tensors.items():
            name = key.replace(":", ".")
            if name in self.rotated:
                stored = Ternary.apply(value, blend) if self.ternary else value
                blocks = stored.to(dtype).view(-1, self.m["block"]) @ self.matrix.to(dtype)
                signs = getattr(self, f"signs{value.shape[1]}").to(dtype)
                value = blocks.view(value.shape) * signs
            elif "ssm_alpha" in name or "ssm_beta" in name:
                value = value.to(torch.bfloat16).to(dtype)
            out[name] = value
        return out

    def attention(self, w, at, h):
        (heads, kv_heads, dim), (rotary, _, theta) = self.m["heads"], self.m["rotary"]
        length, half = h.shape[1], rotary // 2
        q, gate = F.linear(h, w[f"{at}attn_q.weight"]).unflatten(-1, (heads, 2 * dim)).chunk(2, -1)
        k = F.linear(h, w[f"{at}attn_k.weight"]).unflatten(-1, (kv_heads, dim))
        v = F.linear(h, w[f"{at}attn_v.weight"]).unflatten(-1, (kv_heads, dim))
        frequency = theta ** (-torch.arange(half, device=h.device) / half)
        angle = (torch.arange(length, device=h.device)[:, None] * frequency)[:, None]
        cos, sin = angle.cos(), angle.sin()

        def prepared(x, norm):
            x = rms(x, w[f"{at}{norm}.weight"], self.m["eps"])
            a, b, rest = x.split([half, half, dim - rotary], -1)
            x = torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
            return x.to(h.dtype).transpose(1, 2)

        q, k = prepared(q, "attn_q_norm"), prepared(k, "attn_k_norm")
        out = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True,
                                             enable_gqa=True).transpose(1, 2)
        out = (out.float() * gate.float().sigmoid()).to(h.dtype)
        return F.linear(out.flatten(-2), w[f"{at}attn_output.weight"])

    def delta_net(self, w, at, h):
        keys, rep, state = self.m["linear"]
        mixed = F.linear(h, w[f"{at}attn_qkv.weight"]).float()
        z = F.linear(h, w[f"{at}attn_gate.weight"]).unflatten(-1, (keys * rep, state))
        kernel, padded = w[f"{at}ssm_conv1d.weight"], F.pad(mixed, (0, 0, CONV - 1, 0))
        y = F.silu(sum(padded[:, j:j + h.shape[1]] * kernel[:, j] for j in range(CONV)))
        q, k, v = y.split([keys * state, keys * state, keys * rep * state], -1)
        q, k = (x.unflatten(-1, (keys, state)) for x in (q, k))
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
        beta = F.linear(h, w[f"{at}ssm_beta.weight"]).float().sigmoid()
        step = F.softplus(F.linear(h, w[f"{at}ssm_alpha.weight"]).float() + w[f"{at}ssm_dt.bias"])
        decay = (-w[f"{at}ssm_a"].exp() * step).exp()
        out = delta_rule(q * state ** -0.5, k, v.unflatten(-1, (keys, rep, state)),
                         decay.unflatten(-1, (keys, rep)), beta.unflatten(-1, (keys, rep)))
        out = rms(out.flatten(2, 3), w[f"{at}ssm_norm.weight"], self.m["eps"]) * F.silu(z.float())
        return F.linear(out.flatten(-2).to(h.dtype), w[f"{at}ssm_out.weight"])

    def forward(self, w, tokens):
        """Hidden states [B, T, hidden] before the head, for dense weights `w`."""
        dtype = w["token_embd.weight"].dtype
        x = F.embedding(tokens, w["token_embd.weight"]).float()
        for layer, recurrent in enumerate(self.m["recurrent"]):
            at = f"blk.{layer}."
            h = rms(x, w[f"{at}attn_norm.weight"], self.m["eps"]).to(dtype)
            x = x + (self.delta_net if recurrent else self.attention)(w, at, h)
            h = rms(x, w[f"{at}post_attention_norm.weight"], self.m["eps"]).to(dtype)
            hidden = F.silu(F.linear(h, w[f"{at}ffn_gate.weight"])) \
                * F.linear(h, w[f"{at}ffn_up.weight"])
            x = x + F.linear(hidden, w[f"{at}ffn_down.weight"])
        return rms(x, w["output_norm.weight"], self.m["eps"]).to(dtype)

    def logits(self, w, tokens):
        return F.linear(self(w, tokens), w["token_embd.weight"]).float()
