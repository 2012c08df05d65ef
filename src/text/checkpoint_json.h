// The files beside a tokenizer.json in a Hugging Face checkpoint: which there are, and those of
// their fields that tokenizers are read from.
#pragma once

#include <string>

#include "src/core/json_fields.h"
#include "src/core/result.h"
#include "src/text/tokenizer_files.h"

namespace trine {

// The file and what lies in its folder. An error names the path.
Result<HfTokenizerFiles> ReadTokenizerFiles(const std::string& tokenizer_path);

// The objects in the JSON files; null where there is no file.
struct CheckpointJson {
  nlohmann::json tokenizer, config, generation;
};
Result<CheckpointJson> ParseTokenizerFiles(const HfTokenizerFiles& files);

// The fields of the two files beside tokenizer.json, by paths that begin with the file's name. The
// document must outlive them.
JsonField ConfigOf(const CheckpointJson& files);
JsonField GenerationOf(const CheckpointJson& files);

// chat_template.jinja, else what the configuration has: of several the one named "default"; "" if
// none.
Result<std::string> ReadChatTemplate(const JsonField& config, const std::string& jinja);

}  // namespace trine
