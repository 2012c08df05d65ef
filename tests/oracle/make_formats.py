"""Makes formats/NAME.bin (encoded blocks) and NAME.f32 (their float32 values).

Independent implementation: gguf.quants.quantize / dequantize of the Python `gguf`
package.  Half of the blocks are random bytes with sane scales (one subnormal,
some negative), the other half real quantised gaussians where gguf can quantise.
The ternary formats hold noisy multiples of -1, 0 and 1 instead, all quantised by gguf.
Remake: python3 make_formats.py tests/data/formats
"""
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

# name: (elements per block, bytes per block, byte offsets of the fp16 scales)
BLOCKS = {
    "Q8_0": (32, 34, [0]),
    "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]),
    "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
    "TQ1_0": (256, 54, [52]),
    "TQ2_0": (256, 66, [64]),
}
TERNARY = ("TQ1_0", "TQ2_0")
QUANTISABLE = ("Q8_0", "Q4_0", "Q4_1")
SUBNORMAL = np.float16(1.1e-5)


def random_blocks(rng, name, count):
    """Random bytes, with every fp16 scale replaced by a sane one."""
    _, size, scale_at = BLOCKS[name]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scale_at:
        scales = rng.uniform(0.001, 0.1, count).astype(np.float16)
        scales[1::3] *= -1
        scales[0] = SUBNORMAL
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks.reshape(-1)


def ternary_blocks(rng, name, count):
    """Quantised trits with noise; the first scale is subnormal and the second zero."""
    trits = rng.integers(-1, 2, (count, BLOCKS[name][0])) + rng.normal(0, 0.1, (count, 256))
    scales = rng.uniform(0.001, 0.1, (count, 1))
    scales[:2, 0] = SUBNORMAL, 0
    return quantize((trits * scales).astype(np.float32), T[name]).reshape(-1)


def block_format(rng, name):
    if name in TERNARY:
        return ternary_blocks(rng, name, 12)
    elements = BLOCKS[name][0]
    parts = [random_blocks(rng, name, 8)]
    if name in QUANTISABLE:
        gaussian = rng.standard_normal(8 * elements).astype(np.float32)
        gaussian[:elements] = 0  # an all-zero block has scale 0
        parts.append(quantize(gaussian, T[name]).reshape(-1))
    else:
        parts.append(random_blocks(rng, name, 4))
    return np.concatenate(parts)


def half_format(rng, name):
    """Random finite 16-bit patterns plus the edges of the format."""
    exponent = 0x7C00 if name == "F16" else 0x7F80
    bits = rng.integers(0, 65536, 4096, dtype=np.uint16)
    bits = bits[(bits & exponent) != exponent][:480]
    edges = [0, 0x8000, 1, 0x8001, exponent - 1, 0x8000 | (exponent - 1)]
    gaussian = rng.standard_normal(512 - 480 - len(edges)).astype(np.float32)
    gaussian = quantize(gaussian, T[name]).view(np.uint16)
    bits = np.concatenate([bits, np.array(edges, np.uint16), gaussian])
    return bits.view(np.uint8)


def main(out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(["F16", "BF16", *BLOCKS]):
        rng = np.random.default_rng(1000 + seed)
        data = block_format(rng, name) if name in BLOCKS else half_format(rng, name)
        values = dequantize(data, T[name]).astype("<f4")
        assert np.isfinite(values).all() and values.size >= 512
        (out / f"{name}.bin").write_bytes(data.tobytes())
        (out / f"{name}.f32").write_bytes(values.tobytes())
        print(f"{name}: {values.size} values, {data.size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
