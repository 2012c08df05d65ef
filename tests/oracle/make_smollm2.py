"""Makes smollm2.json: greedy continuations of SmolLM2-135M-Instruct (Q4_1 GGUF).

Independent implementation: transformers LlamaForCausalLM in float32 over the weights
decoded by the Python `gguf` package; ids by HF `tokenizers`.  Of ten candidate prompts
of each kind, the four with the least ambiguous continuations are kept.
Remake: python3 make_smollm2.py MODEL.gguf tests/data/smollm2.json
"""
import base64
import hashlib
import json
import sys

import jinja2
import torch

import gguf_to_hf
import gguf_tokenizer

STEPS = 64
KEEP = 4
HEAD = 2048  # logits of prompt 0 that are recorded
SMALLEST_GAP = 2e-3

CHAT = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List five fruits and one fact about each.",
    "Translate to Spanish: I would like a glass of water.",
    "How do I reverse a string in Python?",
    "Give me a recipe for pancakes.",
    "What is 17 plus 25? Show the steps.",
    "Who was Marie Curie?",
    "Name three planets and describe them briefly.",
]
PLAIN = [
    "Once upon a time, in a small village by the river,",
    "The three most important things to remember when learning to cook are",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Water boils at 100 degrees Celsius, and ice melts at",
    "The history of the Roman Empire begins",
    "Photosynthesis is the process by which",
    "1, 2, 3, 4, 5, 6, 7,",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, the first humans walked on the Moon. The mission",
    "A computer program is a list of instructions that",
]


def chat_text(template, question):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        messages=[{"role": "user", "content": question}], add_generation_prompt=True)


@torch.no_grad()
def continue_greedily(model, ids):
    """Returns (STEPS ids, smallest gap between the two best logits, first logits)."""
    greedy, gaps, cache, first = [], [], None, None
    step = torch.tensor([ids])
    for _ in range(STEPS):
        out = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = out.past_key_values, out.logits[0, -1]
        first = logits if first is None else first
        best = logits.topk(2)
        gaps.append(float(best.values[0] - best.values[1]))
        greedy.append(int(best.indices[0]))
        step = best.indices[:1].reshape(1, 1)
    return greedy, min(gaps), first


def best_prompts(model, tokenizer, texts):
    """The KEEP entries with the widest smallest gap, in the order of `texts`."""
    entries = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        greedy, gap, first = continue_greedily(model, ids)
        print(f"gap {gap:.4f} {len(ids)} ids {text[-60:]!r} -> {tokenizer.decode(greedy)[:70]!r}")
        entries.append(({"text": text, "ids": ids, "greedy": greedy,
                         "min_gap": round(gap, 6)}, first))
    chosen = sorted(entries, key=lambda entry: -entry[0]["min_gap"])[:KEEP]
    assert all(entry["min_gap"] > SMALLEST_GAP for entry, _ in chosen)
    return [entry for entry in entries if any(entry is pick for pick in chosen)]


def main(path, out):
    torch.set_num_threads(1)
    keys, weights = gguf_to_hf.read(path)
    tokenizer = gguf_tokenizer.build(keys.fields)
    template = keys["tokenizer.chat_template"]
    model = gguf_to_hf.build(keys, weights, torch.float32)
    chat = [chat_text(template, question) for question in CHAT]
    picked = best_prompts(model, tokenizer, chat) + best_prompts(model, tokenizer, PLAIN)
    head = picked[0][1][:HEAD].numpy().astype("<f4").tobytes()
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    prompts = ",\n".join(json.dumps(entry) for entry, _ in picked)
    with open(out, "w") as file:
        file.write(f'{{"sha256": "{digest}",\n"prompts": [\n{prompts}\n],\n'
                   f'"logits_head": "{base64.b64encode(head).decode()}"}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:3])
