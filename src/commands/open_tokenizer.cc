#include <filesystem>

#include "src/commands/commands.h"

namespace trine {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const fs::path json = folder ? fs::path(path) / "tokenizer.json" : fs::path(path);
  if (json.extension() == ".json") return Tokenizer::FromJson(json);
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(path));
  Result<std::unique_ptr<Tokenizer>> made = TokenizerOf(*store);
  if (!made.ok()) return BadInput(path + ": " + made.status().message());
  return made;
}

}  // namespace trine
