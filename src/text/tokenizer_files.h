// Tokenizers between GGUF's metadata and the files of a Hugging Face checkpoint. What Trine reads
// from either encodes to the same ids, and so does what Hugging Face's tokenizers and transformers
// read. They know no tensor.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/metadata.h"
#include "src/core/result.h"

namespace trine {

// The contents of the files of these names; empty: there is no such file.
struct HfTokenizerFiles {
  std::string tokenizer;          // tokenizer.json
  std::string tokenizer_config;   // tokenizer_config.json
  std::string generation_config;  // generation_config.json
  std::string chat_template;      // chat_template.jinja
};

// From tokenizer.ggml.*, tokenizer.chat_template, general.sampling.{temp,top_p,top_k} and
// ARCH.context_length.
Result<HfTokenizerFiles> ToHuggingFace(const Metadata& meta);

// Adds tokenizer.ggml.*, tokenizer.chat_template and general.sampling.* to `meta`. `vocab_rows`:
// the rows of the embedding, which checkpoints pad: ids without a token become "[PAD{id}]", unused.
Status FromHuggingFace(const std::string& folder, int64_t vocab_rows, Metadata& meta);

}  // namespace trine
