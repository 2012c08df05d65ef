"""Makes tests/data/tokenizers: small tokenizers of every kind and the ids they must give.

    make_tokenizers.py OUT

NAME.json or NAME.gguf is the tokenizer and NAME.cases a JSON list of [text, ids with control tokens
parsed, ids as text]. Independent implementations: HF `tokenizers`, trained here on fixed text, and
libsentencepiece (whose texts hold no control tokens, so both lists are the same).
"""
import json
import pathlib
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

import compare_tokenizers
from tokenizer_texts import ALL

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# Spellings that PCRE2 reads in another way than the engine of `tokenizers`.
TRAPS = (r"\p{Han}+|\bfoo\b|[\w']+\B|\s{,2}[^\W\d]+|[^\S\n]+|\x{e9}\v|\p{Nd}{1,3}(?=(?:\p{Nd}{3})+\b)"
         r"|(?m:<.>)|^\S|\u0041")
TEXTS = ALL[::2] + [
    "<|start|>x<|both|>", "a  <|both|> \t\n b", "a \u3000<|left|> b", "a <|right|>\u2003 \n b<|right|>",
    "<|left|><|left|> <|both|> <|both|>  <|right|>x", "word sword words word_ word\u0301 (word) 7word word",
    "<|word|> a<|word|>b <|word|>", "cafe\u0301!", "caf\u00e9!", "e\u0301! E\u0301!", "<tool>x<tool><tool>",
    "a<|start|>\u0301b", "e<tool>\u0301", "\u1112\u1161\u11ab<|start|>\u11ab", "q\u0307\u0323<|both|>q\u0323\u0307",
    "\u212bngstr\u00f6m \u2126", "a\u0327\u0301\u0315\u0300", "<|sta", "<|start|><|start", "<|long|><|long|>tail",
    "<|long|>tail <|long|>", "\u65e5\u672c foo foobar \u65e5foo e\u0301foo foo_", "1234567 12 \u0663\u0664\u0665\u0666",
    "\u00e9\x0b \u00e9\n", "<\n><x>", "a\u00a0b\u180ec", "x'\u017fy", "\u65e5\u3001\u3005\u30fc", "ab\ncd\n\n ef",
    "\u2581a b", "<unk><s>x</s>", "a b\u2581\u2581c", " leading", "  two", "tab\tno\x00nul", "user defined",
    "   user defined   ", "<0x0A>", "\u2581", " ",
]


# Nothing that changes with the code.
TRAINING = [*ALL, *(pathlib.Path(__file__).parents[2] / "LICENSE").read_text().split("\n")]


def added(text, **flags):
    return AddedToken(text, **{"normalized": False, **flags})


def trained(pre, alphabet, normalizer=None, **model):
    tokenizer = Tokenizer(BPE(**model))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet,
                         special_tokens=["<unk>"] if model else [])
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def hf_tokenizers():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    every_byte = pre_tokenizers.ByteLevel.alphabet()
    qwen = trained(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), byte_level]),
                   every_byte, normalizers.NFC())
    qwen.add_special_tokens([added("<|start|>"), added("<|both|>", lstrip=True, rstrip=True),
                             added("<|left|>", lstrip=True), added("<|right|>", rstrip=True),
                             added("<|word|>", single_word=True)])
    qwen.add_tokens([added("word", single_word=True, normalized=True), added("e\u0301!", normalized=True),
                     added("<tool>"), added("<tool><tool>"), added("<|long|>"), added("<|long|>tail")])
    qwen.post_processor = processors.TemplateProcessing(
        single="<|start|> $A <|both|>", special_tokens=[("<|start|>", qwen.token_to_id("<|start|>")),
                                                       ("<|both|>", qwen.token_to_id("<|both|>"))])
    yield "qwen", qwen
    traps = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(TRAPS), "isolated"), pre_tokenizers.Split("'", "removed"),
        pre_tokenizers.Split(Regex(r"[^!]+"), "removed", invert=True), pre_tokenizers.Digits(False),
        pre_tokenizers.Split(Regex(r"(?=[A-Z])"), "isolated"), byte_level]), every_byte)
    traps.add_special_tokens([added("<|start|>", normalized=True), added("<|both|>")])
    yield "traps", traps
    for name, fuse in [("unknown", False), ("fused", True)]:
        letters = list("abcdefghijklmnopqrstuvwxyz.,;\u0120\u010a")
        lacking = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), letters,
                          unk_token="<unk>", fuse_unk=fuse)
        data = json.loads(lacking.to_str())
        keep = set(letters)
        vocab = {t: i for t, i in data["model"]["vocab"].items() if set(t) <= keep or t == "<unk>"}
        data["model"]["vocab"] = {t: i for i, t in enumerate(sorted(vocab, key=vocab.get))}
        merges = [m for m in data["model"]["merges"] if set("".join(m)) <= keep]
        data["model"]["merges"] = [" ".join(m) for m in merges]  # the older spelling
        data["model"]["ignore_merges"] = fuse
        yield name, Tokenizer.from_str(json.dumps(data))


def write_cases(path, cases):
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def encode(tokenizer, text, parse):
    tokenizer.encode_special_tokens = not parse
    return tokenizer.encode(text, add_special_tokens=False).ids


def main(out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in hf_tokenizers():
        tokenizer.encode_special_tokens = False
        (out / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), indent=None))
        write_cases(out / f"{name}.cases", [[text, encode(tokenizer, text, True),
                                             encode(tokenizer, text, False)] for text in TEXTS])
    with tempfile.TemporaryDirectory() as work:
        for name, options in [("spm_bytes", {"byte_fallback": True}), ("spm_unknown", {})]:
            model = compare_tokenizers.train_sentencepiece(
                pathlib.Path(work) / name, "\n".join(TRAINING), vocab_size=1200, character_coverage=0.99, **options)
            compare_tokenizers.gguf_of_sentencepiece(out / f"{name}.gguf", model)
            write_cases(out / f"{name}.cases", [[text] + [model.encode(text)] * 2 for text in TEXTS
                                                if "<s>" not in text])


if __name__ == "__main__":
    main(*sys.argv[1:2])
