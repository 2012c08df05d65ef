"""Compares the ids of Trine's tokenizers with those of HF `tokenizers` and of libsentencepiece.

    compare_tokenizers.py TEXT_BENCH WORK [--tokenizers DIR] [--smollm2 FILE] [--megabytes N]

TEXT_BENCH: the program of that name in the build folder. WORK: a folder for what is made here.
DIR has qwen3/tokenizer.json and llama3.1/tokenizer.json; FILE is SmolLM2-135M-Instruct in GGUF. A
tokenizer.json is compared itself and as GGUF metadata made from it, with control tokens parsed and
as text. Exits with 1 if an id differs, and says where.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import unicodedata

import gguf
import numpy
import sentencepiece
from tokenizers import Tokenizer, normalizers

import gguf_tokenizer
import mixed_text
from tokenizer_texts import ALL

QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def skewed():
    """Marks that are younger than the Unicode tables of HF's normaliser: it leaves their order."""
    nfc = normalizers.NFC()
    marks = (chr(c) for c in range(0x300, 0x1F000) if unicodedata.combining(chr(c)))
    texts = ((mark, "a\u0323" + mark + "\u0301" + mark + "\u0323\u0301") for mark in marks)
    return {mark for mark, text in texts
            if nfc.normalize_str(text) != unicodedata.normalize("NFC", text)}


def write_gguf(path, model, tokens, types, extra):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_of_json(path, data, pre):
    model = data["model"]
    added = {token["id"]: token for token in data["added_tokens"]}
    texts = {number: text for text, number in model["vocab"].items()}
    texts.update({number: token["content"] for number, token in added.items()})
    tokens, types = [], []
    for number in range(max(texts) + 1):
        tokens.append(texts.get(number, f"[PAD{number}]"))
        if number in added:
            types.append(CONTROL if added[number]["special"] else USER_DEFINED)
        else:
            types.append(NORMAL if number in texts else UNUSED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]

    def extra(writer):
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(0)
        writer.add_add_bos_token(False)
    write_gguf(path, "gpt2", tokens, types, extra)


def gguf_of_sentencepiece(path, model):
    size = model.get_piece_size()
    kinds = [(model.is_unknown, UNKNOWN), (model.is_control, CONTROL), (model.is_byte, BYTE),
             (model.is_unused, UNUSED)]
    types = []
    for number in range(size):
        kind = next((k for test, k in kinds if test(number)), NORMAL)
        piece = model.id_to_piece(number)
        types.append(USER_DEFINED if kind == NORMAL and piece in SYMBOLS_OF_USER else kind)
    write_gguf(path, "llama", [model.id_to_piece(i) for i in range(size)], types,
               lambda writer: writer.add_token_scores([model.get_score(i) for i in range(size)]))


SYMBOLS_OF_USER = ["<tool>", "<tool><tool>", "\u2581\u2581\u2581"]


