"""The blockwise Hadamard rotation of ternary checkpoints (imported by tiny_qwen35.py).

A stored weight meets its input x as W @ H(s * x), so the dense weight is W H diag(s).
H is the normalised Sylvester-Walsh-Hadamard matrix, applied to blocks of the last axis.
"""
import numpy as np


def blockwise(x, block):
    """H applied to every block of the last axis, by butterflies."""
    out = x.reshape(-1, block).astype(np.float64)
    half = 1
    while half < block:
        pairs = out.reshape(len(out), -1, 2, half)
        out = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        out = out.reshape(len(out), block)
        half *= 2
    return (out / np.sqrt(block)).reshape(x.shape)


def unrotate(stored, signs, block):
    """The dense weight (or embedding rows) that the stored rows stand for."""
    return blockwise(stored, block) * signs
