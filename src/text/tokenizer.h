// Tokenizer: text to token ids and back. Immutable after creation, so any thread may use it.
// It knows no model and no rank; vocabulary and rules come from Metadata (tokenizer.ggml.*) or from
// Hugging Face's tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  // Byte-level BPE ("gpt2") with the pre-tokenisers smollm, gpt-2, qwen2, qwen35 and llama-bpe, and
  // SentencePiece's BPE ("llama"). An unknown model or pre-tokeniser is refused by name; so are
  // arrays of unequal length, merges that do not parse, scores that are no numbers and ids out of
  // range. Text is not normalised: GGUF has no key that says so.
  static Result<std::unique_ptr<Tokenizer>> FromMetadata(const Metadata& meta);

  // Byte-level BPE from a tokenizer.json and, where they lie beside it, tokenizer_config.json,
  // chat_template.jinja and generation_config.json. From the configuration come only BOS, EOS,
  // padding and the chat template, and its add_bos_token and add_eos_token win over the
  // post-processor; the template in the file of its own wins over that. generation_config.json adds
  // what its eos_token_id names, one id or several, to what ends a generation. Split (Regex or
  // String; Isolated or Removed), Digits, ByteLevel and Sequence pre-tokenisers, NFC or no
  // normaliser and every flag of added tokens are supported, anything else is refused by name.
  // Truncation and padding are not applied. An added token that is "special" is a control token,
  // another one user-defined.
  //
  // With either, BOS, EOS and what else the file says ends a generation are control tokens whatever
  // it types them, and a token that is found as it is written has at most 256 bytes.
  static Result<std::unique_ptr<Tokenizer>> FromJson(const std::string& path);

  virtual ~Tokenizer() = default;

  // Whether control and unknown tokens in the text (<|im_start|>, ...) become their ids: yes for
  // templates and prompts of the caller's own, never for text from a user. User-defined tokens
  // always do.
  enum class Special { kAsText, kParse };
  struct TextSpan {
    std::string_view text;
    Special special;
  };

  // The ids of the concatenated text; no BOS or EOS is added. A border between spans is no border
  // between tokens: it only bounds where control tokens count. One is found where it lies in text
  // of kParse as a whole, be that one span or several in a row; everywhere else its characters are
  // text, which no merging turns into a control token. Tokens are found leftmost first, the longest
  // of those that begin there. Text that is not valid UTF-8, or longer than 2 GiB, is an error
  // naming the byte; a span may end inside a character.
  // So is a byte of text whose only token is a control token; one without any is left out.
  // Linear in time (n log n within a word) and, beside the ids, in memory: at most about 16 bytes
  // for each byte of the longest word. A file's patterns may be worse than linear: a text on which
  // they take many times what known ones do is an error, too.
  // The classes \p{...} in patterns know the characters of the PCRE2 library's Unicode version (14
  // in PCRE2 10.42), and form C those of utf8proc's: text with younger characters may give other
  // ids than Hugging Face's.
  virtual Result<std::vector<int32_t>> Encode(std::span<const TextSpan> spans) const = 0;

  Result<std::vector<int32_t>> Encode(std::string_view text, Special special) const {
    const TextSpan span{text, special};
    return Encode(std::span(&span, 1));
  }

  // The bytes of one token; control tokens give their text. May be part of a UTF-8 character. An id
  // outside the vocabulary (models pad theirs) has no text and is kUnused.
  virtual std::string_view Piece(int32_t id) const = 0;

  virtual TokenType Type(int32_t id) const = 0;
  virtual int64_t size() const = 0;            // vocabulary entries
  virtual std::string_view model() const = 0;  // "gpt2" or "llama"
  virtual std::string_view pre() const = 0;    // "smollm"; "tokenizer.json"; "" for "llama"

  virtual int32_t bos() const = 0;  // -1 if none; so are these:
  virtual int32_t eos() const = 0;
  virtual int32_t pad() const = 0;
  virtual bool add_bos() const = 0;     // the model wants BOS before a text
  virtual bool add_eos() const = 0;     // ... and EOS behind one (not behind a prompt to continue)
  virtual bool adds_space() const = 0;  // Encode puts a space in front, which decoding has to drop
  virtual const std::vector<int32_t>& end_of_generation() const = 0;  // sorted ids
  virtual std::string_view chat_template() const = 0;                 // Jinja; "" if none
};

// Streams the text of a token sequence: holds back bytes until they form whole UTF-8 characters.
class Detokenizer {
 public:
  // What the first token is: the beginning of a text, where a space that Encode put there is
  // dropped; or a continuation, as what a model generates.
  enum class Start { kText, kContinuation };

  explicit Detokenizer(const Tokenizer& tokenizer, Start start = Start::kContinuation)
      : tokenizer_(tokenizer), drop_space_(start == Start::kText && tokenizer.adds_space()) {}

  // The text that became complete with this token (may be empty). Control tokens give no text.
  std::string Next(int32_t id);

  // What is left at the end; an unfinished character comes out as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool drop_space_;  // at the next token with text
  std::string pending_;
};

}  // namespace trine
