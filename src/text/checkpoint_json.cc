#include "src/text/checkpoint_json.h"

#include <filesystem>

#include "src/core/text_file.h"

namespace trine {
namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kChatTemplate = "chat_template.jinja";

// Far above the largest vocabulary's; parsing takes about 20 times as much memory.
constexpr int64_t kMaxBytes = int64_t{128} << 20;

// "" where there is no such file.
Result<std::string> ReadBeside(const std::string& tokenizer_path, const char* name) {
  const auto path = std::filesystem::path(tokenizer_path).parent_path() / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::string();
  TRINE_ASSIGN(std::string text, ReadTextFile(path.string(), kMaxBytes));
  if (text.empty()) return BadInput(path.string() + " is empty; remove it or complete it");
  return text;
}

Status Parse(const std::string& text, const char* name, nlohmann::json* object) {
  TRINE_ASSIGN(*object, ParseJson(text, name));
  if (!object->is_object())
    return BadInput(std::string(name) + " is not an object; fetch it again");
  return {};
}

}  // namespace

Result<HfTokenizerFiles> ReadTokenizerFiles(const std::string& tokenizer_path) {
  HfTokenizerFiles files;
  TRINE_ASSIGN(files.tokenizer, ReadTextFile(tokenizer_path, kMaxBytes));
  TRINE_ASSIGN(files.tokenizer_config, ReadBeside(tokenizer_path, kConfig));
  TRINE_ASSIGN(files.generation_config, ReadBeside(tokenizer_path, kGeneration));
  TRINE_ASSIGN(files.chat_template, ReadBeside(tokenizer_path, kChatTemplate));
  return files;
}

Result<CheckpointJson> ParseTokenizerFiles(const HfTokenizerFiles& files) {
  CheckpointJson json;
  TRINE_RETURN_IF_ERROR(Parse(files.tokenizer, "tokenizer.json", &json.tokenizer));
  if (!files.tokenizer_config.empty()) {
    TRINE_RETURN_IF_ERROR(Parse(files.tokenizer_config, kConfig, &json.config));
  }
  if (!files.generation_config.empty()) {
    TRINE_RETURN_IF_ERROR(Parse(files.generation_config, kGeneration, &json.generation));
  }
  return json;
}

JsonField ConfigOf(const CheckpointJson& files) {
  return {files.config, kConfig};
}

JsonField GenerationOf(const CheckpointJson& files) {
  return {files.generation, kGeneration};
}

Result<std::string> ReadChatTemplate(const JsonField& config, const std::string& jinja) {
  if (!jinja.empty()) return jinja;
  const JsonField chat = config["chat_template"];
  if (chat.is_null()) return std::string();
  if (!chat.value().is_array()) return chat.String();
  std::string result;
  TRINE_ASSIGN(const std::vector<JsonField> items, chat.Items());
  for (const JsonField& item : items) {
    TRINE_ASSIGN(const std::string name, item["name"].String());
    TRINE_ASSIGN(std::string text, item["template"].String());
    if (name == "default") result = std::move(text);
  }
  return result;
}

}  // namespace trine
