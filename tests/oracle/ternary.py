"""Encodes trits with one fp16 scale per 128 weights (imported by tiny_qwen35.py).

The Python `gguf` package knows none of these types. A weight is a `Ternary`; its
values are trit * scale, exact in fp16.
"""
from dataclasses import dataclass

import numpy as np

GROUP = 128
TYPES = {"Q2_0": 42, "PQ2_0": 142, "PTQ1_0": 143}
SIZES = {42: (64, 18), 142: (128, 34), 143: (128, 28)}  # weights and bytes per block


@dataclass
class Ternary:
    trits: np.ndarray   # int8 [rows, width]
    scales: np.ndarray  # float16 [rows, width / 128]

    def dense(self):
        return self.trits * np.repeat(self.scales.astype(np.float64), GROUP, axis=1)


def random_ternary(rng, rows, width, gain):
    """Outputs of unit inputs have std `gain`; a third of the trits are zero."""
    trits = rng.choice([-1, 0, 1], (rows, width), p=[0.336, 0.328, 0.336]).astype(np.int8)
    unit = gain / np.sqrt(width * 0.672)
    scales = unit * rng.uniform(0.6, 1.4, (rows, width // GROUP))
    return Ternary(trits, scales.astype(np.float16))


def base3(digits, weights):
    value = (digits * np.array(weights)[:, None]).sum(axis=1)
    return ((value * 256 + 242) // 243).astype(np.uint8)


def encode(t, kind):
    """Rows of blocks, uint8 [rows, bytes per row]."""
    step = SIZES[TYPES[kind]][0]
    digits = t.trits.reshape(-1, step).astype(np.int64) + 1
    scales = np.repeat(t.scales.reshape(-1, 1), GROUP // step, axis=0).reshape(-1, 1)
    scales = scales.view(np.uint8)
    if kind == "PTQ1_0":
        five = [81, 27, 9, 3, 1]
        blocks = [base3(digits[:, :80].reshape(-1, 5, 16), five),
                  base3(digits[:, 80:120].reshape(-1, 5, 8), five),
                  base3(digits[:, 120:].reshape(-1, 4, 2), five[:4]), scales]
    else:
        fields = digits.reshape(-1, step // 4, 4) << np.array([0, 2, 4, 6])
        blocks = [scales, fields.sum(axis=2).astype(np.uint8)]
    return np.concatenate(blocks, axis=1).reshape(len(t.trits), -1)
