"""Makes smollm2_tokenizer.json: [[text, [ids]], ...] for SmolLM2's tokenizer.

Independent implementation: HF `tokenizers`, built from the vocabulary and merges of
the GGUF file; special tokens in the text are parsed.
Remake: python3 make_tokenizer.py MODEL.gguf tests/data/smollm2_tokenizer.json
"""
import json
import sys

from gguf import GGUFReader

import gguf_tokenizer
from tokenizer_texts import ALL


def main(path, out):
    tokenizer = gguf_tokenizer.build(GGUFReader(path).fields)
    lossy = []
    lines = []
    for text in ALL:
        ids = tokenizer.encode(text).ids
        lines.append(json.dumps([text, ids]))
        if tokenizer.decode(ids, skip_special_tokens=False) != text:
            lossy.append(text)
    assert len(set(ALL)) == len(ALL)
    with open(out, "w") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(ALL)} texts; not decoded back to themselves: {lossy!r}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
