"""A small byte-level BPE vocabulary for the tiny models (imported by make_tiny.py).

Merges are learned by the BPE trainer of HF `tokenizers` from seeded pseudo-English,
so every token of the vocabulary is reachable.
"""
import json

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
COMMON = "the of and to in is that it for was on are with as at be this have from or".split()
ONSETS = "b c d f g h l m n p r s t w st tr pl ch sh gr".split()
VOWELS = "a e i o u ea ou ai ee".split()
CODAS = ["", "n", "r", "t", "s", "l", "nd", "st", "ng", "ck"]


def pseudo_english(n_words):
    rng = np.random.default_rng(7)

    def syllable():
        return "".join(str(rng.choice(part)) for part in (ONSETS, VOWELS, CODAS))

    lexicon = COMMON + ["".join(syllable() for _ in range(rng.integers(1, 4)))
                        for _ in range(2000)]
    weights = 1.0 / np.arange(1, len(lexicon) + 1)
    words = rng.choice(lexicon, n_words, p=weights / weights.sum())
    return " ".join(str(word) for word in words)


def build(vocab_size):
    """Returns (tokens, token types, merges) for a GGUF file."""
    alphabet = sorted(ByteLevel.alphabet())
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=vocab_size - len(SPECIALS), initial_alphabet=alphabet,
                         show_progress=False)
    bpe.train_from_iterator([pseudo_english(40000)], trainer)
    ids = bpe.get_vocab()
    learned = sorted(ids, key=ids.get)
    assert learned[:256] == alphabet
    tokens = SPECIALS + learned
    assert len(tokens) == vocab_size
    merges = [" ".join(pair) for pair in json.loads(bpe.to_str())["model"]["merges"]]
    types = [3] * len(SPECIALS) + [1] * len(learned)
    return tokens, types, merges
