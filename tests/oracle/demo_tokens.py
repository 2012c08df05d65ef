"""The demo model's tokenizer, and its corpus as token ids.

    demo_tokens.py WORK

learns a byte-level BPE with the pre-tokeniser of qwen35 from WORK/train.txt (demo_corpus.py) and
writes WORK/tokenizer.json, WORK/train.u16 and WORK/heldout.u16. Documents end with <|endoftext|>.
"""
import pathlib
import sys

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from demo_corpus import END

VOCAB = 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2
QWEN35 = (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
          r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def learn(texts):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN35), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(s, special=True, normalized=False) for s in SPECIALS]
    trainer = BpeTrainer(vocab_size=VOCAB, show_progress=False, special_tokens=specials,
                         initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts, trainer)
    assert [tokenizer.token_to_id(s) for s in SPECIALS] == [0, 1, 2]
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer


def documents(path):
    return path.read_text().split(END)[:-1]


def encode(tokenizer, texts):
    ids = []
    for encoding in tokenizer.encode_batch(texts):
        ids += encoding.ids + [0]
    return np.array(ids, "<u2")


def main(work):
    work = pathlib.Path(work)
    train, held = documents(work / "train.txt"), documents(work / "heldout.txt")
    tokenizer = learn(train)
    tokenizer.save(str(work / "tokenizer.json"))
    for name, texts in (("train", train), ("heldout", held)):
        ids = encode(tokenizer, texts)
        ids.tofile(work / f"{name}.u16")
        print(f"{name}: {len(ids)} tokens, {sum(len(t.encode()) for t in texts)} bytes of text")


if __name__ == "__main__":
    main(sys.argv[1])
