// libFuzzer target: any text through the tokenizers of tests/data/tokenizers. The first byte picks
// the tokenizer; the rest is text, where each byte FF ends a span and turns control tokens on or
// off. Besides that nothing may crash: which texts are refused, the spans, that text gives no
// control token, and that the pieces give back the text where nothing is meant to be lost.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/text/bpe_tokenizer.h"
#include "src/text/utf8.h"
#include "src/weights/weight_store.h"

namespace {

using trine::Tokenizer;
using trine::TokenType;
using Special = Tokenizer::Special;
using Ids = std::vector<int32_t>;

void Require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
T Must(trine::Result<T> result) {
  Require(result.ok());
  return std::move(*result);
}

struct Subject {
  std::unique_ptr<Tokenizer> tokenizer;
  bool keeps_text;  // the pieces give back the text
};

Subject FromJson(const std::string& name, bool plain) {
  std::ifstream file(std::string(TRINE_TEST_DATA) + "/tokenizers/" + name + ".json");
  nlohmann::json root = nlohmann::json::parse(file);
  if (plain) {
    root["normalizer"] = nullptr;
    for (auto& token : root["added_tokens"]) token["lstrip"] = token["rstrip"] = false;
  }
  trine::HfTokenizerFiles files;
  files.tokenizer = root.dump();
  return {Must(trine::ReadTokenizerJson(files)), plain};
}

Subject FromGguf(const std::string& name, bool keeps_text) {
  const auto store =
      Must(trine::OpenWeights(std::string(TRINE_TEST_DATA) + "/tokenizers/" + name + ".gguf"));
  return {Must(Tokenizer::FromMetadata(store->metadata())), keeps_text};
}

std::vector<Subject> MakeSubjects() {
  std::vector<Subject> subjects;
  subjects.push_back(FromJson("qwen", /*plain=*/true));
  subjects.push_back(FromGguf("spm_bytes", /*keeps_text=*/true));
  subjects.push_back(FromJson("qwen", /*plain=*/false));
  subjects.push_back(FromJson("traps", /*plain=*/false));
  subjects.push_back(FromJson("unknown", /*plain=*/false));
  subjects.push_back(FromJson("fused", /*plain=*/false));
  subjects.push_back(FromGguf("spm_unknown", /*keeps_text=*/false));
  return subjects;
}

bool Has(const Tokenizer& tokenizer, const Ids& ids, trine::TokenType type) {
  return std::any_of(ids.begin(), ids.end(),
                     [&](int32_t id) { return tokenizer.Type(id) == type; });
}

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// SentencePiece knows one kind of space, and puts one in front and behind tokens of these types.
void CheckPieces(const Tokenizer& tokenizer, const std::string& text, const Ids& ids) {
  std::string pieces;
  for (const int32_t id : ids) pieces += tokenizer.Piece(id);
  if (!tokenizer.adds_space()) return Require(pieces == text);
  if (Has(tokenizer, ids, TokenType::kControl) || Has(tokenizer, ids, TokenType::kUnknown)) return;
  const std::string spaced = Replace(text, "\xE2\x96\x81", " ");
  Require(pieces == (text.empty() ? "" : " " + spaced));
  trine::Detokenizer detokenizer(tokenizer, trine::Detokenizer::Start::kText);
  std::string decoded;
  for (const int32_t id : ids) decoded += detokenizer.Next(id);
  Require(decoded + detokenizer.Finish() == spaced);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Subject> subjects = MakeSubjects();
  if (size == 0) return 0;
  const Subject& subject = subjects[data[0] % subjects.size()];
  const Tokenizer& tokenizer = *subject.tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<Tokenizer::TextSpan> spans;
  std::string text;
  bool parses = false;
  for (size_t at = 0; at <= input.size();) {
    const size_t end = std::min(input.find('\xFF', at), input.size());
    spans.push_back({input.substr(at, end - at), parses ? Special::kParse : Special::kAsText});
    text += spans.back().text;
    parses = !parses;
    at = end + 1;
  }
  const auto mixed = tokenizer.Encode(spans);
  Require(mixed.ok() == (trine::ValidUtf8Prefix(text) == static_cast<int64_t>(text.size())));
  if (!mixed.ok()) return 0;
  for (auto& span : spans) span.special = Special::kAsText;
  const Ids as_text = Must(tokenizer.Encode(spans));
  const Ids parsed = Must(tokenizer.Encode(text, Special::kParse));
  Require(as_text == Must(tokenizer.Encode(text, Special::kAsText)));
  Require(!Has(tokenizer, as_text, TokenType::kControl));
  if (!subject.keeps_text) return 0;
  for (const Ids& ids : {*mixed, as_text, parsed}) CheckPieces(tokenizer, text, ids);
  return 0;
}
