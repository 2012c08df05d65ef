// Tokenizer: text to token ids and back. Immutable after creation, so any thread may use it.
// It knows no model, file or rank; vocabulary and rules come from Metadata (tokenizer.ggml.*).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/metadata.h"
#include "src/core/result.h"

namespace trine {

// GGUF's token types (tokenizer.ggml.token_type).
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

class Tokenizer {
 public:
  // Byte-level BPE ("gpt2") with the pre-tokenisers smollm, gpt-2, qwen2, qwen35 and llama-bpe. An
  // unknown model or pre-tokeniser is refused
  // by name; so are arrays of unequal length, merges that do not parse and ids out of range.
  static Result<std::unique_ptr<Tokenizer>> FromMetadata(const Metadata& meta);

  virtual ~Tokenizer() = default;

  // Whether control tokens in the text (<|im_start|>, ...) become their ids: yes for templates and
  // prompts of the caller's own, never for text from a user.
  enum class Special { kAsText, kParse };

  // No BOS or EOS is added. Text that is not valid UTF-8 is an error naming the byte offset.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text, Special special) const = 0;

  // The bytes of one token; control tokens give their text. May be part of a UTF-8 character. An id
  // outside the vocabulary (models pad theirs) has no text and is kUnused.
  virtual std::string_view Piece(int32_t id) const = 0;

  virtual TokenType Type(int32_t id) const = 0;
  virtual int64_t size() const = 0;            // vocabulary entries
  virtual std::string_view model() const = 0;  // "gpt2"
  virtual std::string_view pre() const = 0;    // "smollm"

  virtual int32_t bos() const = 0;   // -1 if none
  virtual bool add_bos() const = 0;  // the model wants BOS before a prompt
  virtual const std::vector<int32_t>& end_of_generation() const = 0;  // sorted ids
};

// Streams the text of a token sequence: holds back bytes until they form whole UTF-8 characters.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that became complete with this token (may be empty). Control tokens give no text.
  std::string Next(int32_t id);

  // What is left at the end; an unfinished character comes out as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace trine
