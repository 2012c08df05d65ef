"""Good qwen35 files and many bad ones, one defect each: see make_malformed.py, which calls this."""
import struct

from gguf_file import (ARRAY, BOOL, F32, I32, STRING, U32, Cases, GgufFile, add_key, array,
                       drop_key, f32, ints, set_key, set_tensor, strings, text, u32)

HIDDEN, FFN, VOCAB, BLOCK = 128, 256, 16, 128
HEADS, HEAD_DIM = 2, 64  # and one KV head
KEY_HEADS, VALUE_HEADS, DELTA_DIM, TAPS = 2, 4, 32, 4
VALUES, CHANNELS = VALUE_HEADS * DELTA_DIM, (2 * KEY_HEADS + VALUE_HEADS) * DELTA_DIM
PQ2_0, PTQ1_0, ID_42 = 142, 143, 42

FFN_SHAPES = {"ffn_gate": [HIDDEN, FFN], "ffn_up": [HIDDEN, FFN], "ffn_down": [FFN, HIDDEN]}
DELTA = {"attn_qkv": [HIDDEN, CHANNELS], "attn_gate": [HIDDEN, VALUES],
         "ssm_out": [VALUES, HIDDEN], **FFN_SHAPES}
ATTENTION = {"attn_q": [HIDDEN, 2 * HEADS * HEAD_DIM], "attn_k": [HIDDEN, HEAD_DIM],
             "attn_v": [HIDDEN, HEAD_DIM], "attn_output": [HEADS * HEAD_DIM, HIDDEN], **FFN_SHAPES}
NORMS = {"attn_norm.weight": [HIDDEN], "post_attention_norm.weight": [HIDDEN]}
DELTA_PLAIN = {"ssm_alpha.weight": [HIDDEN, VALUE_HEADS], "ssm_beta.weight": [HIDDEN, VALUE_HEADS],
               "ssm_conv1d.weight": [TAPS, CHANNELS], "ssm_a": [VALUE_HEADS],
               "ssm_dt.bias": [VALUE_HEADS], "ssm_norm.weight": [DELTA_DIM], **NORMS}
ATTENTION_PLAIN = {"attn_q_norm.weight": [HEAD_DIM], "attn_k_norm.weight": [HEAD_DIM], **NORMS}
LAYERS = [(DELTA, DELTA_PLAIN), (ATTENTION, ATTENTION_PLAIN)]

ROTATED = ["output.weight"] + [f"blk.{i}.{name}.weight" for i, (matrices, _) in enumerate(LAYERS)
                               for name in matrices]
SIGNS = [-1 if i * i % 7 == 2 else 1 for i in range(HIDDEN + FFN)]


def hadamard(name):
    return "prism.hadamard." + name


