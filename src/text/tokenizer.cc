#include "src/text/tokenizer.h"

#include "src/core/file.h"
#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"

namespace trine {
namespace {

struct Model {
  std::string_view name;
  Result<std::unique_ptr<Tokenizer>> (*read)(const Metadata& meta);
};
constexpr Model kModels[] = {{"gpt2", ReadByteLevelMetadata}, {"llama", ReadSentencePieceMetadata}};

// Far above the largest vocabulary's; parsing takes about 20 times as much memory.
constexpr int64_t kMaxJsonBytes = int64_t{128} << 20;

Result<std::string> ReadText(const std::string& path) {
  TRINE_ASSIGN(const File file, File::Open(path));
  if (file.size() > kMaxJsonBytes) {
    return BadInput(path + " is " + std::to_string(file.size()) + " bytes long; at most " +
                    std::to_string(kMaxJsonBytes) + " are supported");
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  TRINE_RETURN_IF_ERROR(file.Read(0, file.size(), reinterpret_cast<std::byte*>(text.data())));
  return text;
}

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

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(const std::string& tokenizer_path,
                                                       const std::string& config_path) {
  TRINE_ASSIGN(const std::string tokenizer, ReadText(tokenizer_path));
  std::string config;
  if (!config_path.empty()) {
    TRINE_ASSIGN(config, ReadText(config_path));
    if (config.empty()) return BadInput(config_path + " is empty; leave it out or complete it");
  }
  auto read = ReadTokenizerJson(tokenizer, config);
  if (read.ok()) return read;
  return BadInput(tokenizer_path + (config_path.empty() ? "" : " with " + config_path) + ": " +
                  read.status().message());
}

}  // namespace trine
