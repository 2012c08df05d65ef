// What the tests of src/text share: a vocabulary made by hand, and the cases that other
// implementations computed (tests/oracle/make_tokenizers.py).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "nlohmann/json.hpp"
#include "src/core/metadata.h"
#include "src/text/tokenizer.h"
#include "src/text/utf8.h"

namespace trine {

using Ids = std::vector<int32_t>;
using Special = Tokenizer::Special;

// The character that stands for a byte in a byte-level vocabulary, by the rule of GPT-2.
inline std::string Symbol(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 0x100;
    for (int b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
  }
  std::string symbol;
  AppendUtf8(static_cast<char32_t>(code_point), &symbol);
  return symbol;
}

// A vocabulary whose first 256 tokens are the bytes in order: the id of a byte is its value.
struct Tiny {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<std::string> merges;
  std::map<std::string, MetaValue> more = {{"tokenizer.ggml.model", std::string("gpt2")},
                                           {"tokenizer.ggml.pre", std::string("smollm")}};

  Tiny() {
    for (int byte = 0; byte < 256; ++byte) Add(Symbol(byte));
  }

  int32_t Add(const std::string& token, TokenType type = TokenType::kNormal) {
    tokens.push_back(token);
    types.push_back(static_cast<int64_t>(type));
    return static_cast<int32_t>(tokens.size() - 1);
  }

  // A merge and the token it makes.
  int32_t AddMerge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return Add(left + right);
  }

  void Set(const std::string& key, MetaValue value) {
    more["tokenizer.ggml." + key] = std::move(value);
  }

  Metadata Meta() const {
    Metadata meta;
    meta.Insert("tokenizer.ggml.tokens", tokens);
    meta.Insert("tokenizer.ggml.token_type", types);
    for (const auto& [key, value] : more) meta.Insert(key, value);
    meta.Insert("tokenizer.ggml.merges", merges);  // unless `more` has one
    return meta;
  }

  std::unique_ptr<Tokenizer> Make() const {
    auto tokenizer = Tokenizer::FromMetadata(Meta());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
  }

  std::string Error() const {
    const auto tokenizer = Tokenizer::FromMetadata(Meta());
    return tokenizer.ok() ? "" : tokenizer.status().message();
  }
};

inline Ids Encode(const Tokenizer& tokenizer, std::string_view text,
                  Special special = Special::kAsText) {
  auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

inline Ids Encode(const Tokenizer& tokenizer, std::initializer_list<Tokenizer::TextSpan> spans) {
  auto ids = tokenizer.Encode(std::span(spans.begin(), spans.size()));
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

inline std::string Decode(const Tokenizer& tokenizer, const Ids& ids) {
  Detokenizer detokenizer(tokenizer, Detokenizer::Start::kText);
  std::string text;
  for (int32_t id : ids) text += detokenizer.Next(id);
  return text + detokenizer.Finish();
}

using TextFiles = std::map<std::string, std::string>;  // contents by name

// Files in a folder of their own, removed at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const TextFiles& files)
      : path_(std::filesystem::temp_directory_path() /
              ("trine_text_" + std::to_string(getpid()) + "_" + std::to_string(++count_))) {
    std::filesystem::create_directory(path_);
    for (const auto& [name, contents] : files) {
      std::ofstream(path_ / name, std::ios::binary) << contents;
    }
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }

 private:
  inline static int count_ = 0;
  std::filesystem::path path_;
};

inline std::string Repeat(std::string_view unit, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += unit;
  return text;
}

// The folder of a tokenizer that is too large for the repository: under TRINE_SHARED, or `shared`
// next to it.
inline std::filesystem::path SharedTokenizer(const std::string& name) {
  const char* shared = std::getenv("TRINE_SHARED");
  const std::filesystem::path root =
      shared != nullptr ? shared : std::filesystem::path(TRINE_SOURCE_DIR).parent_path() / "shared";
  return root / "data" / "tokenizers" / name;
}

#define TRINE_SKIP_WITHOUT_SHARED(folder)                                    \
  if (!std::filesystem::exists(folder)) {                                    \
    GTEST_SKIP() << folder << " is not there; set TRINE_SHARED to its root"; \
  }

// [[text, ids with control tokens parsed, ids as text], ...]
using TokenizerCases = std::vector<std::tuple<std::string, Ids, Ids>>;

inline TokenizerCases LoadCases(const std::string& name) {
  const std::string path = std::string(TRINE_TEST_DATA) + "/tokenizers/" + name + ".cases";
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file).get<TokenizerCases>();
}

inline void ExpectCases(const Tokenizer& tokenizer, const std::string& name) {
  const TokenizerCases cases = LoadCases(name);
  EXPECT_GT(cases.size(), 100u);
  for (const auto& [text, parsed, as_text] : cases) {
    EXPECT_EQ(Encode(tokenizer, text, Special::kParse), parsed) << nlohmann::json(text);
    EXPECT_EQ(Encode(tokenizer, text, Special::kAsText), as_text) << nlohmann::json(text);
  }
}

}  // namespace trine
