#include "src/synth/vocabulary.h"

#include <iterator>
#include <vector>

#include "src/text/byte_level.h"
#include "src/text/tokenizer.h"

namespace trine {
namespace {

// The special tokens of both families, in the order of their ids.
constexpr const char* kControl[] = {"<|endoftext|>",        "<|im_start|>",       "<|im_end|>",
                                    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
                                    "<|box_end|>",          "<|quad_start|>",     "<|quad_end|>",
                                    "<|vision_start|>",     "<|vision_end|>",     "<|vision_pad|>",
                                    "<|image_pad|>",        "<|video_pad|>"};
constexpr const char* kUserDefined[] = {"<tool_call>",      "</tool_call>",   "<|fim_prefix|>",
                                        "<|fim_middle|>",   "<|fim_suffix|>", "<|fim_pad|>",
                                        "<|repo_name|>",    "<|file_sep|>",   "<tool_response>",
                                        "</tool_response>", "<think>",        "</think>"};

constexpr char kChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr int kLetters = 26, kPairs = kLetters * kLetters;

// Tokens and merges as they are made up.
class Builder {
 public:
  explicit Builder(const VocabularyShape& shape) : shape_(shape) {}

  void Build() {
    for (int byte = 0; byte < 256; ++byte) {
      Add(ByteLevelCharacter(static_cast<uint8_t>(byte)), TokenType::kNormal);
    }
    AddMerges();
    for (const char* text : kControl) Add(text, TokenType::kControl);
    for (const char* text : kUserDefined) Add(text, TokenType::kUserDefined);
    while (std::ssize(tokens_) < shape_.size) {
      Add("[PAD" + std::to_string(tokens_.size()) + "]", TokenType::kUnused);
    }
  }

  void MoveInto(Metadata& metadata) {
    metadata.Insert("tokenizer.ggml.tokens", std::move(tokens_));
    metadata.Insert("tokenizer.ggml.token_type", std::move(types_));
    metadata.Insert("tokenizer.ggml.merges", std::move(merges_));
  }

 private:
  static std::string Letter(int i) { return {static_cast<char>('a' + i)}; }
  static std::string Pair(int i) { return Letter(i / kLetters) + Letter(i % kLetters); }

  // Each text is merged from its halves in one way alone: ab; a space with a or ab; abc from ab
  // and c; a space with abc; and then as many of the four-letter words as there is room for, spread
  // over the alphabet.
  void AddMerges() {
    const std::string space = ByteLevelCharacter(' ');
    for (int i = 0; i < kPairs; ++i) Merge(Letter(i / kLetters), Letter(i % kLetters));
    for (int i = 0; i < kLetters; ++i) Merge(space, Letter(i));
    for (int i = 0; i < kPairs; ++i) Merge(space, Pair(i));
    const auto each_triple = [&](auto add) {
      for (int i = 0; i < kPairs * kLetters; ++i) add(Pair(i / kLetters), Letter(i % kLetters));
    };
    each_triple([&](const std::string& pair, const std::string& letter) { Merge(pair, letter); });
    each_triple(
        [&](const std::string& pair, const std::string& letter) { Merge(space, pair + letter); });
    constexpr int64_t kWords = int64_t{kPairs} * kPairs, kStep = 200003;  // no common divisor
    for (int64_t word = 0; std::ssize(tokens_) < shape_.specials; word = (word + kStep) % kWords) {
      Merge(Pair(static_cast<int>(word / kPairs)), Pair(static_cast<int>(word % kPairs)));
    }
  }

  void Merge(const std::string& left, const std::string& right) {
    merges_.push_back(left + ' ' + right);
    Add(left + right, TokenType::kNormal);
  }

  void Add(std::string text, TokenType type) {
    tokens_.push_back(std::move(text));
    types_.push_back(static_cast<int64_t>(type));
  }

  const VocabularyShape& shape_;
  std::vector<std::string> tokens_, merges_;
  std::vector<int64_t> types_;
};

}  // namespace

void DescribeVocabulary(const VocabularyShape& shape, Metadata& metadata) {
  Builder builder(shape);
  builder.Build();
  builder.MoveInto(metadata);
  metadata.Insert("tokenizer.ggml.model", std::string("gpt2"));
  metadata.Insert("tokenizer.ggml.pre", std::string(shape.pre));
  metadata.Insert("tokenizer.ggml.bos_token_id", shape.bos);
  metadata.Insert("tokenizer.ggml.eos_token_id", shape.eos);
  metadata.Insert("tokenizer.ggml.padding_token_id", shape.pad);
  metadata.Insert("tokenizer.ggml.add_bos_token", false);
  metadata.Insert("tokenizer.chat_template", std::string(kChatTemplate));
}

}  // namespace trine
