"""The gated delta rule for PyTorch on CPU, by demo_delta.cc (imported by demo_model.py)."""
import ctypes
import functools
import pathlib
import subprocess
import tempfile

import torch
from torch import Tensor, library as ops


@functools.cache
def library():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "demo_delta.so"
        source = pathlib.Path(__file__).with_suffix(".cc")
        subprocess.run(["g++", "-std=c++20", "-O3", "-march=native", "-ffast-math", "-fopenmp",
                        "-shared", "-fPIC", source, "-o", out], check=True)
        return ctypes.CDLL(str(out))


def call(function, v, tensors):
    batch, tokens, keys, rep, _ = v.shape
    assert all(t.is_contiguous() and t.dtype == torch.float32 for t in tensors)
    sizes = (ctypes.c_int64 * 4)(batch, tokens, keys, rep)
    function(sizes, *(ctypes.c_void_p(t.data_ptr()) for t in tensors))


@ops.custom_op("demo::delta_rule", mutates_args=())
def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """q k [B, T, K, 32], v [B, T, K, R, 32], decay beta [B, T, K, R], float: returns o like v."""
    inputs = [x.contiguous() for x in (q, k, v, decay, beta)]
    out = torch.empty_like(inputs[2])
    call(library().delta_forward, v, [*inputs, out])
    return out


@ops.custom_op("demo::delta_gradient", mutates_args=())
def delta_gradient(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor,
                   d_out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    inputs = [x.contiguous() for x in (q, k, v, decay, beta)]
    outputs = tuple(torch.zeros_like(x) for x in inputs)
    call(library().delta_backward, v, [*inputs, d_out.contiguous(), *outputs])
    return outputs


@delta_rule.register_fake
def _(q, k, v, decay, beta):
    return v.new_empty(v.shape)


@delta_gradient.register_fake
def _(*inputs):
    return tuple(x.new_empty(x.shape) for x in inputs[:5])


delta_rule.register_autograd(
    lambda ctx, d_out: delta_gradient(*ctx.saved_tensors, d_out),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
