"""The input and the greedy continuation of a tiny model's fixture (imported by make_tiny*.py)."""
import zlib

import numpy as np
import torch

GREEDY = 16  # greedy continuation length


def pick_input(name, m, model, candidates):
    """Of `candidates` random inputs the one whose greedy continuation is the least ambiguous."""
    rng = np.random.default_rng(zlib.crc32(f"{name} input".encode()))
    first = rng.integers(3, m["vocab"], (candidates, m["n_tokens"]))
    ids = torch.tensor(first)
    gaps = torch.full((candidates,), float("inf"), dtype=torch.float64)
    for _ in range(GREEDY):
        best = model(ids, use_cache=False, logits_to_keep=1).logits[:, -1].topk(2)
        gaps = torch.minimum(gaps, best.values[:, 0] - best.values[:, 1])
        ids = torch.cat([ids, best.indices[:, :1]], dim=1)
    greedy = ids[:, m["n_tokens"]:]
    dull = torch.tensor([len(set(row.tolist())) < 6 for row in greedy])
    special = (greedy < 3).any(dim=1)  # no end of text inside the continuation
    keep = int(torch.where(dull | special, -1.0, gaps).argmax())
    return first[keep].tolist(), greedy[keep].tolist(), float(gaps[keep])