def train_sentencepiece(prefix, text, **options):
    source = pathlib.Path(f"{prefix}.txt")
    lines = (line[:4000] for line in text.split("\n"))
    source.write_text("\n".join(line.replace("\0", "") for line in lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(source), model_prefix=str(prefix), model_type="bpe",
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        user_defined_symbols=SYMBOLS_OF_USER, num_threads=1, minloglevel=2,
        max_sentence_length=20000, **options)
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


class Comparison:
    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.failed = False
        self.skewed = skewed()
        print(f"{len(self.skewed)} marks left out: younger than HF's normaliser")

    def text(self, specials, tokens):
        return mixed_text.make(int(self.args.megabytes * 1e6), 1, specials, tokens, self.skewed)

    def check(self, name, container, text, expected, parse):
        source, out = self.work / "mixed.txt", self.work / "ids.bin"
        source.write_bytes(text.encode())
        flags = [] if parse else ["--text"]
        done = subprocess.run([self.args.bench, *flags, container, source, out], check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{name}: {done.stderr.strip()}")
            self.failed = True
            return
        got = numpy.fromfile(out, numpy.int32)
        expected = numpy.asarray(expected, numpy.int32)
        same = min(len(got), len(expected))
        differ = numpy.flatnonzero(got[:same] != expected[:same])
        first = differ[0] if len(differ) else same
        total = len(differ) + abs(len(got) - len(expected))
        print(f"{name}, {'parsed' if parse else 'as text'}: {len(source.read_bytes()) / 1e6:.1f} MB, "
              f"{len(expected)} ids, {total} differ; {done.stdout.strip()}", flush=True)
        if total:
            self.failed = True
            print("  first at", first, "got", got[first - 3:first + 8].tolist(), "expected",
                  expected[first - 3:first + 8].tolist())

    def check_hf(self, name, container, hf, text):
        for parse in (True, False):
            hf.encode_special_tokens = not parse
            ids = hf.encode(text, add_special_tokens=False).ids
            self.check(name, container, text, ids, parse)

    def check_json(self, name, data, pre):
        specials = [token["content"] for token in data["added_tokens"]]
        container = self.work / f"{name}.json"
        container.write_text(json.dumps(data, ensure_ascii=False))
        hf = Tokenizer.from_file(str(container))
        picked = list(data["model"]["vocab"].values())[::37]
        text = self.text(specials, [hf.decode([i]) for i in picked])
        self.check_hf(f"{name} tokenizer.json", container, hf, text)
        plain = copy.copy(data)
        plain["normalizer"] = None
        container = self.work / f"{name}.gguf"
        gguf_of_json(container, data, pre)
        self.check_hf(f"{name} GGUF", container, Tokenizer.from_str(json.dumps(plain)), text)

    def check_smollm2(self, path):
        hf = gguf_tokenizer.build(gguf.GGUFReader(path).fields)
        specials = [t.content for t in hf.get_added_tokens_decoder().values()]
        text = self.text(specials, [hf.decode([i]) for i in range(17, 49152, 37)])
        self.check_hf("SmolLM2 GGUF", path, hf, text)

    def check_sentencepiece(self):
        text = self.text(["<s>", "</s>", "<unk>", "<0x0A>", *SYMBOLS_OF_USER[:2]], ["\u2581x", " the"])
        train = "\n".join(mixed_text.Maker(1, [""], [""], ()).code + ALL) + text[:60_000]
        for name, options in [("bytes", {"byte_fallback": True, "vocab_size": 4000}),
                              ("unknown", {"vocab_size": 3000}),
                              ("noprefix", {"byte_fallback": True, "vocab_size": 3000,
                                            "add_dummy_prefix": False,
                                            "split_by_whitespace": False})]:
            model = train_sentencepiece(self.work / f"sp_{name}", train,
                                        character_coverage=0.98, **options)
            container = self.work / f"sp_{name}.gguf"
            gguf_of_sentencepiece(container, model)
            if name == "noprefix":
                add_key(container, "tokenizer.ggml.add_space_prefix")
            self.check(f"SentencePiece {name}", container, text, model.encode(text), parse=False)


def add_key(path, key):
    """Adds a bool key that is false."""
    data = path.read_bytes()
    count = int.from_bytes(data[16:24], "little") + 1
    entry = len(key).to_bytes(8, "little") + key.encode() + (7).to_bytes(4, "little") + b"\0"
    path.write_bytes(data[:16] + count.to_bytes(8, "little") + entry + data[24:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("work")
    parser.add_argument("--tokenizers")
    parser.add_argument("--smollm2")
    parser.add_argument("--megabytes", type=float, default=3)
    args = parser.parse_args()
    pathlib.Path(args.work).mkdir(parents=True, exist_ok=True)
    comparison = Comparison(args)
    comparison.check_sentencepiece()
    if args.smollm2:
        comparison.check_smollm2(args.smollm2)
    if args.tokenizers:
        folder = pathlib.Path(args.tokenizers)
        qwen3 = json.loads((folder / "qwen3/tokenizer.json").read_text())
        comparison.check_json("Qwen3", qwen3, "qwen2")
        qwen35 = copy.deepcopy(qwen3)
        qwen35["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN35
        comparison.check_json("Qwen3.5", qwen35, "qwen35")
        llama = json.loads((folder / "llama3.1/tokenizer.json").read_text())
        comparison.check_json("Llama-3.1", llama, "llama-bpe")
    sys.exit(1 if comparison.failed else 0)


if __name__ == "__main__":
    main()
