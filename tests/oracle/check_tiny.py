"""Checks the tiny fixtures from the files alone; makes nothing.

For each tiny/NAME.gguf it compares tiny/NAME.logits with (a) transformers rebuilt
from the GGUF and (b) a plain numpy pass, replays the greedy tokens, and breaks the
model in several ways to see that the logits would notice.
Run: python3 check_tiny.py tests/data/tiny
"""
import json
import pathlib
import sys

import numpy as np
import torch
from gguf import GGUFReader

import gguf_to_hf
import numpy_forward
from double import float64_everywhere

TOLERANCE = 1e-6  # largest error, relative to the largest logit


class Changed:
    """Keys with some values replaced."""

    def __init__(self, keys, changes):
        self.keys, self.changes = keys, changes
        self.arch = changes.pop("arch", keys.arch)

    def __getitem__(self, key):
        return self.changes[key] if key in self.changes else self.keys[key]

    def get(self, key, default):
        try:
            return self[key]
        except KeyError:
            return default


def mutations(keys, weights):
    """Name -> (keys, weights) of models with one thing done wrong."""
    out = {"eps ignored": (Changed(keys, {"attention.layer_norm_rms_epsilon": 0.0}), weights),
           "rope pairing": (Changed(keys, {"arch": "qwen2" if keys.arch == "llama" else "llama"}),
                            weights)}
    # The value that makes a bias, or a norm or rope divisor, do nothing.
    neutral = lambda word: {k: v * 0 + (".bias" not in k) if word in k else v
                            for k, v in weights.items()}
    if keys.get("rope.scaling.type", None):
        out["rope scaling ignored"] = (Changed(keys, {"rope.scaling.type": "none"}), weights)
    if keys.get("rope.scaling.type", None) == "yarn":
        undo = 1 / (1 + 0.1 * np.log(keys["rope.scaling.factor"]))
        out["yarn magnitude"] = (Changed(keys, {"rope.scaling.attn_factor": undo}), weights)
        out["yarn as linear"] = (Changed(keys, {"rope.scaling.type": "linear"}), weights)
    for word in ("rope_freqs", "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias",
                 "q_norm", "k_norm"):
        if any(word in name for name in weights):
            out[f"without {word}"] = (keys, neutral(word))
    return out


def relative(a, b):
    return float(abs(a - b).max() / abs(b).max())


def check_model(folder, name, entry):
    keys, weights = gguf_to_hf.read(folder / f"{name}.gguf")
    stored = np.fromfile(folder / f"{name}.logits", "<f4").reshape(-1, entry["vocab"])
    tokens, greedy = entry["tokens"], entry["greedy"]
    assert len(stored) == len(tokens) and len(keys["tokenizer.ggml.tokens"]) == entry["vocab"]
    with float64_everywhere():
        model = gguf_to_hf.build(keys, weights, torch.float64)
        full = model(torch.tensor([tokens + greedy])).logits[0].numpy()
    weights = {k: v.astype(np.float64) for k, v in weights.items()}
    stats = []
    plain = numpy_forward.forward(keys, weights, tokens, stats)
    errors = relative(full[:len(tokens)], stored), relative(plain, stored)
    steps = full[len(tokens) - 1:-1]
    top = np.sort(steps, axis=1)
    gap = float((top[:, -1] - top[:, -2]).min())
    assert max(errors) < TOLERANCE and gap > 1e-3
    assert steps.argmax(1).tolist() == greedy
    print(f"{name}: transformers {errors[0]:.1e}, numpy {errors[1]:.1e}, greedy gap {gap:.3f}, "
          f"std {stored.std():.2f}, attention peak {np.median(stats):.1f} x uniform")
    for what, (bad_keys, bad_weights) in mutations(keys, weights).items():
        moved = relative(numpy_forward.forward(bad_keys, bad_weights, tokens), stored)
        print(f"    {what}: moves logits by {moved:.1e}")
        assert moved > (1e-7 if what.startswith("eps") else 1e-2)


def check_split(folder):
    """The parts hold exactly the tensors of llama_f32."""
    whole = {t.name: t for t in GGUFReader(folder / "llama_f32.gguf").tensors}
    parts = [GGUFReader(path) for path in sorted(folder.glob("llama_split-*.gguf"))]
    seen = [t for part in parts for t in part.tensors]
    assert sorted(t.name for t in seen) == sorted(whole)
    assert all(np.array_equal(t.data, whole[t.name].data) for t in seen)
    for number, part in enumerate(parts):
        value = lambda key: part.fields[key].contents()
        assert (value("split.no"), value("split.count"), value("split.tensors.count")) \
            == (number, len(parts), len(whole))
        assert ("llama.block_count" in part.fields) == (number == 0)
    print(f"llama_split: {len(parts)} parts, {len(seen)} tensors, same as llama_f32")


def main(folder):
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    for name, entry in json.loads((folder / "tiny.json").read_text()).items():
        check_model(folder, name, entry)
    check_split(folder)


if __name__ == "__main__":
    main(sys.argv[1])
