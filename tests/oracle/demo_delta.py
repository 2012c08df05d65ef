"""The gated delta rule for PyTorch on CPU, by demo_delta.cc (imported by demo_model.py)."""
import ctypes
import functools
import pathlib
import subprocess
import tempfile

import torch


@functools.cache
def library():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "demo_delta.so"
        subprocess.run(["g++", "-std=c++20", "-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared",
                        "-fPIC", pathlib.Path(__file__).with_suffix(".cc"), "-o", out], check=True)
        return ctypes.CDLL(str(out))


def call(function, v, tensors):
    batch, tokens, keys, rep, _ = v.shape
    assert all(t.is_contiguous() and t.dtype == torch.float32 for t in tensors)
    sizes = (ctypes.c_int64 * 4)(batch, tokens, keys, rep)
    function(sizes, *(ctypes.c_void_p(t.data_ptr()) for t in tensors))


class Delta(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, decay, beta):
        inputs = [x.contiguous() for x in (q, k, v, decay, beta)]
        ctx.save_for_backward(*inputs)
        out = torch.empty_like(inputs[2])
        call(library().delta_forward, v, [*inputs, out])
        return out

    @staticmethod
    def backward(ctx, gradient):
        inputs = ctx.saved_tensors
        outputs = [torch.zeros_like(x) for x in inputs]
        call(library().delta_backward, inputs[2], [*inputs, gradient.contiguous(), *outputs])
        return tuple(outputs)


@torch.compiler.disable
def delta_rule(q, k, v, decay, beta):
    """q k [B, T, K, 32], v [B, T, K, R, 32], decay beta [B, T, K, R], float: returns o like v."""
    return Delta.apply(q, k, v, decay, beta)