def qwen35():
    """A layer of Gated DeltaNet and one of attention, matrices PQ2_0, rotated."""
    model = GgufFile([
        ["general.architecture", STRING, text("qwen35")],
        ["qwen35.block_count", *u32(2)],
        ["qwen35.context_length", *u32(64)],
        ["qwen35.embedding_length", *u32(HIDDEN)],
        ["qwen35.feed_forward_length", *u32(FFN)],
        ["qwen35.attention.head_count", *u32(HEADS)],
        ["qwen35.attention.head_count_kv", *u32(1)],
        ["qwen35.attention.key_length", *u32(HEAD_DIM)],
        ["qwen35.attention.value_length", *u32(HEAD_DIM)],
        ["qwen35.attention.layer_norm_rms_epsilon", *f32(1e-6)],
        ["qwen35.rope.freq_base", *f32(1e7)],
        ["qwen35.rope.dimension_count", *u32(16)],
        ["qwen35.rope.dimension_sections", *ints([3, 3, 2, 0])],
        ["qwen35.full_attention_interval", *u32(2)],
        ["qwen35.ssm.conv_kernel", *u32(TAPS)],
        ["qwen35.ssm.state_size", *u32(DELTA_DIM)],
        ["qwen35.ssm.group_count", *u32(KEY_HEADS)],
        ["qwen35.ssm.time_step_rank", *u32(VALUE_HEADS)],
        ["qwen35.ssm.inner_size", *u32(VALUES)],
        [hadamard("version"), *u32(1)],
        [hadamard("block_size"), *u32(BLOCK)],
        [hadamard("transform"), STRING, text("normalized-sylvester-walsh-hadamard")],
        [hadamard("axis"), STRING, text("input-last-dimension")],
        [hadamard("sign_mode"), STRING, text("explicit")],
        [hadamard("sign_widths"), *ints([HIDDEN, FFN])],
        [hadamard("sign_values"), *ints(SIGNS)],
        [hadamard("weight_names"), *strings(ROTATED)],
        [hadamard("inverse_weight_names"), *strings(["token_embd.weight"])],
        [hadamard("gdn_v_grouped"), BOOL, b"\1"],
        ["tokenizer.ggml.model", STRING, text("gpt2")],
        ["tokenizer.ggml.pre", STRING, text("qwen35")],
        ["tokenizer.ggml.tokens", *strings(["<|end|>"] + [chr(33 + i) for i in range(VOCAB - 1)])],
        ["tokenizer.ggml.token_type", *ints([3] + [1] * (VOCAB - 1))],
        ["tokenizer.ggml.merges", *strings([])],
        ["tokenizer.ggml.eos_token_id", *u32(0)],
    ], {"token_embd.weight": [HIDDEN, VOCAB], "output.weight": [HIDDEN, VOCAB],
        "output_norm.weight": [HIDDEN]})
    for i in range(2):
        add_layer(model, i, *LAYERS[i])
    for name in ROTATED + ["token_embd.weight"]:
        model.tensor(name)["type"] = PQ2_0
    return model


def add_layer(model, index, matrices, plain):
    shapes = {**{name + ".weight": dims for name, dims in matrices.items()}, **plain}
    model.tensors += [{"name": f"blk.{index}.{name}", "dims": dims, "type": 0, "offset": None,
                       "n_dims": None} for name, dims in shapes.items()]


def all_of(*spoilers):
    return lambda m: [spoil(m) for spoil in spoilers] and None


def number(name, value):
    return set_key(name, *u32(value))


def names(*lists):
    """The weights that a rotation lists."""
    return set_key(hadamard("weight_names"), *strings(sum(lists, [])))


def without(*suffixes):
    return [name for name in ROTATED if not name.endswith(tuple(s + ".weight" for s in suffixes))]


