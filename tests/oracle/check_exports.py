"""Loads what Trine exports for Hugging Face in transformers and compares the ids with Trine's.

    check_exports.py TOKENIZER_FILES WORK [--tokenizers DIR] [--smollm2 FILE] [--megabytes N]

TOKENIZER_FILES: the program of that name in the build folder. WORK: a folder for what is made here.
DIR has qwen3/ and llama3.1/ with tokenizer.json and tokenizer_config.json; FILE is
SmolLM2-135M-Instruct in GGUF. The ids of Trine are those of the GGUF metadata. Each export is loaded
by AutoTokenizer, beside a config.json of the architecture, and encodes with control tokens parsed
and as text. Exits with 1 if an id differs, and says where.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import numpy
from transformers import AutoTokenizer

import compare_tokenizers
import mixed_text
from tokenizer_texts import ALL

TINY = pathlib.Path(__file__).parents[1] / "data" / "tiny"


class Check:
    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.failed = False
        self.compared = 0

    def check(self, name, source, model_type):
        out = self.work / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        self.run(source, out)
        (out / "config.json").write_text(json.dumps({"model_type": model_type}))
        data = json.loads((out / "tokenizer.json").read_text())
        specials = [token["content"] for token in data["added_tokens"]] + ["\u2581", "<0x0A>"]
        hf = AutoTokenizer.from_pretrained(out)
        picked = list(data["model"]["vocab"].values())[::37]
        text = mixed_text.make(int(self.args.megabytes * 1e6), 1, specials, [hf.decode([i]) for i in picked])
        (out / "mixed.txt").write_bytes(text.encode())
        self.run(source, out, out / "mixed.txt")
        for kind, split in [("parsed", False), ("text", True)]:
            hf.backend_tokenizer.encode_special_tokens = split
            expected = hf(text, add_special_tokens=False, split_special_tokens=split).input_ids
            self.compare(f"{name}, {kind} ({type(hf).__name__})",
                         numpy.fromfile(out / f"ids.{kind}", numpy.int32), expected)
        return hf

    def run(self, *arguments):
        subprocess.run([self.args.program, *arguments], check=True)

    def compare(self, name, got, expected):
        expected = numpy.asarray(expected, numpy.int32)
        same = min(len(got), len(expected))
        differ = numpy.flatnonzero(got[:same] != expected[:same])
        first = differ[0] if len(differ) else same
        total = len(differ) + abs(len(got) - len(expected))
        print(f"{name}: {len(expected)} ids, {total} differ", flush=True)
        self.compared += len(expected)
        if total:
            self.failed = True
            print("  first at", first, "got", got[first - 3:first + 8].tolist(), "expected",
                  expected[first - 3:first + 8].tolist())

    def check_begin(self, hf, begin):
        ids = hf("x").input_ids
        if (ids[0] == hf.bos_token_id) != begin:
            self.failed = True
            print(f"  'x' is {ids}, but BOS is {hf.bos_token_id}")

    # The pre-tokeniser of one vocabulary under another one's rules.
    def check_rules(self, folder):
        qwen3 = json.loads((folder / "qwen3" / "tokenizer.json").read_text())
        byte_level = qwen3["pre_tokenizer"]["pretokenizers"][1]
        own = {**byte_level, "use_regex": True}
        digits = {"type": "Digits", "individual_digits": True}
        split = {**qwen3["pre_tokenizer"]["pretokenizers"][0],
                 "pattern": {"Regex": compare_tokenizers.QWEN35}}
        for name, items in [("qwen35", [split, byte_level]), ("gpt-2", [own]), ("smollm", [digits, own])]:
            source = self.work / f"{name}_source"
            source.mkdir(parents=True, exist_ok=True)
            qwen3["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": items}
            (source / "tokenizer.json").write_text(json.dumps(qwen3))
            self.check(name, source, "llama")

    def check_sentencepiece(self):
        text = mixed_text.make(60_000, 1, ["<s>"], ["\u2581x", " the"])
        train = "\n".join(mixed_text.Maker(1, [""], [""], ()).code + ALL) + text
        users = compare_tokenizers.SYMBOLS_OF_USER
        for name, symbols, options in [
                ("sp_bytes", [], {"byte_fallback": True, "vocab_size": 4000}),
                ("sp_unknown", [], {"vocab_size": 3000}),
                ("sp_spaces", [], {"byte_fallback": True, "vocab_size": 3000,
                                   "split_by_whitespace": False}),
                ("sp_noprefix", users, {"byte_fallback": True, "vocab_size": 3000,
                                        "add_dummy_prefix": False, "split_by_whitespace": False})]:
            compare_tokenizers.SYMBOLS_OF_USER = symbols
            model = compare_tokenizers.train_sentencepiece(self.work / name, train,
                                                           character_coverage=0.98, **options)
            source = self.work / f"{name}.gguf"
            compare_tokenizers.gguf_of_sentencepiece(source, model)
            if name == "sp_noprefix":
                compare_tokenizers.add_key(source, "tokenizer.ggml.add_space_prefix")
            self.check_begin(self.check(name, source, "llama"), begin=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("work")
    parser.add_argument("--tokenizers")
    parser.add_argument("--smollm2")
    parser.add_argument("--megabytes", type=float, default=1)
    args = parser.parse_args()
    check = Check(args)
    check.work.mkdir(parents=True, exist_ok=True)
    check.check_sentencepiece()
    for name, model_type in [("llama_f32", "llama"), ("qwen3_q4_1", "qwen3"),
                             ("qwen35_a_rot_f16", "qwen3_5_text")]:
        check.check(name, TINY / f"{name}.gguf", model_type)
    if args.smollm2:
        check.check("SmolLM2", args.smollm2, "llama")
    if args.tokenizers:
        folder = pathlib.Path(args.tokenizers)
        check.check_begin(check.check("Llama-3.1", folder / "llama3.1", "llama"), begin=True)
        check.check_begin(check.check("Qwen3", folder / "qwen3", "qwen3"), begin=False)
        check.check_rules(folder)
    print(f"{check.compared} ids compared")
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
