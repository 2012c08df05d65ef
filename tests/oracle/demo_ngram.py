"""A 5-gram baseline for the demo model: interpolated modified Kneser-Ney over the same tokens.

    demo_ngram.py WORK

Learns from WORK/train.u16, scores every token of WORK/heldout.u16 and prints bits per byte of the
text. A gram of up to five 12-bit ids is one int64, and counts are sorted arrays of these.
"""
import pathlib
import sys

import numpy as np

from demo_tokens import VOCAB, documents

ORDER, BITS = 5, 12
assert VOCAB <= 1 << BITS


def grams(ids, n):
    """Codes of all n-grams, those that end at token i at place i - n + 1."""
    out = np.zeros(len(ids) - n + 1, np.int64)
    for j in range(n):
        out = out << BITS | ids[j:len(ids) - n + 1 + j].astype(np.int64)
    return out


class Counts:
    """Counts of distinct codes, 0 for others."""

    def __init__(self, codes, weights=None):
        self.codes, inverse, self.counts = np.unique(codes, return_inverse=True, return_counts=True)
        if weights is not None:
            self.counts = np.bincount(inverse, weights)

    def __getitem__(self, codes):
        at = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[at] == codes, self.counts[at], 0)


def discounts(counts):
    """D for grams counted once, twice, more often (Chen and Goodman 1999)."""
    n = [max(1, np.count_nonzero(counts == i)) for i in (1, 2, 3, 4)]
    y = n[0] / (n[0] + 2 * n[1])
    return np.array([0.0] + [i + 1 - (i + 2) * y * n[i + 1] / n[i] for i in range(3)])


class Level:
    """Discounted probabilities of the last token of n-grams, and what is left for lower orders."""

    def __init__(self, count):
        self.count = count
        self.discount = discounts(count.counts)
        contexts = count.codes >> BITS
        self.total = Counts(contexts, count.counts)
        self.left = Counts(contexts, self.discount[np.minimum(count.counts, 3)])

    def mix(self, codes, lower):
        total, count = self.total[codes >> BITS], self.count[codes]
        seen = np.maximum(total, 1)
        own = (count - self.discount[np.minimum(count, 3)]) / seen
        return np.where(total > 0, own + self.left[codes >> BITS] / seen * lower, lower)


def probabilities(train, held):
    out = np.full(len(held), 1.0 / VOCAB)
    longer = None
    levels = [None] * (ORDER + 1)
    for n in range(ORDER, 0, -1):
        # Lower orders count in how many contexts a gram occurs.
        levels[n] = Level(Counts(grams(train, n) if longer is None
                                 else longer & (1 << BITS * n) - 1))
        longer = levels[n].count.codes
    for n in range(1, ORDER + 1):
        out[n - 1:] = levels[n].mix(grams(held, n), out[n - 1:])
    return out


def bits_per_byte(work):
    """Of the held-out text, and the perplexity of its tokens."""
    train, held = (np.fromfile(work / f"{part}.u16", "<u2") for part in ("train", "heldout"))
    bits = -np.log2(probabilities(train, held)).sum()
    size = sum(len(text.encode()) for text in documents(work / "heldout.txt"))
    return bits / size, 2 ** (bits / len(held))


def main(work):
    print("5-gram: %.4f bits per byte, perplexity %.3f" % bits_per_byte(work))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