def rotation_defects(cases):
    def case(name, spoil, error):
        cases.model("rotation-" + name, spoil, ": " + error)

    key = lambda name: f"'{hadamard(name)}'"
    pick = lambda name: lambda kind, raw: set_key(hadamard(name), kind, raw)
    version, block = pick("version"), pick("block_size")
    for value in (0, 3, 1 << 31):
        case(f"version-{value}", version(*u32(value)),
             f"{key('version')} is {value}; 1 and 2 are supported")
    case("version-text", version(STRING, text("1")),
         f"metadata key {key('version')} is of type string; an integer expected")
    case("no-version", drop_key(hadamard("version")), f"metadata has {key('axis')} but not "
         f"{key('version')}; the file is damaged, get it again")
    for value in (0, 1000, 8, 1 << 20):
        case(f"block-{value}", block(*u32(value)),
             f"{key('block_size')} is {value}; a power of two from 16 to 65536 expected")
    case("block-text", block(STRING, text("128")),
         f"metadata key {key('block_size')} is of type string; an integer expected")
    case("block-float", block(*f32(128)),
         f"metadata key {key('block_size')} is of type float; an integer expected")
    for name in ("block_size", "transform", "axis", "sign_mode"):
        case("no-" + name, drop_key(hadamard(name)),
             f"metadata key {key(name)} is missing; the file is incomplete")
    case("transform", pick("transform")(STRING, text("hadamard")), f"{key('transform')} is "
         "'hadamard'; 'normalized-sylvester-walsh-hadamard' is supported")
    case("axis", pick("axis")(STRING, text("output")),
         f"{key('axis')} is 'output'; 'input-last-dimension' is supported")
    case("sign-mode", pick("sign_mode")(STRING, text("random")),
         f"{key('sign_mode')} is 'random'; 'identity' and 'explicit' are supported")
    case("unknown-key", add_key(hadamard("seed"), *u32(7)),
         f"metadata key {key('seed')} is unknown; the rotation cannot be applied without it")
    case("grouped-number", pick("gdn_v_grouped")(*u32(1)),
         f"metadata key {key('gdn_v_grouped')} is of type integer; a bool expected")

    # Signs.
    for value in (192, -128, 0):
        case(f"width-{value}", pick("sign_widths")(*ints([HIDDEN, FFN, value])),
             f"{key('sign_widths')} holds {value}; positive multiples of the block size 128 "
             "expected")
    case("width-twice", all_of(pick("sign_widths")(*ints([HIDDEN, FFN, HIDDEN])),
                               pick("sign_values")(*ints(SIGNS + [1] * HIDDEN))),
         f"{key('sign_widths')} holds 128 twice")
    for name, values in (("few", SIGNS[:-1]), ("many", SIGNS + [1]), ("none", [])):
        case(f"signs-{name}", pick("sign_values")(*ints(values)), f"{key('sign_values')} has "
             f"{len(values)} entries; the widths of {key('sign_widths')} add up to 384")
    case("width-huge", pick("sign_widths")(*ints([HIDDEN, FFN, 1 << 30])), f"{key('sign_values')} "
         f"has 384 entries; the widths of {key('sign_widths')} add up to {384 + (1 << 30)}")
    case("width-missing", all_of(pick("sign_widths")(*ints([HIDDEN])),
                                 pick("sign_values")(*ints(SIGNS[:HIDDEN]))),
         f"{key('sign_widths')} has no 256, the width of 'blk.0.ffn_down.weight'")
    for value in (0, 2, -3):
        case(f"sign-{value}", pick("sign_values")(*ints(SIGNS[:9] + [value] + SIGNS[10:])),
             f"{key('sign_values')} holds {value} at entry 9; 1 and -1 are possible")
    case("signs-float", pick("sign_values")(ARRAY, array(F32, [struct.pack("<f", 1)] * 384)),
         f"metadata key {key('sign_values')} is of type float[]; an array of integers expected")
    case("identity-signs", pick("sign_mode")(STRING, text("identity")),
         f"{key('sign_mode')} is 'identity', but there are 384 {key('sign_values')}")
    for name in ("sign_widths", "sign_values"):
        case("no-" + name, drop_key(hadamard(name)),
             f"{key(name)} is missing; sign mode 'explicit' needs it")

    # Lists of weights.
    lists, listed = key("weight_names"), f"{key('weight_names')} lists"
    empty = f"{lists} is missing or empty; a rotation lists its weights"
    case("names-empty", names(), empty)
    case("names-missing", drop_key(hadamard("weight_names")), empty)
    case("names-text", set_key(hadamard("weight_names"), STRING, text("output.weight")),
         f"metadata key {lists} is of type string; an array of strings expected")
    case("names-twice", names(ROTATED, ["output.weight"]), f"{listed} 'output.weight' twice")
    absent = "the rotation lists {}, which the file does not have"
    case("name-absent", names(ROTATED, ["blk.7.attn_q.weight"]),
         absent.format("'blk.7.attn_q.weight'"))
    for name in ("blk.0.ssm_alpha.weight", "blk.0.ssm_norm.weight", "blk.1.attn_norm.weight",
                 "token_embd.weight", "output.bias", "", "blk.0.attn_q"):
        case("kind-" + (name or "none"), names(ROTATED, [name]), f"{listed} '{name}'; a rotation "
             "of that kind of weight is not supported")
    case("name-hostile", names(ROTATED, ["\n\x7f" + "y" * 200]), f"{listed} '\\x0a\\x7f{'y' * 58}"
         "...'; a rotation of that kind of weight is not supported")
    case("not-whole-blocks", all_of(block(*u32(FFN)), pick("sign_widths")(*ints([FFN])),
                                    pick("sign_values")(*ints(SIGNS[:FFN]))),
         "the rotation lists 'output.weight', whose rows of 128 values are not whole blocks of 256")
    share = "which share their input; all or none can be rotated"
    some = f"{listed} some of"
    attention = "'blk.1.attn_q.weight', 'blk.1.attn_k.weight', 'blk.1.attn_v.weight'"
    case("without-attn_k", names(without("attn_k")), f"{some} {attention}, {share}")
    case("only-attn_q", names(without("attn_k", "attn_v")), f"{some} {attention}, {share}")
    case("without-attn_gate", names(without("attn_gate")),
         f"{some} 'blk.0.attn_qkv.weight', 'blk.0.attn_gate.weight', {share}")
    case("without-ffn_up", names(without("1.ffn_up")),
         f"{some} 'blk.1.ffn_gate.weight', 'blk.1.ffn_up.weight', {share}")
    for here, missing in ((0, 1), (1, 0)):
        case(f"ffn_down-{here}", names(without(f"{missing}.ffn_down")),
             f"{listed} 'blk.{here}.ffn_down.weight', but not 'blk.{missing}.ffn_down.weight'; list "
             "all or none")

    # The embedding and the head.
    inverse = pick("inverse_weight_names")
    for name in ("output.weight", "blk.0.attn_qkv.weight", ""):
        case("inverse-" + (name or "none"), inverse(*strings([name])),
             f"{key('inverse_weight_names')} lists '{name}'; only 'token_embd.weight' is supported")
    case("inverse-text", inverse(STRING, text("token_embd.weight")), "metadata key "
         f"{key('inverse_weight_names')} is of type string; an array of strings expected")
    headless = all_of(lambda m: m.tensors.remove(m.tensor("output.weight")),
                      names(without("output")))
    case("no-head", headless, "'token_embd.weight' is rotated and 'output.weight' is missing; "
         "version 1 of the rotation has no tied output")
    tied = add_key(hadamard("tied_output"), BOOL, b"\1")
    case("tied-1", tied, f"{key('tied_output')} is true; version 1 has no tied output")
    case("tied-text", add_key(hadamard("tied_output"), STRING, text("yes")),
         f"metadata key {key('tied_output')} is of type string; a bool expected")
    second = version(*u32(2))
    wants = (f"{key('version')} is 2; it needs {key('tied_output')} true, 'token_embd.weight' in "
             f"{key('inverse_weight_names')} and no 'output.weight'")
    case("2-not-tied", all_of(second, headless), wants)
    case("2-head", all_of(second, tied), wants)
    case("2-no-inverse", all_of(second, headless, tied, drop_key(hadamard("inverse_weight_names"))),
         wants)
    cases.model("good-2", all_of(second, headless, tied), "")
    cases.model("good-identity", all_of(
        pick("sign_mode")(STRING, text("identity")), pick("sign_values")(*ints([]))), "")
    cases.model("good-unsigned", pick("sign_widths")(*ints([HIDDEN, FFN], U32)), "")


