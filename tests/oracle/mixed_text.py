"""Text that is hard for tokenizers, by a fixed seed (used by compare_tokenizers.py).

Words of many scripts, code, emoji, long runs of digits, spaces and line ends, combining marks in
and out of order, decomposed letters, control characters, special tokens whole and broken.
"""
import pathlib
import random
import sys
import unicodedata

from tokenizer_texts import ALL

# First and last code points of what words are made of.
SCRIPTS = [
    (0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F),
    (0x5D0, 0x5EA), (0x620, 0x6FF), (0x710, 0x74F), (0x780, 0x7B1), (0x900, 0x97F), (0x980, 0x9FF),
    (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xE01, 0xE5B), (0xE80, 0xEFF),
    (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F),
    (0x13A0, 0x13FF), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF),
    (0x3041, 0x309F), (0x30A0, 0x30FF), (0x3105, 0x312F), (0x4E00, 0x9FFF), (0xA000, 0xA48C),
    (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF01, 0xFFEF), (0x10330, 0x1034A), (0x1D400, 0x1D7FF),
    (0x20000, 0x2A6DF), (0x2F800, 0x2FA1D),
]
SYMBOLS = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA1, 0xBF), (0x2010, 0x205E),
           (0x20A0, 0x20BF), (0x2100, 0x214F), (0x2190, 0x22FF), (0x2500, 0x27BF), (0x3000, 0x303F)]
EMOJI = [(0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F900, 0x1F9FF), (0x2600, 0x26FF)]
MARKS = [(0x300, 0x36F), (0x483, 0x487), (0x591, 0x5BD), (0x64B, 0x65F), (0x93C, 0x94D),
         (0x1DC0, 0x1DF5), (0x20D0, 0x20F0), (0x3099, 0x309A), (0xFE20, 0xFE2F)]
DIGITS = [(0x30, 0x39)] * 4 + [(0x660, 0x669), (0x966, 0x96F), (0xFF10, 0xFF19), (0xB2, 0xB3),
                               (0x2150, 0x218B), (0x2460, 0x249B)]
SPACES = " " * 12 + "\t\t\n\n\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u3000\u180e\u200b"
CONTROLS = [(0, 0x1F), (0x7F, 0x9F), (0x200B, 0x200F), (0x202A, 0x202E), (0xE000, 0xE00F),
            (0xFFF9, 0xFFFD), (0xE0001, 0xE007F), (0x10FFF0, 0x10FFFD)]
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'lL", "'d", "'\u017f", "'\u017ft", "\u2019s", "''s", "'x"]


class Maker:
    def __init__(self, seed, specials, tokens, excluded):
        self.random = random.Random(seed)
        self.specials = specials
        self.tokens = tokens
        self.excluded = excluded
        root = pathlib.Path(__file__).parents[2]
        self.code = [path.read_text() for path in sorted(root.glob("[sk]*/**/*.cc"))]

    def character(self, ranges):
        while True:
            low, high = self.random.choice(ranges)
            one = chr(self.random.randint(low, high))
            if unicodedata.category(one) != "Cn" and one not in self.excluded:
                return one

    def run(self, ranges, low, high):
        ranges = [self.random.choice(ranges)]
        return "".join(self.character(ranges) for _ in range(self.random.randint(low, high)))

    def words(self):
        return " ".join(self.run(SCRIPTS, 1, 12) for _ in range(self.random.randint(1, 12)))

    def marked(self):
        letters = [self.character(SCRIPTS) + "".join(
            self.character(MARKS) for _ in range(self.random.choice([0, 1, 1, 2, 3, 40])))
            for _ in range(self.random.randint(1, 8))]
        return "".join(letters)

    def decomposed(self):
        return unicodedata.normalize(self.random.choice(["NFD", "NFKD", "NFC"]), self.words())

    def spaces(self):
        return "".join(self.random.choice(SPACES) for _ in range(self.random.randint(1, 8)))

    def long_run(self):
        one = self.random.choice([" ", "\n", "\t", "0", "7", "a", "=", "\r\n", "\u0301", "\u3000", " \n"])
        return one * self.random.choice([10, 100, self.random.randint(1, 3000)])

    def special(self):
        text = self.random.choice(self.specials)
        if self.random.random() < 0.3:
            cut = self.random.randint(0, len(text))
            text = text[:cut] + self.random.choice(["", " ", "\u0301", "<", text]) + text[cut:]
        return text

    def snippet(self):
        code = self.random.choice(self.code)
        begin = self.random.randrange(len(code))
        return code[begin:begin + self.random.randint(1, 400)]

    def anything(self):
        return "".join(self.character([(0, 0xD7FF), (0xE000, 0x2FFFF)])
                       for _ in range(self.random.randint(1, 20)))

    def part(self):
        pick = self.random.choice
        return pick([
            self.words, self.words, self.marked, self.decomposed, self.decomposed, self.special,
            self.snippet, self.snippet, self.spaces, self.spaces, self.anything,
            lambda: self.run(DIGITS, 1, 30), lambda: self.run(SYMBOLS, 1, 10),
            lambda: "\u200d".join(self.run(EMOJI, 1, 3) for _ in range(3)),
            lambda: self.run(CONTROLS, 1, 4), lambda: pick(CONTRACTIONS), lambda: pick(ALL),
            lambda: "".join(pick(self.tokens) for _ in range(6)), self.long_run,
        ])()


def make(size, seed, specials, tokens, excluded=frozenset()):
    """About `size` bytes of UTF-8. `tokens`: texts from a vocabulary."""
    maker = Maker(seed, specials, tokens, excluded)
    parts = []
    total = 0
    while total < size:
        part = "".join(c for c in maker.part() if c not in excluded)
        part += maker.random.choice(["", "", " ", "\n"])
        parts.append(part)
        total += len(part.encode())
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(make(int(sys.argv[1]), 1, ["<|x|>"], ["the"]))
