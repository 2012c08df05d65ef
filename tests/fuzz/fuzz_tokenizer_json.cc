// libFuzzer target: any bytes as tokenizer.json and, behind a byte FF, tokenizer_config.json. What
// is accepted must encode: nothing may crash, run away or give an id that does not exist.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/text/bpe_tokenizer.h"

namespace {

constexpr std::string_view kText =
    "<s>Hello, e\xCC\x81 it's 123  ab\n\n<|x|> aaaa\t\xE4\xB8\xAD\xF0\x9F\x98\x80 </s> word <s> ";

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using trine::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(input.find('\xFF'), size);
  trine::HfTokenizerFiles files;
  files.tokenizer = input.substr(0, border);
  if (border < size) files.tokenizer_config = input.substr(border + 1);
  const auto read = trine::ReadTokenizerJson(files);
  if (!read.ok()) {
    const std::string& message = read.status().message();
    Require(!message.empty() && message.find('\n') == std::string::npos);
    return 0;
  }
  const Tokenizer& tokenizer = **read;
  Require(tokenizer.bos() < tokenizer.size() && tokenizer.eos() < tokenizer.size());
  Require(!tokenizer.add_bos() || tokenizer.bos() >= 0);
  for (const auto special : {Tokenizer::Special::kAsText, Tokenizer::Special::kParse}) {
    const auto ids = tokenizer.Encode(kText, special);
    if (!ids.ok()) continue;  // a pattern that takes too long
    trine::Detokenizer detokenizer(tokenizer, trine::Detokenizer::Start::kText);
    for (const int32_t id : *ids) {
      Require(id >= 0 && id < tokenizer.size());
      (void)detokenizer.Next(id);
    }
    (void)detokenizer.Finish();
  }
  return 0;
}
