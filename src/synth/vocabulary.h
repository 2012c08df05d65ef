// A made-up byte-level BPE vocabulary with the size and the special tokens of a Qwen family. Any
// text can be written in it; words of small letters take one token per 3 to 4 letters.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/metadata.h"

namespace trine {

struct VocabularyShape {
  const char* pre;   // tokenizer.ggml.pre
  int64_t size;      // rows of the embedding
  int64_t specials;  // id of the first special token; normal tokens lie below
  int64_t bos, eos, pad;
};

// Of Qwen3.5 and later (architecture qwen35), and of Qwen3 and earlier.
inline constexpr VocabularyShape kQwen35Vocabulary{"qwen35", 248320, 248044,
                                                   248044,   248046, 248055};
inline constexpr VocabularyShape kQwen3Vocabulary{"qwen2", 151936, 151643, 151643, 151645, 151643};

// Adds tokenizer.*: 256 bytes, one token for each merge, the special tokens, and unused ones up to
// the size. All texts differ. Nothing in it depends on a seed.
void DescribeVocabulary(const VocabularyShape& shape, Metadata& metadata);

}  // namespace trine
