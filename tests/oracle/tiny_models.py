"""The table of tiny models (used by make_tiny.py; makes nothing itself).

`types` gives the tensor type per GGUF role; a role not listed uses `default`.
Norms and biases are always F32.  `heads` is (query heads, kv heads, head dim).
"""


def model(arch, hidden, layers, heads, ffn, default, **extra):
    base = dict(arch=arch, hidden=hidden, layers=layers, heads=heads, ffn=ffn, types={},
                default=default, tied=False, vocab=263, n_tokens=40, theta=10000.0,
                rope={}, context=256, eps=1e-5, o_bias=False)
    return base | extra


MODELS = {
    "llama_f32": model("llama", 80, 2, (5, 5, 16), 224, "F32"),
    "llama_f16": model("llama", 96, 2, (6, 2, 16), 200, "F16", tied=True,
                       rope=dict(rope_type="linear", factor=2.0)),
    # Wavelengths 6.3 | 19.9, 62.8 | 199...: all three branches of the llama3 rule.
    "llama3_bf16": model("llama", 64, 2, (4, 2, 16), 160, "BF16", n_tokens=70, context=512,
                         rope=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                   high_freq_factor=4.0,
                                   original_max_position_embeddings=64)),
    "llama_q4_k": model("llama", 256, 2, (8, 4, 32), 1280, "Q4_K",
                        types={"attn_v": "Q6_K", "ffn_down": "Q6_K", "attn_output": "Q5_K",
                               "output": "Q6_K", "token_embd": "Q8_0"}),
    "qwen2_q8_0": model("qwen2", 96, 2, (6, 3, 16), 288, "Q8_0", tied=True, theta=1e6, eps=1e-6),
    "qwen2_f16b": model("qwen2", 64, 2, (4, 1, 16), 160, "F16", theta=1e6, eps=1e-6, o_bias=True),
    "qwen3_f32": model("qwen3", 72, 3, (10, 5, 24), 352, "F32", theta=1e6, eps=1e-6),
    "qwen3_q4_0": model("qwen3", 128, 2, (8, 2, 32), 416, "Q4_0", tied=True, theta=1e6, eps=1e-6),
    # attn_output is 112 wide, no multiple of 32, so it stays F16.
    "qwen3_q4_1": model("qwen3", 128, 2, (7, 7, 16), 224, "Q4_1", tied=True, theta=1e6, eps=1e-6,
                        types={"attn_output": "F16"}, vocab=2100),
    # With theta 100 the ramp over the pairs is 0, 1/3, 2/3, 1, 1, ...
    "qwen3_yarn_f32": model("qwen3", 64, 2, (4, 2, 16), 128, "F32", theta=100.0, eps=1e-6,
                            n_tokens=70, context=128,
                            rope=dict(rope_type="yarn", factor=4.0,
                                      original_max_position_embeddings=32)),
}