def three_layers(delta_first):
    """Makes block 2 one more of a kind; with it at blocks 0 and 2, or at 1 and 2."""
    kind = 0 if delta_first else 1

    def spoil(model):
        add_layer(model, 2, *LAYERS[kind])
        for name in LAYERS[kind][0]:
            model.tensor(f"blk.2.{name}.weight")["type"] = PQ2_0
    return all_of(spoil, number("qwen35.block_count", 3))


def rotated_layers(name, layers, others):
    """Lists `name` of some of three layers, and all else of them."""
    all_names = without(name) + [f"blk.2.{n}.weight" for n in others if n != name]
    return names(all_names, [f"blk.{i}.{name}.weight" for i in layers])


def key_defects(cases):
    def case(name, spoil, error):
        cases.model(name, spoil, ": " + error)

    for name in ("conv_kernel", "state_size", "group_count", "time_step_rank", "inner_size"):
        key = "qwen35.ssm." + name
        case("no-" + name, drop_key(key),
             f"metadata key '{key}' is missing; the file is incomplete")
        for value in (0, -1, 1 << 31):
            kind, raw = (I32, struct.pack("<i", value)) if value < 0 else u32(value)
            case(f"{name}-{value}", set_key(key, kind, raw),
                 f"metadata key '{key}' is {value}; 1 to 2147483647 expected")
        case(f"{name}-float", set_key(key, *f32(4)),
             f"metadata key '{key}' is of type float; an integer expected")
    heads = "'qwen35.ssm.time_step_rank' {} is not a multiple of 'qwen35.ssm.group_count' {}"
    case("value-heads", number("qwen35.ssm.time_step_rank", 5), heads.format(5, 2))
    case("key-heads", number("qwen35.ssm.group_count", 3), heads.format(4, 3))
    inner = "'qwen35.ssm.inner_size' is {}; time_step_rank x state_size is {}"
    case("inner", number("qwen35.ssm.inner_size", 64), inner.format(64, 128))
    case("state", number("qwen35.ssm.state_size", 33), inner.format(128, 132))
    case("state-huge", number("qwen35.ssm.state_size", (1 << 31) - 1),
         inner.format(128, 4 * ((1 << 31) - 1)))
    case("state-wide", all_of(number("qwen35.ssm.state_size", 513),
                              number("qwen35.ssm.inner_size", 4 * 513)),
         "'qwen35.ssm.state_size' is 513; up to 512 is supported")
    for value in (1, 9, 99):
        case(f"conv-{value}", number("qwen35.ssm.conv_kernel", value),
             f"'qwen35.ssm.conv_kernel' is {value}; 2 to 8 is supported")
    case("conv-shape", number("qwen35.ssm.conv_kernel", 3), "tensor 'blk.0.ssm_conv1d.weight' has "
         "shape [4, 256]; the model's metadata asks for [3, 256]")
    case("groups-shape", number("qwen35.ssm.group_count", 4), "tensor 'blk.0.attn_qkv.weight' has "
         "shape [128, 256]; the model's metadata asks for [128, 384]")
    case("heads-shape", all_of(number("qwen35.ssm.state_size", 64),
                               number("qwen35.ssm.inner_size", 256)),
         "tensor 'blk.0.ssm_out.weight' has shape [128, 128]; the model's metadata asks for "
         "[256, 128]")
    interval = "qwen35.full_attention_interval"
    for value in (0, 3, (1 << 32) - 1):
        case(f"interval-{value}", number(interval, value),
             f"'{interval}' is {value}; 1 to 'qwen35.block_count' 2 expected")
    case("interval-text", set_key(interval, STRING, text("2")),
         f"metadata key '{interval}' is of type string; an integer expected")
    missing = "tensor 'blk.0.attn_output.weight' is missing; the file is incomplete, get it again"
    case("interval-1", number(interval, 1), missing)
    listed = "qwen35.attention.recurrent_layers"
    bools = lambda *values: add_key(listed, ARRAY, array(BOOL, [bytes([v]) for v in values]))
    for values in ((), (1,), (1, 0, 1)):
        case(f"recurrent-{len(values)}", bools(*values),
             f"'{listed}' has {len(values)} entries for 'qwen35.block_count' 2")
    case("recurrent-ints", add_key(listed, *ints([1, 0])),
         f"metadata key '{listed}' is of type integer[]; an array of bools expected")
    case("recurrent-all", bools(1, 1), f"'{listed}' makes every layer recurrent; at least one must "
         "be attention")
    case("recurrent-swapped", bools(0, 1), missing)
    nextn = "qwen35.nextn_predict_layers"
    for value in (-1, 2, 70000):
        case(f"nextn-{value}", add_key(nextn, I32, struct.pack("<i", value)),
             f"'{nextn}' is {value}; 0 to less than 'qwen35.block_count' 2 expected")
    case("nextn-text", add_key(nextn, STRING, text("1")),
         f"metadata key '{nextn}' is of type string; an integer expected")
    case("nextn-all-recurrent", add_key(nextn, *u32(1)),
         f"'{interval}' makes every layer recurrent; at least one must be attention")
    case("blocks-huge", number("qwen35.block_count", (1 << 31) - 1), "'qwen35.block_count' is "
         "2147483647, but there are only 28 tensors")
    case("key-heads-many", all_of(
        *[number("qwen35.ssm." + key, 8192) for key in
          ("group_count", "time_step_rank", "inner_size")], number("qwen35.ssm.state_size", 1),
        set_tensor("blk.0.ssm_out.weight", dims=[8192, HIDDEN]), names(without("ssm_out"))),
         "the model has 8192 key heads; at most 4096 are supported")
    sections = "qwen35.rope.dimension_sections"
    rule = "; 3 or 4, not all of them 0, expected"
    for values in ([], [8], [3, 3, 2, 0, 0], [0, 0, 0, 0]):
        case(f"sections-{len(values)}-{sum(values)}", set_key(sections, *ints(values)),
             f"'{sections}' has {len(values)} entries that add up to {sum(values)}{rule}")
    for value in (-1, 513, (1 << 31) - 1):
        case(f"sections-of-{value}", set_key(sections, *ints([3, 3, value])),
             f"'{sections}' holds {value}; 0 to 512 expected")
    case("sections-many", set_key(sections, *ints([1] * (1 << 18))),
         f"'{sections}' has {1 << 18} entries that add up to {1 << 18}{rule}")
    case("sections-text", set_key(sections, STRING, text("3")),
         f"metadata key '{sections}' is of type string; an array of integers expected")

    # Lists that rotate a kind in some layers only.
    some = f"'{hadamard('weight_names')}' lists"
    case("ssm_out-first", all_of(three_layers(True), bools(1, 0, 1),
                                 rotated_layers("ssm_out", [0], DELTA)),
         f"{some} 'blk.0.ssm_out.weight', but not 'blk.2.ssm_out.weight'; list all or none")
    case("attn_output-second", all_of(three_layers(False), bools(1, 0, 0),
                                      rotated_layers("attn_output", [2], ATTENTION)),
         f"{some} 'blk.2.attn_output.weight', but not 'blk.1.attn_output.weight'; list all or none")
    cases.model("good-three", all_of(three_layers(True), bools(1, 0, 1),
                                     rotated_layers("ssm_out", [0, 2], DELTA)), "")


