#include "src/text/tokenizer.h"

#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"
#include "src/text/checkpoint_json.h"

namespace trine {
namespace {

struct Model {
  std::string_view name;
  Result<std::unique_ptr<Tokenizer>> (*read)(const Metadata& meta);
};
constexpr Model kModels[] = {{"gpt2", ReadByteLevelMetadata}, {"llama", ReadSentencePieceMetadata}};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromMetadata(const Metadata& meta) {
  TRINE_ASSIGN(const std::string name, meta.String("tokenizer.ggml.model"));
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) return model.read(meta);
    known += std::string(known.empty() ? "" : ", ").append(model.name);
  }
  return BadInput("tokenizer.ggml.model is " + Quote(name) + "; supported: " + known +
                  "; use a model with one of these");
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(const std::string& path) {
  TRINE_ASSIGN(const HfTokenizerFiles files, ReadTokenizerFiles(path));
  auto read = ReadTokenizerJson(files);
  if (read.ok()) return read;
  return BadInput(path + ": " + read.status().message());
}

}  // namespace trine
