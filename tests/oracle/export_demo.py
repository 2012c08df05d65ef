"""Writes a trained demo model as GGUF files.

    export_demo.py WORK OUT [--float]

reads WORK/ternary/state.pt (train_demo.py) and writes OUT/demo-PTQ1_0.gguf, OUT/demo-PQ2_0.gguf
and OUT/demo-F16.gguf: the first two hold the same trits in the rotated basis, the last what they
mean in the normal basis, without rotation keys. --float writes OUT/demo-float-F16.gguf from the
float twin. OUT/demo-heldout.txt is the held-out text, its documents joined by empty lines.
"""
import argparse
import hashlib
import json
import pathlib

import numpy as np
import torch
from gguf import GGUFWriter

from demo_model import SHAPE, Demo, sign_vectors, trits_and_scales
from demo_tokens import SPECIALS, documents
from hadamard import unrotate
from qwen35_file import write_model, write_rotation, write_tensors
from ternary import Ternary
from tiny_qwen35 import grouped_of_tiled, rotated_names

# A completion model: messages are text to go on with.
TEMPLATE = ("{%- for message in messages %}{{ message['content'] }}"
            "{%- if not loop.last %}{{ '\\n\\n' }}{%- endif %}{%- endfor %}")
DESCRIPTION = ("A tiny ternary model with the anatomy of Ternary-Bonsai-2, trained from scratch on "
               "free English prose to show and test Trine. It writes sentences and knows nothing.")
DATASETS = {"r-cran-janeaustenr": "public domain", "bible-kjv-text": "public domain",
            "wordnet-base": "WordNet 3.0 licence", "postgresql-doc-15": "PostgreSQL licence",
            "python3.11-doc": "PSF-2.0", "rust-doc": "MIT OR Apache-2.0"}


def tiled(m, name, value):
    """`value` with its value heads in the tiled order of GGUF; ssm_out keeps its columns."""
    keys, rep, state = m["linear"]
    order = grouped_of_tiled(m)
    if any(role in name for role in ("ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt")):
        return value[order[::state] // state]
    if "attn_gate" in name:
        return value[order]
    if "attn_qkv" in name or "ssm_conv1d" in name:
        behind = 2 * keys * state  # q and k rows come first
        return value[np.concatenate([np.arange(behind), behind + order])]
    return value


def stored_tensors(model):
    """GGUF name -> Ternary (rotated matrices) or array, in the order of the file."""
    out = {}
    for key, parameter in model.tensors.items():
        name = key.replace(":", ".")
        value = tiled(model.m, name, parameter.detach())
        if name in model.rotated and model.ternary:
            trits, scales = trits_and_scales(value)
            out[name] = Ternary(trits.flatten(-2).numpy().astype(np.int8),
                                scales.squeeze(-1).numpy().astype(np.float16))
        else:
            out[name] = (-value.exp() if name.endswith("ssm_a") else value).numpy()
    return out


def normal_basis(m, values, rotated, signs):
    """What stored values mean without a rotation: float64, everything tiled."""
    out = {}
    for name, value in values.items():
        value = value.dense() if isinstance(value, Ternary) else value.astype(np.float64)
        if name in rotated:
            value = unrotate(value, signs[value.shape[1]], m["block"])
            if "ssm_out" in name:
                value = value[:, grouped_of_tiled(m)]
        out[name] = value
    return out


def write_tokenizer(writer, work):
    data = json.loads((work / "tokenizer.json").read_text())
    vocab = data["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(sorted(vocab, key=vocab.get))
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(vocab) - len(SPECIALS)))
    writer.add_token_merges([" ".join(pair) for pair in data["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def write_provenance(writer):
    writer.add_name("Trine demo")
    writer.add_description(DESCRIPTION)
    writer.add_size_label("12M")
    writer.add_license("Apache-2.0")
    writer.add_languages(["en"])
    writer.add_tags(["text-generation", "ternary", "demo"])
    writer.add_dataset_count(len(DATASETS))
    for i, (package, licence) in enumerate(DATASETS.items()):
        writer.add_dataset_name(i, package)
        writer.add_dataset_organization(i, "Debian 12")
        writer.add_dataset_description(i, licence)
    writer.add_sampling_temp(0.8)
    writer.add_sampling_top_k(40)
    writer.add_sampling_top_p(0.95)


def write(path, work, model, tensors, kind):
    writer = GGUFWriter(path, "qwen35")
    write_provenance(writer)
    write_model(writer, model.m, kind)
    if kind != "F16":
        write_rotation(writer, model.m, rotated_names(tensors), sign_vectors(model.m), True)
    write_tokenizer(writer, work)
    write_tensors(writer, tensors, kind)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{path.name}: {path.stat().st_size} bytes, sha256 {digest}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--float", action="store_true")
    options = parser.parse_args()
    work, out = options.work, options.out
    out.mkdir(parents=True, exist_ok=True)
    state = torch.load(work / ("float" if options.float else "ternary") / "state.pt")
    model = Demo(SHAPE, not options.float)
    model.load_state_dict(state["model"])
    stored = stored_tensors(model)
    dense = normal_basis(SHAPE, stored, model.rotated, sign_vectors(SHAPE))
    if options.float:
        write(out / "demo-float-F16.gguf", work, model, dense, "F16")
        return
    for kind in ("PTQ1_0", "PQ2_0"):
        write(out / f"demo-{kind}.gguf", work, model, stored, kind)
    write(out / "demo-F16.gguf", work, model, dense, "F16")
    (out / "demo-heldout.txt").write_text("\n\n".join(documents(work / "heldout.txt")) + "\n")


if __name__ == "__main__":
    main()
