"""Builds a HF `tokenizers` object (SmolLM2 style byte-level BPE) from GGUF metadata.

Used by make_smollm2.py and make_tokenizer.py; makes nothing itself.
"""
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

CONTROL = 3


def build(fields):
    """`fields` are those of gguf.GGUFReader."""
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    vocab = {token: number for number, token in enumerate(tokens)}
    out = Tokenizer(BPE(vocab, [tuple(merge.split(" ")) for merge in merges]))
    out.pre_tokenizer = Sequence([Digits(individual_digits=True),
                                  ByteLevel(add_prefix_space=False, use_regex=True)])
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([AddedToken(token, special=True, normalized=False)
                            for token, kind in zip(tokens, types) if kind == CONTROL])
    assert out.get_vocab_size() == len(tokens)
    return out