def tensor_defects(cases):
    def case(name, spoil, error):
        cases.model(name, spoil, ": " + error)

    def drop(name):
        return lambda m: m.tensors.remove(m.tensor(name))

    for name in list(DELTA_PLAIN) + ["attn_gate.weight"]:
        rotated = "blk.0." + name in ROTATED
        case("missing-" + name, drop("blk.0." + name),
             f"the rotation lists 'blk.0.{name}', which the file does not have" if rotated else
             f"tensor 'blk.0.{name}' is missing; the file is incomplete, get it again")
    for name in ("attn_q_norm.weight", "attn_k_norm.weight"):
        case("missing-" + name, drop("blk.1." + name),
             f"tensor 'blk.1.{name}' is missing; the file is incomplete, get it again")
    shapes = [(0, name, dims) for name, dims in DELTA_PLAIN.items()]
    shapes += [(0, name + ".weight", dims) for name, dims in DELTA.items()]
    shapes += [(1, name, dims) for name, dims in ATTENTION_PLAIN.items()]
    shapes += [(1, name + ".weight", dims) for name, dims in ATTENTION.items()]
    for i, name, dims in shapes:
        wrong = dims[:-1] + [dims[-1] + 1]
        case(f"shape-{i}-{name}", set_tensor(f"blk.{i}.{name}", dims=wrong), f"tensor 'blk.{i}."
             f"{name}' has shape {wrong}; the model's metadata asks for {dims}")
    case("shape-conv-turned", set_tensor("blk.0.ssm_conv1d.weight", dims=[CHANNELS, TAPS]),
         "tensor 'blk.0.ssm_conv1d.weight' has shape [256, 4]; the model's metadata asks for "
         "[4, 256]")
    no_place = ("tensor '{}' has no place in architecture 'qwen35'; a part of the model would be "
                "left out")

    def more(name):
        return lambda m: m.tensors.append(dict(m.tensor("blk.0.ffn_up.weight"), name=name))

    case("unclaimed", more("blk.0.ssm_d"), no_place.format("blk.0.ssm_d"))
    case("unclaimed-hostile", more("a\nb\x1b"), no_place.format("a\\x0ab\\x1b"))
    hostile = "blk.\n.ffn_up.weight"
    case("rotated-hostile", all_of(more(hostile), names(ROTATED, [hostile])),
         no_place.format("blk.\\x0a.ffn_up.weight"))

    def mtp(model):
        add_layer(model, 2, ATTENTION, ATTENTION_PLAIN)
        add_layer(model, 2, {}, {"nextn.eh_proj.weight": [2 * HIDDEN, HIDDEN],
                                 "nextn.enorm.weight": [HIDDEN]})
    case("mtp-unsaid", mtp, no_place.format("blk.2.attn_q.weight"))
    said = all_of(number("qwen35.block_count", 3), add_key("qwen35.nextn_predict_layers", *u32(1)))
    cases.model("good-mtp", all_of(mtp, said), "")
    cases.model("good-mtp-listed", all_of(mtp, said, names(ROTATED, ["blk.2.attn_q.weight"])), "")

    damaged = "holds a value that is not finite; the file is damaged, get it again"

    def scale(name, kind, at, bits):
        return all_of(set_tensor(name, type=kind), lambda m: m.patch.__setitem__(
            name, b"\0" * at + struct.pack("<H", bits)))

    for what, bits in (("nan", 0x7E00), ("infinite", 0x7C00), ("minus-infinite", 0xFC00)):
        for name in ("blk.0.ssm_out.weight", "blk.1.attn_v.weight", "output.weight"):
            case(f"{what}-pq2_0-{name}", scale(name, PQ2_0, 0, bits), f"tensor '{name}' {damaged}")
            case(f"{what}-ptq1_0-{name}", scale(name, PTQ1_0, 26, bits),
                 f"tensor '{name}' {damaged}")
    # Rows of the embedding are read as tokens need them: a request that meets one of these fails.
    cases.model("good-nan-embedding", scale("token_embd.weight", PQ2_0, 0, 0x7E00), "")
    for name in ("ssm_a", "ssm_dt.bias", "ssm_conv1d.weight", "ssm_norm.weight"):
        case("nan-" + name, lambda m, n=name: m.patch.__setitem__(
            "blk.0." + n, struct.pack("<f", float("nan"))), f"tensor 'blk.0.{name}' {damaged}")
    cases.model("good-code-3", lambda m: m.patch.__setitem__(
        "blk.0.attn_qkv.weight", struct.pack("<H", 0x3C00) + b"\xff" * 32), "")
    for name in ("ssm_a", "ssm_dt.bias", "ssm_norm.weight"):
        case("type-" + name, set_tensor("blk.0." + name, dims=[32], type=8),
             f"'blk.0.{name}' is of type Q8_0; F32, F16 or BF16 expected" if "norm" in name else
             f"tensor 'blk.0.{name}' has shape [32]; the model's metadata asks for [4]")


