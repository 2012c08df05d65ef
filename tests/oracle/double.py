"""Runs transformers models in true float64.

Even a float64 model of transformers drops to float32 inside RMSNorm, softmax and
rope (they name torch.float32 themselves).  Inside `float64_everywhere()` those
names mean float64, so the reference logits carry no float32 rounding.
Imported by make_tiny.py and gguf_to_hf.py; makes nothing itself.
"""
import contextlib
from unittest import mock

import torch


@contextlib.contextmanager
def float64_everywhere():
    with mock.patch.object(torch, "float32", torch.float64), \
         mock.patch.object(torch, "float", torch.float64), \
         mock.patch.object(torch.Tensor, "float", torch.Tensor.double), \
         torch.no_grad():
        yield
