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
// ARCH.context_length; all but chat_template.jinja, for the configuration holds the template.
// An error names the key or token: what Tokenizer::FromMetadata refuses; two tokens with the same
// text; merges whose parts or result are no tokens; BOS that is put in front of texts but is of
// normal type; of SentencePiece's BPE, user-defined tokens where a space is put in front of text
// (theirs would get one, too), equal scores, tokens with characters that are no tokens.
//
// There is no normaliser, as GGUF has none. Unused tokens are left out. What ends a generation is
// listed in generation_config.json, EOS first. transformers 5 does not read tokenizer.json's rules
// where config.json's model_type is qwen2 or qwen3_5 (with qwen3_5_text it does): it has its own,
// with NFC.
// tokenizer.json ranks each merge, SentencePiece each token that merges make. Where two ways to
// make the same token overlap in a text, the longer left part is taken first, as Hugging Face's own
// converter does; that ids differ then is possible, but was not seen.
Result<HfTokenizerFiles> ToHuggingFace(const Metadata& meta);

// Adds tokenizer.ggml.*, tokenizer.chat_template and general.sampling.* to `meta`, which has none
// of these yet; after an error it may have some. `vocab_rows`: the rows of the embedding, which
// checkpoints pad: ids without a token become "[PAD{id}]", unused.
//
// BOS, EOS and padding are those of tokenizer_config.json, else of generation_config.json: of
// several EOS the first. One more that no known text tells becomes eot_token_id; two are an error.
// An eot_token_id of GGUF that a known text tells does not come back. add_bos_token and
// add_eos_token are set where the configuration has them or the default is another. A
// `do_sample` that is false is a temperature of 0. chat_template.jinja wins over the configuration.
//
// tokenizer.ggml.pre is the rule with the same patterns. NFC is left out: text that is not in that
// form then gives other ids. A tokenizer.json without pre-tokeniser, or with Metaspace, is
// SentencePiece's BPE, with scores by the order of merges. An error names the file, field, value
// and remedy: patterns that are no rule's; flags of added tokens (single_word, lstrip, rstrip); an
// unknown token that stands for bytes in byte-level BPE; a space put in front of the first word
// alone; merges that are not all ways to make each token, one token after the other; ids beyond
// the rows.
Status FromHuggingFace(const std::string& folder, int64_t vocab_rows, Metadata& meta);

}  // namespace trine
