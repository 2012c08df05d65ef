"""Makes tests/data/hf/: small random checkpoints as Hugging Face publishes them, and hf.json.

Independent implementation: transformers writes the folders (save_pretrained) and, in
float64 with eager attention, computes the logits.
 - qwen35: the class with vision and mtp tensors around the language model, F32, sharded.
 - qwen35_text: the text class, BF16, layers listed that are no interval.
 - qwen3: F16.  qwen2: BF16, tied, biases.  llama: F32, Llama 3's rope.
Norm weights and A_log have few bits, as training in BF16 leaves them: only then can
1 + w and -exp(A_log) be undone exactly.
Remake: python3 make_tiny_hf.py tests/data/hf
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3_5Config, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration,
                          Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM)

import tiny_vocab
from double import float64_everywhere
from tiny_input import pick_input

VOCAB = 263
LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_REGEX = LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
                r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=0,
              eos_token_id=2)
HYBRID = dict(COMMON, hidden_size=64, intermediate_size=160, num_attention_heads=6,
              num_key_value_heads=2, head_dim=16, linear_conv_kernel_dim=4,
              linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=4,
              linear_num_value_heads=8,
              rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                               "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]})
DENSE = dict(COMMON, hidden_size=96, intermediate_size=160, num_hidden_layers=2,
             num_attention_heads=6, num_key_value_heads=3, head_dim=16)


def hybrid(**extra):
    return Qwen3_5TextConfig(**HYBRID, **extra)


MODELS = {
    "qwen35": (Qwen3_5ForCausalLM, hybrid(num_hidden_layers=4), torch.float32, QWEN35_REGEX),
    "qwen35_text": (Qwen3_5ForCausalLM,
                    hybrid(num_hidden_layers=3, layer_types=["full_attention", "linear_attention",
                                                             "linear_attention"]),
                    torch.bfloat16, QWEN35_REGEX),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**DENSE, rope_theta=1e6), torch.float16, QWEN2_REGEX),
    "qwen2": (Qwen2ForCausalLM,
              Qwen2Config(**DENSE, tie_word_embeddings=True),
              torch.bfloat16, QWEN2_REGEX),
    "llama": (LlamaForCausalLM,
              LlamaConfig(**DENSE, rope_parameters={
                  "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                  "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}), torch.float32, LLAMA3_REGEX),
}


def fill(model, dtype, seed):
    """Weights that keep activations near 1, in numbers that the file's type holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in sorted(model.named_parameters()):
        noise = torch.randn(value.shape, generator=generator)
        if "norm" in name:
            centre = 0.0 if "qwen3_5" in type(model).__module__ and "linear_attn" not in name else 1.0
            noise = centre + (noise * 0.1 * 1024).round() / 1024
        elif name.endswith("A_log"):
            noise = (torch.rand(value.shape, generator=generator) * 4 + 0.05).log().bfloat16().float()
        elif value.ndim > 1:
            noise *= value.shape[-1] ** -0.5 if "conv1d" not in name else 1.0
        with torch.no_grad():
            value.copy_(noise.to(dtype))


def write_tokenizer(folder, regex):
    tokens, types, merges = tiny_vocab.build(VOCAB)
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True}
             for i, (token, kind) in enumerate(zip(tokens, types)) if kind == 3]
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated",
             "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    plain = {token: i for i, (token, kind) in enumerate(zip(tokens, types)) if kind != 3}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level, "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": regex == LLAMA3_REGEX,
                  "vocab": plain, "merges": [merge.split(" ") for merge in merges]}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>",
              "eos_token": "<|im_end|>", "add_bos_token": False, "model_max_length": 256}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def as_conditional(folder, model):
    """The same text model inside the class that also has vision, with other tensors beside it."""
    text = model.config.to_dict()
    config = Qwen3_5Config(text_config=text, vision_config={"depth": 1, "hidden_size": 16})
    config.architectures = [Qwen3_5ForConditionalGeneration.__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    files = sorted(folder.glob("*.safetensors"))
    weight_map = {}
    for path in files:
        tensors = {name.replace("model.", "model.language_model.", 1): value
                   for name, value in load_file(path).items()}
        if path == files[0]:
            tensors["model.visual.blocks.0.norm1.weight"] = torch.ones(16)
            tensors["mtp.fc.weight"] = torch.ones(4, 8, dtype=torch.float64)
        save_file(tensors, path, metadata={"format": "pt"})
        weight_map |= {name: path.name for name in tensors}
    index = folder / "model.safetensors.index.json"
    total = json.loads(index.read_text())["metadata"]
    index.write_text(json.dumps({"metadata": total, "weight_map": weight_map}, indent=2) + "\n")


def exact_logits(cls, config, model):
    """In float64: an input, its greedy continuation, the gap that decided it, the logits."""
    with float64_everywhere():
        exact = cls(config).to(torch.float64).eval()
        exact.load_state_dict({key: value.double() for key, value in model.state_dict().items()})
        tokens, greedy, gap = pick_input("hf", {"vocab": VOCAB, "n_tokens": 40}, exact, 16)
        logits = exact(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    assert logits.dtype == np.float64
    return tokens, greedy, gap, logits


def make_model(cls, config, dtype):
    """The first seed whose network float32 can compute well, by transformers' own: with few and
    narrow heads of Gated DeltaNet a norm may have next to nothing to divide by."""
    config._attn_implementation = "eager"
    for seed in range(30):
        model = cls(config).float()
        fill(model, dtype, seed)
        model = model.eval()
        tokens, greedy, gap, logits = exact_logits(cls, config, model)
        with torch.no_grad():
            rough = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
        largest = abs(logits).max()
        if abs(rough - logits).max() < 5e-6 * largest and gap > 1e-3 * largest:
            return model, tokens, greedy, logits
    raise AssertionError("no seed")


def main(out):
    torch.set_num_threads(1)
    out = pathlib.Path(out)
    shutil.rmtree(out, ignore_errors=True)
    index = {}
    for name, (cls, config, dtype, regex) in MODELS.items():
        model, tokens, greedy, logits = make_model(cls, config, dtype)
        folder = out / name
        model.to(dtype).save_pretrained(folder, max_shard_size="300KB" if name == "qwen35" else "1GB")
        if name == "qwen35":
            as_conditional(folder, model)
        write_tokenizer(folder, regex)
        for path in folder.iterdir():
            path.chmod(0o644)
        (out / f"{name}.logits").write_bytes(logits.astype("<f4").tobytes())
        index[name] = {"tokens": tokens, "greedy": greedy, "logits": f"{name}.logits"}
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{name}: {size} bytes, logits std {logits.std():.2f}")
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in index.items()]
    (out / "hf.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
