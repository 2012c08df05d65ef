#!/usr/bin/env python3
"""Writes small good GGUF files and many bad ones, one defect each, with the exact message that each
must be refused with. For tests/malformed_test.cc.

    python3 tests/make_malformed.py FOLDER      (standard library only)

FOLDER/manifest.json: [{"file": name, "error": message after "FOLDER/name", "" for a good file}],
good.gguf first. "names" instead of the file, where the message begins with another part of it.
"""
import json
import struct
import sys
from pathlib import Path

import make_malformed_qwen35
from gguf_file import (ARRAY, DAMAGED, F32, I32, STRING, U8, U32, U64, Cases, GgufFile, array,
                       drop_key, f32, ints, set_key, set_tensor, strings, text, u32)

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB = 32, 4, 2, 128, 40


def llama():
    """A one-layer llama with everything that a loader asks for."""
    tokens = ["<|end|>", "<|unused|>"] + [chr(33 + i) for i in range(VOCAB - 2)]
    kv = HIDDEN // HEADS * KV_HEADS
    return GgufFile([
        ["general.architecture", STRING, text("llama")],
        ["llama.block_count", *u32(1)],
        ["llama.context_length", *u32(64)],
        ["llama.embedding_length", *u32(HIDDEN)],
        ["llama.feed_forward_length", *u32(FFN)],
        ["llama.attention.head_count", *u32(HEADS)],
        ["llama.attention.head_count_kv", *u32(KV_HEADS)],
        ["llama.attention.layer_norm_rms_epsilon", *f32(1e-5)],
        ["llama.rope.freq_base", *f32(10000)],
        ["llama.rope.dimension_count", *u32(8)],
        ["tokenizer.ggml.model", STRING, text("gpt2")],
        ["tokenizer.ggml.pre", STRING, text("smollm")],
        ["tokenizer.ggml.tokens", *strings(tokens)],
        ["tokenizer.ggml.token_type",
         *ints([3 if i == 0 else 5 if i == 1 else 1 for i in range(VOCAB)])],
        ["tokenizer.ggml.merges", *strings(["! #", "$ %"])],
        ["tokenizer.ggml.eos_token_id", *u32(0)],
    ], {
        "token_embd.weight": [HIDDEN, VOCAB], "output_norm.weight": [HIDDEN],
        "blk.0.attn_norm.weight": [HIDDEN], "blk.0.attn_q.weight": [HIDDEN, HIDDEN],
        "blk.0.attn_k.weight": [HIDDEN, kv], "blk.0.attn_v.weight": [HIDDEN, kv],
        "blk.0.attn_output.weight": [HIDDEN, HIDDEN], "blk.0.ffn_norm.weight": [HIDDEN],
        "blk.0.ffn_gate.weight": [HIDDEN, FFN], "blk.0.ffn_up.weight": [HIDDEN, FFN],
        "blk.0.ffn_down.weight": [FFN, HIDDEN],
    })


