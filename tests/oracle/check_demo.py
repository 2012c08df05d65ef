"""Checks what the demo model is trained and exported with; makes nothing that stays.

    check_demo.py WORK          (WORK/tokenizer.json must exist)

The gated delta rule of demo_delta.cc and its gradient against a float64 loop under autograd, and
a random demo model and its float twin against transformers, which reads it from the exported files.
"""
import pathlib
import sys
import tempfile

import torch

import eval_demo
import export_demo
from demo_delta import delta_rule
from demo_model import SHAPE, Demo, sign_vectors

DELTA = 1e-5   # float32 against float64, relative to the largest; seen: 3e-7
LOGITS = 1e-4  # float32 against float32 in another order; seen: 2e-6
HALF = 1e-2    # what rounding weights to fp16 may move logits by; seen: 3e-3


def relative(a, b):
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / b.abs().max())


def loop(q, k, v, decay, beta):
    """The recurrence as it is written down."""
    state, out = 0, []
    for t in range(q.shape[1]):
        key, query = k[:, t, :, None, :, None], q[:, t, :, None, :, None]
        state = state * decay[:, t, ..., None, None]
        delta = beta[:, t, ..., None] * (v[:, t] - (state * key).sum(-2))
        state = state + key * delta[..., None, :]
        out.append((state * query).sum(-2))
    return torch.stack(out, 1)


def check_delta():
    torch.manual_seed(0)
    batch, tokens, keys, rep, size = 2, 50, 3, 2, 32
    unit = lambda: torch.nn.functional.normalize(torch.randn(batch, tokens, keys, size), dim=-1)
    inputs = [unit(), unit(), torch.randn(batch, tokens, keys, rep, size),
              torch.rand(batch, tokens, keys, rep), torch.rand(batch, tokens, keys, rep)]
    gradient = torch.randn(batch, tokens, keys, rep, size)
    exact = [x.double().requires_grad_() for x in inputs]
    ours = [x.clone().requires_grad_() for x in inputs]
    expected, got = loop(*exact), delta_rule(*ours)
    expected.backward(gradient.double())
    got.backward(gradient)
    errors = [relative(got, expected)] + [relative(a.grad, b.grad) for a, b in zip(ours, exact)]
    print("delta rule: o, q, k, v, decay, beta differ by", " ".join(f"{e:.1e}" for e in errors))
    assert max(errors) < DELTA


def random_model(ternary):
    torch.manual_seed(3)
    model = Demo(SHAPE, ternary)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter *= torch.empty_like(parameter).uniform_(0.6, 1.4)
    return model


def check_export(work, folder, ternary):
    model = random_model(ternary)
    stored = export_demo.stored_tensors(model)
    dense = export_demo.normal_basis(SHAPE, stored, model.rotated, sign_vectors(SHAPE))
    tokens = torch.randint(0, SHAPE["vocab"], (1, 150))
    with torch.no_grad():
        expected = model.logits(model.dense(torch.tensor(1.0), torch.float32), tokens)
        for kind in ("PTQ1_0", "PQ2_0", "F16") if ternary else ("F16",):
            path = folder / f"{kind}.gguf"
            export_demo.write(path, work, model, dense if kind == "F16" else stored, kind)
            error = relative(eval_demo.load(path)(tokens).logits, expected)
            print(f"{kind}: transformers' logits differ by {error:.1e}")
            assert error < (HALF if kind == "F16" else LOGITS)


if __name__ == "__main__":
    check_delta()
    with tempfile.TemporaryDirectory() as folder:
        for ternary in (True, False):
            check_export(pathlib.Path(sys.argv[1]), pathlib.Path(folder), ternary)