def retag(matrices, data):
    """Writes type 42 over PQ2_0 matrices whose names end so, laid out as `data`."""
    def spoil(model):
        for tensor in model.tensors:
            if tensor["type"] == PQ2_0 and tensor["name"].endswith(matrices):
                tensor.update(type=ID_42, data=data)
    return spoil


def split(model, in_second):
    """Two parts: tensors of the layers in_second go to the second."""
    second = GgufFile([], {})
    second.patch = model.patch
    for tensor in [t for t in model.tensors if t["name"].startswith(in_second)]:
        model.tensors.remove(tensor)
        second.tensors.append(tensor)
    for no, part in enumerate((model, second)):
        part.keys += [["split.no", *u32(no)], ["split.count", *u32(2)],
                      ["split.tensors.count", *u32(len(model.tensors) + len(second.tensors))]]
    return model.build()[0], second.build()[0]


def legacy_files(cases):
    """Type 42 with groups of 128, as it was first used: known by the room that a tensor has."""
    legacy, current = retag(".weight", PQ2_0), retag(".weight", ID_42)
    cases.model("good-legacy", legacy, "")
    cases.model("good-q2_0", current, "")
    small = set_tensor("blk.0.ssm_alpha.weight", type=ID_42, data=PQ2_0)  # of either kind
    cases.model("good-legacy-small", all_of(legacy, small), "")
    mixed = (": type 42 means groups of 128 in tensor '{}' and of 64 in '{}', by the room they "
             "have; convert the file again")
    cases.model("legacy-mixed", all_of(retag("down.weight", ID_42), legacy),
                mixed.format("blk.0.ffn_up.weight", "blk.0.ffn_down.weight"))
    cases.model("legacy-mixed-first", all_of(retag("token_embd.weight", ID_42), legacy),
                mixed.format("output.weight", "token_embd.weight"))
    for cut in (1, 4000, 12000):  # into the last tensors
        model = cases.make()
        legacy(model)
        raw = model.build()[0][:-cut]
        cases.write(f"{cases.prefix}legacy-cut-{cut}", raw, model.cut_error(len(raw)))

    def parts(name, spoil, error, names_second=False):
        model = cases.make()
        spoil(model)
        stem = f"{cases.prefix}{name}-0000%d-of-00002"
        first, second = split(model, "blk.1.")
        (cases.folder / (stem % 2 + ".gguf")).write_bytes(second)
        cases.write(stem % 1, first, error)
        if names_second:
            cases.manifest[-1]["names"] = stem % 2 + ".gguf"

    parts("good-split", lambda m: None, "")
    parts("good-legacy-split", legacy, "")
    parts("good-legacy-split-small", all_of(legacy, small), "")
    layer = tuple(f"blk.1.{name}.weight" for name in ATTENTION)
    parts("legacy-split-mixed", all_of(retag(layer, ID_42), legacy), ": type 42 means groups of 64 "
          "here and of 128 in an earlier part; convert the model again", names_second=True)
    parts("q2_0-split-mixed", all_of(retag(layer, PQ2_0), current), ": type 42 means groups of 128 "
          "here and of 64 in an earlier part; convert the model again", names_second=True)


def add(llama_cases):
    cases = Cases(llama_cases.folder, qwen35, "qwen35-", llama_cases.manifest)
    cases.model("good", lambda m: None, "")
    for defects in (rotation_defects, key_defects, tensor_defects, legacy_files):
        defects(cases)