def truncations(cases):
    """Cut at the start of every field of the header and inside the data."""
    model = llama()
    whole, marks = model.build()
    counts = {"tensors": (24, 65536), "keys": (13, 65536)}
    fits = ": {} is {}; at most {} fit in the rest of the file" + DAMAGED
    for cut, (offset, size, field, kind) in enumerate(marks):
        error = None
        for start, length, name, what in marks:
            if start == offset:
                break
            if what in counts:  # what is left must hold the least that so many things take
                count = struct.unpack_from("<Q", whole, start)[0]
                room = min((offset - start - 8) // counts[what][0], counts[what][1])
                if count > room and error is None:
                    error = fits.format(name, count, room)
            if what == "array" and error is None:
                kind_id, count = struct.unpack_from("<IQ", whole, start - 4)
                least = {STRING: 8, I32: 4}[kind_id]
                room = min((offset - start - 8) // least, 1 << 21)
                if count > room:
                    error = fits.format(name, count, room)
        if error is None and kind == "text":
            error = f": {field} is a string of {size} bytes; at most 0 are possible here{DAMAGED}"
        if error is None and kind == "end":
            error = model.cut_error(offset)
        if offset == 0:
            error = ": the file is empty (0 bytes); get it again"
        cases.write(f"cut-{cut:03}", whole[:offset], error or
                    f": {field} needs {size} bytes at {offset}, the file ends at {offset}{DAMAGED}")
    for share in (0.6, 0.9, 0.999):
        end = int(len(whole) * share)
        cases.write(f"cut-data-{share}", whole[:end], model.cut_error(end))


def container_defects(cases):
    def field(**values):
        return lambda m: vars(m).update(values)

    cases.write("empty", b"", ": the file is empty (0 bytes); get it again")
    cases.model("magic", field(magic=b"GGML"),
                ": not a GGUF file: it starts with 'GGML' instead of 'GGUF'")
    for version in (0, 1, 4, 255):
        error = f": GGUF version {version}; 2 and 3 are read"
        if version == 0:
            error = ": big-endian GGUF (version field 0); only little endian is read"
        cases.model(f"version-{version}", field(version=version), error)
    cases.model("big-endian", field(version=3 << 24),
                f": big-endian GGUF (version field {3 << 24}); only little endian is read")
    for name, count in (("huge", 1 << 40), ("negative", (1 << 64) - 1), ("many", 70000)):
        cases.model(f"tensor-count-{name}", field(tensor_count=count), lambda m, n, c=count:
                    f": tensor count is {c}; at most {min((n - 16) // 24, 65536)} fit in the rest "
                    f"of the file{DAMAGED}")
        cases.model(f"key-count-{name}", field(key_count=count), lambda m, n, c=count:
                    f": metadata count is {c}; at most {min((n - 24) // 13, 65536)} fit in the "
                    f"rest of the file{DAMAGED}")


def key_defects(cases):
    def rename(old, new):
        return lambda m: m.key(old).__setitem__(0, new)

    def add(name, kind, raw):
        return lambda m: m.keys.insert(0, [name, kind, raw])

    eps = "llama.attention.layer_norm_rms_epsilon"
    cases.model("key-empty", rename("llama.rope.freq_base", ""),
                ": metadata key 8 is empty; keys have names")
    cases.model("key-twice", rename("llama.rope.freq_base", eps),
                f": metadata key '{eps}' occurs twice")
    cases.model("value-type-13", set_key("llama.rope.freq_base", 13, b"\0\0\0\0"),
                ": 'llama.rope.freq_base' has value type 13; types 0 to 12 exist")
    for kind in (ARRAY, 13, 99):
        cases.model(f"array-of-{kind}", add("x", ARRAY, struct.pack("<IQ", kind, 1) + b"\0" * 16),
                    f": 'x' is an array of type {kind}; plain values and strings are possible")
    for count in (1 << 62, 1 << 30):
        cases.model(f"array-{count}", add("x", ARRAY, struct.pack("<IQ", U8, count)),
                    lambda m, n, c=count: f": 'x' (length) is {c}; at most "
                    f"{min(n - 24 - 9 - 4 - 12, 1 << 21)} fit in the rest of the file{DAMAGED}")
    cases.model("string-huge", add("x", STRING, struct.pack("<Q", 1 << 50)), lambda m, n:
                f": 'x' is a string of {1 << 50} bytes; at most {n - 24 - 9 - 4 - 8} are possible "
                f"here{DAMAGED}")
    cases.model("integer-beyond", add("x", U64, struct.pack("<Q", (1 << 63) + 5)),
                f": 'x' is {(1 << 63) + 5}, beyond 2^63 - 1")
    cases.model("alignment-type", add("general.alignment", U64, struct.pack("<Q", 32)),
                ": 'general.alignment' has value type 10; it must be u32 (4)")
    for value in (0, 3, 48, 4294967295):
        cases.model(f"alignment-{value}", add("general.alignment", U32, struct.pack("<I", value)),
                    f": 'general.alignment' is {value}; it must be a power of two")


def tensor_defects(cases):
    q, down, set_ = "blk.0.attn_q.weight", "blk.0.ffn_down.weight", set_tensor

    for dims in (0, 5, 1 << 20):
        cases.model(f"dims-{dims}", set_(q, n_dims=dims),
                    f": tensor '{q}' has {dims} dimensions; 1 to 4 are possible")
    for i, size in enumerate((0, 1 << 63, 1 << 61)):
        bad = ([HIDDEN, size], 1) if i == 0 else ([size, HIDDEN], 0)
        cases.model(f"dim-{size}", set_(q, dims=bad[0]), f": tensor '{q}': dimension {bad[1]} is "
                    f"{size}; it must be at least 1 and fit in memory")
    cases.model("dims-overflow", set_(q, dims=[1 << 40, 1 << 40]), f": tensor '{q}': dimension 1 "
                f"is {1 << 40}; it must be at least 1 and fit in memory")
    known = ("F32 (0), F16 (1), BF16 (30), Q8_0 (8), Q4_0 (2), Q4_1 (3), Q4_K (12), Q5_K (13), "
             "Q6_K (14), TQ1_0 (34), TQ2_0 (35), Q1_0 (41), Q2_0 (42), PQ2_0 (142), "
             "PTQ1_0 (143)")
    for kind in (4, 5, 9, 16, 24, 36, 144, 1 << 31):
        cases.model(f"type-{kind}", set_(q, type=kind),
                    f": tensor '{q}' has type {kind}; this version reads {known}")
    cases.model("block-q8_0", set_("output_norm.weight", dims=[33], type=8), ": tensor 'output_norm"
                ".weight': rows of 33 values are not whole blocks of 32 (Q8_0)")
    cases.model("block-q4_k", set_(q, type=12), f": tensor '{q}': rows of 32 values are not whole "
                "blocks of 256 (Q4_K)")
    for name, new in (("empty", ""), ("twice", down)):
        cases.model(f"name-{name}", set_(q, name=new), ": name of tensor 3 is empty" if not new
                    else f": tensor '{down}' occurs twice")
    cases.model("name-long", set_(q, name="x" * 64), ": name of tensor 3 is a string of 64 bytes; "
                f"at most 63 are possible here{DAMAGED}")
    cases.model("offset-odd", set_(q, offset=33), f": tensor '{q}' starts at offset 33, not a "
                "multiple of the alignment 32")
    cases.model("offset-end", set_(q, offset=1 << 62), f": tensor '{q}' starts at offset {1 << 62},"
                " beyond the end of the file")
    cases.model("offset-far", set_(q, offset=1 << 40), lambda m, n: f": tensor '{q}' needs bytes "
                f"{m.data_start + (1 << 40)} to {m.data_start + (1 << 40) + 4096}, the file ends "
                f"at {n}{DAMAGED}")
    cases.model("overlap", set_(q, offset=0), lambda m, n: ": tensors 'token_embd.weight' and "
                f"'{q}' overlap at byte {m.data_start}")
    for name in ("token_embd.weight", "output_norm.weight", q, down):
        error = f": tensor '{name}' is missing; the file is incomplete, get it again"
        cases.model(f"missing-{name}", lambda m, n=name: m.tensors.remove(m.tensor(n)), error)
    cases.model("unclaimed", lambda m: m.tensors.append(dict(m.tensor(q), name="blk.0.extra")),
                ": tensor 'blk.0.extra' has no place in architecture 'llama'; a part of the model "
                "would be left out")
    cases.model("shape", set_(q, dims=[HIDDEN, 64]), f": tensor '{q}' has shape [32, 64]; the "
                "model's metadata asks for [32, 32]")
    cases.model("vector-2d", set_("output_norm.weight", dims=[HIDDEN, 1]), ": tensor 'output_norm."
                "weight' has shape [32, 1]; the model's metadata asks for [32]")
    cases.model("vector-q8_0", set_("output_norm.weight", type=8), ": 'output_norm.weight' "
                "is of type Q8_0; F32, F16 or BF16 expected")


def value_defects(cases):
    damaged = "holds a value that is not finite; the file is damaged, get it again"
    for what, bits in (("nan", 0x7FC00000), ("infinity", 0xFF800000)):
        for name in ("blk.0.ffn_up.weight", "token_embd.weight"):
            cases.model(f"{what}-{name}", lambda m, n=name, b=bits: m.patch.__setitem__(
                n, struct.pack("<I", b)), f": tensor '{name}' {damaged}")
        cases.model(f"{what}-norm", lambda m, b=bits: m.patch.__setitem__(
            "output_norm.weight", struct.pack("<I", b)), f": tensor 'output_norm.weight' {damaged}")

    def half(model):
        model.tensor("blk.0.ffn_up.weight")["type"] = 1
        model.patch["blk.0.ffn_up.weight"] = struct.pack("<H", 0x7C01)

    def scale(model):
        model.tensor("blk.0.ffn_up.weight")["type"] = 8
        model.patch["blk.0.ffn_up.weight"] = struct.pack("<H", 0xFC00)

    cases.model("nan-f16", half, f": tensor 'blk.0.ffn_up.weight' {damaged}")
    cases.model("infinite-scale", scale, f": tensor 'blk.0.ffn_up.weight' {damaged}")


def metadata_defects(cases):
    def value(name, raw, kind=U32):
        return set_key(name, kind, raw)

    raw32 = lambda v: struct.pack("<I", v)
    for name in ("general.architecture", "llama.block_count", "llama.context_length",
                 "llama.embedding_length", "llama.feed_forward_length",
                 "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"):
        cases.model(f"no-{name}", drop_key(name), f": metadata key '{name}' is missing; the file "
                    "is incomplete")
        if name != "general.architecture":
            cases.model(f"text-{name}", value(name, text("7"), STRING), f": metadata key '{name}' "
                        "is of type string; " + ("a number" if "eps" in name else "an integer") +
                        " expected")
    for name in ("llama.block_count", "llama.embedding_length", "llama.attention.head_count",
                 "llama.attention.head_count_kv", "llama.feed_forward_length"):
        cases.model(f"zero-{name}", value(name, raw32(0)), f": metadata key '{name}' is 0; 1 to "
                    "2147483647 expected")
    for arch, what in (("clip", "a vision projector (mmproj)"),
                       ("dspark", "a drafter for speculative decoding")):
        cases.model(f"arch-{arch}", value("general.architecture", text(arch), STRING),
                    f": architecture '{arch}' is {what}, not a language model; give the model's "
                    "own file")
    for arch in ("lamma", "Llama"):
        cases.model(f"arch-{arch}", value("general.architecture", text(arch), STRING),
                    f": architecture '{arch}' is not supported; supported are llama, qwen2, qwen3, "
                    "qwen35")
    cases.model("heads", value("llama.attention.head_count_kv", raw32(3)), ": 'llama.attention."
                "head_count' 4 is not a multiple of head_count_kv 3")
    def many_heads(model):
        for name, count in (("attention.head_count", 8192), ("rope.dimension_count", 2),
                            ("attention.head_count_kv", 8192)):
            model.key("llama." + name)[2] = raw32(count)
        model.keys.append(["llama.attention.key_length", *u32(2)])
        model.tensor("blk.0.attn_output.weight")["dims"] = [16384, HIDDEN]

    cases.model("heads-many", many_heads, ": the model has 8192 query heads; at most 4096 are "
                "supported")
    cases.model("rope-dims", value("llama.rope.dimension_count", raw32(10)), ": 'llama.rope."
                "dimension_count' is 10; an even number up to the head dimension 8 expected")
    cases.model("rope-scaling", lambda m: m.keys.append(
        ["llama.rope.scaling.type", STRING, text("longrope")]), ": 'llama.rope.scaling.type' is "
        "'longrope'; none, linear and yarn are supported")
    cases.model("experts", lambda m: m.keys.append(["llama.expert_count", *u32(8)]),
                ": 'llama.expert_count' is 8; mixture-of-experts models are not supported")
    cases.model("layers", value("llama.block_count", raw32(2)), ": 9 tensors are missing: "
                "'blk.1.attn_k.weight', 'blk.1.attn_norm.weight', 'blk.1.attn_output.weight', "
                "'blk.1.attn_q.weight', 'blk.1.attn_v.weight', 'blk.1.ffn_down.weight', "
                "'blk.1.ffn_gate.weight', 'blk.1.ffn_norm.weight', ...; the model is incomplete, "
                "get it again")
    cases.model("hidden", value("llama.embedding_length", raw32(64)), ": tensor 'blk.0.attn_output."
                "weight' has shape [32, 32]; the model's metadata asks for [64, 64]")
    cases.model("ffn-huge", value("llama.feed_forward_length", raw32(200000000)), ": tensor 'blk.0."
                "ffn_down.weight' has shape [128, 32]; the model's metadata asks for "
                "[200000000, 32]")
    cases.model("layers-huge", value("llama.block_count", raw32(1 << 31)), ": metadata key 'llama."
                "block_count' is 2147483648; 1 to 2147483647 expected")
    cases.model("layers-many", value("llama.block_count", raw32(1 << 30)), ": 'llama.block_count' "
                "is 1073741824, but there are only 11 tensors")
    cases.model("eps", value("llama.attention.layer_norm_rms_epsilon", struct.pack("<f", -1), F32),
                ": 'llama.attention.layer_norm_rms_epsilon' is -1.000000; a small positive number "
                "expected")
    convert = "convert the file again"
    cases.model("merge-hostile", value("tokenizer.ggml.merges", strings(["\n\x1b"])[1], ARRAY),
                ": merge 0 is '\\x0a\\x1b', not two byte-level symbols with a space between; " +
                convert)
    cases.model("token-twice", value("tokenizer.ggml.tokens", strings(
        ["a", "b", "\u010a", "\u010a"] + [chr(40 + i) for i in range(VOCAB - 4)])[1], ARRAY),
                ": tokens 2 and 3 are both '\\x0a'; the vocabulary is damaged, convert it again")
    cases.model("tokenizer-hostile", value("tokenizer.ggml.model", text("gpt\n2"), STRING),
                ": tokenizer.ggml.model is 'gpt\\x0a2'; supported: gpt2, llama; use a "
                "model with one of these")
    cases.model("all-unused", value("tokenizer.ggml.token_type", array(I32, [struct.pack("<i", 5)]
                * VOCAB), ARRAY), ": every token of 'tokenizer.ggml.token_type' is unused (5); the "
                "file is damaged, get it again")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    cases = Cases(folder, llama)
    cases.model("good", lambda m: None, "")
    for defects in (truncations, container_defects, key_defects, tensor_defects, value_defects,
                    metadata_defects):
        defects(cases)
    make_malformed_qwen35.add(cases)
    (folder / "manifest.json").write_text(json.dumps(cases.manifest, indent=1))
    print(sum(entry["error"] != "" for entry in cases.manifest), "malformed files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
