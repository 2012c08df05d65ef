// A tokenizer in another container, and the ids it gives, for the oracles.
//
//   tokenizer_files IN OUT [TEXT]
//
// IN: a GGUF file, or a folder with a tokenizer.json that becomes GGUF's metadata first, with as
// many rows as it has ids. OUT: a folder for the files of a Hugging Face checkpoint. With TEXT, a
// file, the ids that the metadata gives are written there as int32: ids.parsed with control tokens
// parsed and ids.text without.
#include "src/text/tokenizer_files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"

namespace trine {
namespace {

Result<Metadata> ReadMetadata(const std::string& path) {
  if (!std::filesystem::is_directory(path)) {
    TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(path));
    return store->metadata();
  }
  TRINE_ASSIGN(const auto tokenizer, Tokenizer::FromJson(path + "/tokenizer.json"));
  Metadata meta;
  TRINE_RETURN_IF_ERROR(FromHuggingFace(path, tokenizer->size(), meta));
  return meta;
}

Status Write(const std::string& path, const void* bytes, size_t size) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  out.flush();
  return out.good() ? Status() : BadInput(path + " cannot be written; choose another place");
}

Status WriteIds(const Tokenizer& tokenizer, const std::string& text, Tokenizer::Special special,
                const std::string& path) {
  TRINE_ASSIGN(const std::vector<int32_t> ids, tokenizer.Encode(text, special));
  return Write(path, ids.data(), ids.size() * sizeof(int32_t));
}

Status Run(const std::string& in, const std::string& out, const std::string& text_path) {
  TRINE_ASSIGN(const Metadata meta, ReadMetadata(in));
  TRINE_ASSIGN(const HfTokenizerFiles files, ToHuggingFace(meta));
  const std::pair<const char*, const std::string&> contents[] = {
      {"/tokenizer.json", files.tokenizer},
      {"/tokenizer_config.json", files.tokenizer_config},
      {"/generation_config.json", files.generation_config}};
  for (const auto& [name, text] : contents) {
    TRINE_RETURN_IF_ERROR(Write(out + name, text.data(), text.size()));
  }
  if (text_path.empty()) return {};
  std::ifstream file(text_path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  TRINE_ASSIGN(const auto tokenizer, Tokenizer::FromMetadata(meta));
  TRINE_RETURN_IF_ERROR(
      WriteIds(*tokenizer, text, Tokenizer::Special::kParse, out + "/ids.parsed"));
  return WriteIds(*tokenizer, text, Tokenizer::Special::kAsText, out + "/ids.text");
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: tokenizer_files IN OUT [TEXT]\n");
    return 2;
  }
  const trine::Status status = trine::Run(argv[1], argv[2], argc == 4 ? argv[3] : "");
  if (!status.ok()) std::fprintf(stderr, "tokenizer_files: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
