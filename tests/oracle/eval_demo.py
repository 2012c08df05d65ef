"""Evaluates a demo model from its GGUF file alone, by transformers in float32.

    eval_demo.py WORK FILE.gguf [--samples]

Prints bits per byte and perplexity of WORK/heldout.u16 (every token, after 256 to 512 tokens of
context), and perplexity of the file's own text by llama.cpp's definition: windows of 512 tokens,
the second half of each scored; of its first WINDOWS too, which cli_demo_test.py runs. --samples writes on after a few prompts at temperature 0.8.
"""
import argparse
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import numpy_qwen35
from demo_model import SHAPE
from demo_tokens import documents
from double import float64_everywhere
from export_demo import normal_basis
from tiny_qwen35 import hf_model

WINDOW, BATCH, WINDOWS = 512, 8, 12
PROMPTS = ["Emma was", "It was a dark evening, and", "In the beginning", "And he said unto them,",
           "bicycle (noun):", "The server", "A function is", "She looked at the letter and"]


def load(path):
    """The transformers model of a GGUF file."""
    keys, decoded = numpy_qwen35.read(path)
    at = "prism.hadamard."
    rotated = keys.get(f"{at}weight_names", []) + keys.get(f"{at}inverse_weight_names", [])
    assert not rotated or keys[f"{at}gdn_v_grouped"] and keys[f"{at}block_size"] == SHAPE["block"]
    signs, start = {}, 0
    for width in keys.get(f"{at}sign_widths", []):
        signs[width] = np.array(keys[f"{at}sign_values"][start:start + width])
        start += width
    values = {name: value for name, (_, value) in decoded.items()}
    dense = normal_basis(SHAPE, values, rotated, signs)
    with float64_everywhere():
        model = hf_model(SHAPE, dense)
    return model.float()


def losses(model, windows):
    """Nats of tokens 1.. of every window: [windows, tokens - 1]."""
    out = []
    with torch.no_grad():
        for i in range(0, len(windows), BATCH):
            part = torch.tensor(windows[i:i + BATCH].astype(np.int64))
            logits = model(part[:, :-1], use_cache=False).logits.transpose(1, 2)
            out.append(F.cross_entropy(logits, part[:, 1:], reduction="none").numpy())
    return np.concatenate(out)


def bits(model, ids):
    """Bits of all ids, each after WINDOW / 2 to WINDOW others where there are so many; the first
    follows the end of a document."""
    half = WINDOW // 2
    count = -(-len(ids) // half) - 1
    stream = np.concatenate([[0], ids, np.zeros(half * (count + 1) - len(ids), ids.dtype)])
    nats = losses(model, np.stack([stream[i * half:i * half + WINDOW + 1] for i in range(count)]))
    flat = np.concatenate([nats[0, :half], nats[:, half:].reshape(-1)])
    return flat[:len(ids)].sum() / np.log(2)


def perplexity(model, ids):
    """As llama-perplexity: windows side by side, what follows the first half of each is scored."""
    windows = ids[:len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
    return np.exp(losses(model, windows)[:, WINDOW // 2:].mean())


def sample(model, tokenizer, prompt):
    torch.manual_seed(7)
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    out = model.generate(ids, do_sample=True, temperature=0.8, top_k=40, top_p=0.95,
                         max_new_tokens=80, eos_token_id=0, pad_token_id=0)
    return tokenizer.decode(out[0].tolist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--samples", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.file)
    tokenizer = Tokenizer.from_file(str(options.work / "tokenizer.json"))
    ids = np.fromfile(options.work / "heldout.u16", "<u2")
    texts = documents(options.work / "heldout.txt")
    total, size = bits(model, ids), sum(len(text.encode()) for text in texts)
    print(f"held-out: {total / size:.4f} bits per byte, perplexity {2 ** (total / len(ids)):.3f}")
    plain = np.array(tokenizer.encode("\n\n".join(texts) + "\n").ids)
    print(f"demo-heldout.txt: perplexity {perplexity(model, plain):.4f} by llama.cpp's definition, "
          f"{len(plain)} tokens; first {WINDOWS} windows "
          f"{perplexity(model, plain[:WINDOWS * WINDOW]):.4f}")
    for prompt in PROMPTS if options.samples else []:
        print(f"--- {sample(model, tokenizer, prompt)}")


if __name__ == "__main__":
    main()
