"""Checks the tiny qwen35 fixtures from the files alone; makes nothing.

Compares each .logits with the plain numpy pass over the GGUF file, replays the greedy
tokens, and breaks one file per reference in many ways to see that the logits would
notice. Compares the decoders and the rotation with vectors.json first.
Run: python3 check_tiny_qwen35.py tests/data/tiny
"""
import json
import pathlib
import sys

import numpy as np

import hadamard
import numpy_qwen35
from numpy_qwen35 import Model
from ternary import Ternary, encode

TOLERANCE = 1e-6  # largest error, relative to the largest logit
NOTICED = 1e-2    # a mistake must move some logit by this much, relative to the largest
BARELY = 1e-4     # the same where the mistake only touches half an embedding row
VECTORS = {"PTQ1_0": "PTQ1_0", "PTQ1_0_sparse": "PTQ1_0", "PTQ1_0_noncanonical": None,
           "PQ2_0": None, "Q2_0_g64": None, "Q2_0_g64_code3": None}


def check_vectors(vectors):
    for name, kind in VECTORS.items():
        block = vectors["blocks"][name]
        raw = np.frombuffer(bytes.fromhex(block["bytes_hex"]), np.uint8)
        codes = np.array(block["codes"])
        decoded = numpy_qwen35.decode(raw[None], block["ggml_type"])[0]
        assert np.array_equal(decoded, codes * block["scale"])
        if kind:
            t = Ternary(codes[None].astype(np.int8), np.array([[block["scale"]]], np.float16))
            assert np.array_equal(encode(t, kind)[0], raw)
    block8, big = vectors["hadamard"]["block8"], np.arange(1024) * 37 % 101 / 101 - 0.5
    signed = np.array(block8["x"]) * block8["signs"]
    assert np.allclose(hadamard.blockwise(signed, 8), block8["forward"], rtol=0, atol=1e-14)
    assert np.allclose(hadamard.unrotate(np.array(block8["forward"]), block8["signs"], 8),
                       block8["x"], rtol=0, atol=1e-14)
    both = [hadamard.blockwise(big, 1024),
            numpy_qwen35.Rotation({"prism.hadamard.block_size": 1024}).blocks(big)]
    for y in both:
        assert np.allclose(y[:8], vectors["hadamard"]["block1024"]["first8"], rtol=0, atol=1e-13)
    print(f"vectors.json: {len(VECTORS)} blocks and the rotation agree")


def without(keys, prefix):
    return {key: value for key, value in keys.items() if not key.startswith(prefix)}


def rotation_mistakes(keys, weights):
    at = "prism.hadamard."
    signs = list(keys[f"{at}sign_values"])
    signs[3] *= -1
    return {
        "one sign flipped": Model(keys | {f"{at}sign_values": signs}, weights),
        "ssm_out columns in the other order":
            Model(keys | {f"{at}gdn_v_grouped": not keys[f"{at}gdn_v_grouped"]}, weights),
        "rotate, then sign": Model(keys, weights, rotate_first=True),
        "rotation skipped": Model(without(keys, at), weights),
        "embedding not rotated back": Model(keys | {f"{at}inverse_weight_names": []}, weights),
        "rotation block halved": Model(keys | {f"{at}block_size": keys[f"{at}block_size"] // 2},
                                       weights),
    }


def mistakes(keys, weights):
    """Name -> a model with one thing done wrong."""
    def changed(role, change):
        return Model(keys, {name: change(value) if role in name else value
                            for name, value in weights.items()})

    one = lambda value: value * 0 + 1
    doubled = lambda key: {f"qwen35.{key}": 2 * keys[f"qwen35.{key}"]}
    out = {
        "ssm_a 10% larger": changed("ssm_a", lambda a: a * 1.1 if a.ndim == 1 else a),
        "no dt bias": changed("ssm_dt", np.zeros_like),
        "alpha ignored": changed("ssm_alpha", np.zeros_like),
        "beta ignored": changed("ssm_beta", np.zeros_like),
        "conv taps reversed": changed("ssm_conv1d", lambda w: w[:, ::-1]),
        "only the current conv tap": changed("ssm_conv1d", lambda w: w * [0, 0, 0, 1]),
        "ssm_norm plus one": changed("ssm_norm", lambda w: w + 1),
        "no q norm weight": changed("attn_q_norm", one),
        "no k norm weight": changed("attn_k_norm", one),
        "grouped value heads": Model(keys, weights, key_head_of=lambda v, heads, rep: v // rep),
        "rope over twice the dims": Model(keys | doubled("rope.dimension_count"), weights),
        "rope theta doubled": Model(keys | doubled("rope.freq_base"), weights),
        "subnormal scales flushed":
            changed("token_embd", lambda w: np.where(abs(w) < 2.0 ** -14, 0, w)),
    }
    if "prism.hadamard.version" in keys:
        out |= rotation_mistakes(keys, weights)
    return out


def relative(a, b):
    return float(abs(a - b).max() / abs(b).max())


def check_file(folder, name, entry, break_it):
    keys, decoded = numpy_qwen35.read(folder / f"{name}.gguf")
    weights = {tensor: value for tensor, (_, value) in decoded.items()}
    stored = np.fromfile(folder / entry["logits"], "<f4").reshape(-1, entry["vocab"])
    tokens, greedy = entry["tokens"], entry["greedy"]
    assert len(stored) == len(tokens) and len(keys["tokenizer.ggml.tokens"]) == entry["vocab"]
    full = Model(keys, weights).forward(tokens + greedy)
    error = relative(full[:len(tokens)], stored)
    steps = np.sort(full[len(tokens) - 1:-1], axis=1)
    gap = float((steps[:, -1] - steps[:, -2]).min() / abs(stored).max())
    assert error < TOLERANCE and gap > 1e-3
    assert full[len(tokens) - 1:-1].argmax(1).tolist() == greedy
    print(f"{name}: numpy {error:.1e}, greedy gap {gap:.3f} of the largest logit")
    if not break_it:
        return
    l2 = relative(Model(keys, weights, llama_l2=True).forward(tokens), stored)
    print(f"    the other L2 norm: moves logits by {l2:.1e}")
    for what, model in mistakes(keys, weights).items():
        moved = relative(model.forward(tokens), stored)
        print(f"    {what}: moves logits by {moved:.1e}")
        assert moved > (BARELY if what.startswith("subnormal") else NOTICED)


def main(folder):
    folder = pathlib.Path(folder)
    check_vectors(json.loads((folder.parent / "vectors.json").read_text()))
    seen = set()
    for name, entry in json.loads((folder / "qwen35.json").read_text()).items():
        check_file(folder, name, entry, entry["logits"] not in seen)
        seen.add(entry["logits"])


if __name__ == "__main__":
    main(sys.argv[1])
