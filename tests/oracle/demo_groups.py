"""What integer activations cost the demo model, by group size and basis.

    demo_groups.py ../data/demo

Transformers in float32 over the dense weights that the file stands for (eval_demo.py). The input of
every ternary matrix, the head included, is rounded to integers with one scale a group, and back:
rotated as the format rotates it, as Trine does, or as it is, as a file without rotation would have
to. Perplexity as eval_demo.py defines it, of the first WINDOWS windows and of all; the rest against
the same network without rounding (its FP16 expansion); natural logarithms. About 15 minutes.
"""
import pathlib
import sys
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE

import numpy_qwen35
from demo_tokens import QWEN35
from eval_demo import BATCH, WINDOW, WINDOWS, load
from tiny_qwen35 import HF_NAMES


class Rounding(NamedTuple):
    most: int  # the largest integer
    group: int
    rotated: bool


INT8, INT16 = 127, 127 * 256 + 127  # as kernels/cpu/cpu_kernels.h
CASES = {
    "none": None,
    "int8, groups of 128, rotated": Rounding(INT8, 128, True),
    "int8, groups of 32, rotated": Rounding(INT8, 32, True),
    "int8, groups of 128, not rotated": Rounding(INT8, 128, False),
    "int8, groups of 32, not rotated": Rounding(INT8, 32, False),
    "int16, groups of 32, rotated": Rounding(INT16, 32, True),
}


def rounded(x, most, group):
    """As QuantiseGroup in kernels/cpu/rowwise.h; halves go to the even integer."""
    groups = x.unflatten(-1, (-1, group))
    largest = groups.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 0, most / largest, 0)
    return ((groups * inverse).round() * (largest / most)).flatten(-2)


def module_of(model, name):
    """The matrix of a GGUF name; the tied embedding is one where it is the head."""
    if name == "token_embd.weight":
        return model.lm_head
    _, layer, role, _ = name.split(".")
    return model.get_submodule(f"model.layers.{layer}.{HF_NAMES[role]}")


class Inputs:
    """The inputs of a model's ternary matrices, rounded as `rounding` says. Value heads are in
    grouped order here and in the file's rotated ssm_out."""

    def __init__(self, model, rotation):
        self.rounding, self.block = None, rotation.block
        self.matrix = torch.tensor(rotation.matrix, dtype=torch.float32)
        self.signs = {width: torch.tensor(signs, dtype=torch.float32)
                      for width, signs in rotation.signs.items()}
        self.names = sorted(rotation.listed | rotation.inverse_listed)
        for name in self.names:
            module_of(model, name).register_forward_pre_hook(lambda _, inputs: self.round(*inputs))

    def blocks(self, x):
        return (x.unflatten(-1, (-1, self.block)) @ self.matrix).flatten(-2)

    def round(self, x):
        if self.rounding is None:
            return x
        most, group, rotated = self.rounding
        if not rotated:
            return rounded(x, most, group)
        signs = self.signs[x.shape[-1]]
        return signs * self.blocks(rounded(self.blocks(signs * x), most, group))


def token_ids(keys, text):
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN35), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return np.array(tokenizer.encode(text).ids)


def scored(model, part):
    """Log-probabilities [windows, WINDOW / 2 - 1, vocabulary] of what is scored, in float64."""
    with torch.no_grad():
        logits = model(part[:, :-1], use_cache=False).logits[:, WINDOW // 2:]
    return logits.double().log_softmax(-1)


def measure(model, inputs, windows):
    """Case -> [3, windows, WINDOW / 2 - 1]: nats of the text, KL divergence, same top token."""
    out = {name: [] for name in CASES}
    for i in range(0, len(windows), BATCH):
        part = torch.tensor(windows[i:i + BATCH])
        targets = part[:, WINDOW // 2 + 1:, None]
        inputs.rounding = None
        reference = scored(model, part)
        for name, inputs.rounding in CASES.items():
            logs = reference if inputs.rounding is None else scored(model, part)
            out[name].append(torch.stack([
                -logs.gather(-1, targets).squeeze(-1),
                (reference.exp() * (reference - logs)).sum(-1),
                (logs.argmax(-1) == reference.argmax(-1)).double()]).numpy())
        print(f"{i + len(part)} of {len(windows)} windows", file=sys.stderr)
    return {name: np.concatenate(parts, axis=1) for name, parts in out.items()}


def print_table(found, count):
    """The ratio with its standard error, as of tokens that are independent."""
    print(f"\n| activations, {count} windows | perplexity | ratio | mean KL | largest | same top |")
    print("|---|---|---|---|---|---|")
    base = found["none"][0, :count]
    for name, (nats, kl, same) in ((name, part[:, :count]) for name, part in found.items()):
        worse = nats - base
        print(f"| {name} | {np.exp(nats.mean()):.4f} "
              f"| {np.exp(worse.mean()):.5f} ± {worse.std() / worse.size ** 0.5:.5f} "
              f"| {kl.mean():.1e} | {kl.max():.1e} | {100 * same.mean():.2f} % |")


def main(folder):
    torch.set_num_threads(1)
    path = pathlib.Path(folder) / "demo-PTQ1_0.gguf"
    keys, _ = numpy_qwen35.read(path)
    model = load(path)
    inputs = Inputs(model, numpy_qwen35.Rotation(keys))
    ids = token_ids(keys, (path.parent / "heldout.txt").read_text())
    windows = ids[:len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
    print(f"{len(inputs.names)} ternary matrices, {len(ids)} tokens, {len(windows)} windows")
    found = measure(model, inputs, windows)
    for count in (WINDOWS, len(windows)):
        print_table(found, count)


if __name__ == "__main__":
    main(sys.argv[1])
