// What Hugging Face calls and keeps differently: class names, tensor names, values. The rest of
// Trine knows GGUF's names and values only. Sources: transformers' model classes; llama.cpp's
// names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/weights/conventions.h"

namespace trine {

// A class of transformers that Trine reads, and GGUF's name of its architecture.
struct HfClass {
  const char* name;          // config.json's "architectures"
  const char* model_type;    // config.json's "model_type"; of the text part, where there are parts
  const char* architecture;  // GGUF's
};

// By config.json's "architectures" entry, or the class that Trine writes for an architecture;
// nullptr if there is none.
const HfClass* FindHfClass(std::string_view name);
const HfClass* HfClassFor(std::string_view architecture);
std::string KnownHfClasses();  // for messages: "A, B, C"

struct HfName {
  std::string name;
  StoredAs stored_as = StoredAs::kValue;
};

// "model.layers.3.mlp.up_proj.weight" <-> "blk.3.ffn_up.weight", and how the value is kept there.
// Prefixes of the language model inside of a larger one are read, too ("model.language_model.").
// Empty where the architecture has no such tensor.
std::optional<HfName> ToGguf(std::string_view architecture, std::string_view hf_name);
std::optional<HfName> ToHf(std::string_view architecture, std::string_view gguf_name);

// Tensors of such names are no part of the language model: vision, multi-token prediction, tables
// that can be computed.
bool IsOutsideTextModel(std::string_view hf_name);

}  // namespace trine
