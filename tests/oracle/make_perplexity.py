"""Makes perplexity.json: perplexities and KL divergences that `trine perplexity` must find.

Independent implementation: transformers rebuilt from the GGUF files (gguf_to_hf.py), in float64 for
the tiny models and in float32 for SmolLM2; log-softmax and statistics in numpy float64, by the
formulas of llama.cpp's perplexity tool. Texts: this repository's LICENSE, and the GPL as Debian's
base-files has it.
Remake: python3 make_perplexity.py ../data/tiny ../../LICENSE SMOLLM2.gguf \\
            /usr/share/common-licenses/GPL-3 ../data/perplexity.json
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import torch

import gguf_to_hf
import gguf_tokenizer
from double import float64_everywhere

TINY_CONTEXT, TINY_CHUNKS = 48, 5
SMOL_CONTEXT, SMOL_CHUNKS = 512, 8
PERCENTS = [0.1, 1, 5, 10, 50, 90, 95, 99, 99.9]


def cut(ids, bos, context, chunks):
    """[chunks, context] inputs and what they were before BOS took the first place."""
    if bos is not None:
        ids = [bos] + ids
    assert len(ids) >= 2 * context
    targets = np.array(ids[:chunks * context]).reshape(chunks, context)
    inputs = targets.copy()
    if bos is not None:
        inputs[:, 0] = bos
    return inputs, targets


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def score(model, inputs, targets):
    """(nll [rows], log-probabilities [rows, vocab]) of the later half of every window."""
    first = inputs.shape[1] // 2
    with torch.no_grad():
        logits = [model(torch.tensor(row[None])).logits[0].double().numpy() for row in inputs]
    logs = np.concatenate([log_softmax(rows[first:-1]) for rows in logits])
    wanted = targets[:, first + 1:].reshape(-1)
    return -logs[np.arange(len(logs)), wanted], logs


def mean_and_error(values):
    n = len(values)
    mean = values.sum() / n
    return mean, np.sqrt(((values * values).sum() / n - mean * mean) / (n - 1))


def perplexity(nll):
    mean, error = mean_and_error(nll)
    return {"perplexity": np.exp(mean), "stderr": np.exp(mean) * error, "tokens": len(nll)}


def compare(nll, logs, base_nll, base_logs):
    n = len(nll)
    (mean, error), (base, base_error) = mean_and_error(nll), mean_and_error(base_nll)
    covariance = ((nll * base_nll).sum() / n - mean * base) / (n - 1)
    ratio_error = np.sqrt(error ** 2 + base_error ** 2 - 2 * covariance)
    kl = (np.exp(base_logs) * (base_logs - logs)).sum(-1)
    same = (logs.argmax(-1) == base_logs.argmax(-1)).mean()
    delta = np.exp(-nll) - np.exp(-base_nll)
    square, square_error = mean_and_error(delta ** 2)
    out = perplexity(nll)
    out["mean_kl"], out["mean_kl_stderr"] = mean_and_error(kl)
    out["max_kl"] = kl.max()
    out["kl_percentiles"] = {str(p): np.percentile(kl, p) for p in PERCENTS}
    out["top1_agreement"] = same
    out["top1_agreement_stderr"] = np.sqrt(same * (1 - same) / (n - 1))
    out["ppl_ratio"] = np.exp(mean - base)
    out["ppl_ratio_stderr"] = np.exp(mean - base) * ratio_error
    out["reference_perplexity"] = np.exp(base)
    out["reference_perplexity_stderr"] = np.exp(base) * base_error
    out["mean_delta_p"], out["mean_delta_p_stderr"] = mean_and_error(delta)
    out["rms_delta_p"] = np.sqrt(square)
    out["rms_delta_p_stderr"] = 0.5 / np.sqrt(square) * square_error
    return out


def tiny(folder, text):
    scores, cases = {}, []
    for name, bos in (("llama_f32", None), ("qwen3_f32", None), ("llama_f32", 0)):
        keys, weights = gguf_to_hf.read(folder / f"{name}.gguf")
        ids = gguf_tokenizer.build(keys.fields).encode(text).ids
        with float64_everywhere():
            model = gguf_to_hf.build(keys, weights, torch.float64)
            nll, logs = score(model, *cut(ids, bos, TINY_CONTEXT, TINY_CHUNKS))
        cases.append({"model": name, "bos": bos is not None, **perplexity(nll)})
        scores.setdefault(name, (nll, logs))
    return {"context": TINY_CONTEXT, "chunks": TINY_CHUNKS, "cases": cases,
            "kl": {"reference": "llama_f32", "model": "qwen3_f32",
                   **compare(*scores["qwen3_f32"], *scores["llama_f32"])}}


def smol(path, text_path):
    data = pathlib.Path(text_path).read_bytes()
    keys, weights = gguf_to_hf.read(path)
    ids = gguf_tokenizer.build(keys.fields).encode(data.decode().removesuffix("\n")).ids
    model = gguf_to_hf.build(keys, weights, torch.float32)
    nll, _ = score(model, *cut(ids, None, SMOL_CONTEXT, SMOL_CHUNKS))
    rows = len(nll) // SMOL_CHUNKS
    return {"text": str(text_path), "text_sha256": hashlib.sha256(data).hexdigest(),
            "sha256": hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest(),
            "context": SMOL_CONTEXT, "tokens": len(ids),
            "perplexity": [perplexity(nll[:rows * n])["perplexity"]
                           for n in range(1, SMOL_CHUNKS + 1)]}


def main(tiny_folder, licence, smol_path, gpl, out):
    torch.set_num_threads(1)
    text = pathlib.Path(licence).read_text().removesuffix("\n")
    found = {"tiny": tiny(pathlib.Path(tiny_folder), text), "smollm2": smol(smol_path, gpl)}
    pathlib.Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:6])
