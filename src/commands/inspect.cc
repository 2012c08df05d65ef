// trine inspect: what a model file holds, from its header alone.
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "src/commands/commands.h"
#include "src/core/sha256.h"
#include "src/weights/rotation.h"

namespace trine {
namespace {

struct TypeCount {
  int64_t tensors = 0, bytes = 0;
};

struct Summary {
  std::string architecture;
  int64_t parameters = 0, bytes = 0, context = 0;
  std::map<std::string, TypeCount> types;
  std::string tokenizer_model, tokenizer_pre;
  int64_t tokens = 0;
  int64_t rotation_block = 0;  // columns; 0: nothing is rotated
  size_t rotated_weights = 0;
  std::vector<std::string> sha256;  // one a file, if asked for
  bool verified = false;            // against a list
};

// One digest a file.
Result<std::vector<std::string>> HashFiles(const WeightStore& store) {
  int64_t before = 0, total = 0;
  for (const File& file : store.files()) total += file.size();
  const auto progress = TerminalProgress("hashing");
  std::vector<std::string> hashes;
  for (const File& file : store.files()) {
    TRINE_ASSIGN(std::string hash, Sha256(file, [&](int64_t done) {
                   if (progress) progress(before + done, total);
                 }));
    hashes.push_back(std::move(hash));
    before += file.size();
  }
  return hashes;
}

Status Verify(const WeightStore& store, const std::vector<std::string>& hashes,
              const Sha256List& list, const std::string& list_path) {
  for (size_t i = 0; i < hashes.size(); ++i) {
    const std::string& path = store.files()[i].path();
    const std::string name = std::filesystem::path(path).filename();
    const auto entry = list.by_name.find(name);
    const std::string expected = entry != list.by_name.end() ? entry->second
                                 : hashes.size() == 1        ? list.alone
                                                             : "";
    if (expected.empty()) {
      return BadInput(list_path + " has no line 'HEX  " + name + "'; give the list of this model");
    }
    if (expected != hashes[i]) {
      return BadInput(path + ": its sha256 is " + hashes[i] + ", but " + list_path + " has " +
                      expected + "; the file is damaged or another one, get it again");
    }
  }
  return {};
}

// What a GGUF file says of its tokenizer, whether it can be used or not; that of a folder is read.
Status DescribeTokenizer(const WeightStore& store, Summary& summary) {
  if (!store.tokenizer_folder().empty()) {
    const Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerOf(store);
    if (!tokenizer.ok()) return tokenizer.status();
    summary.tokenizer_model = (*tokenizer)->model();
    summary.tokenizer_pre = (*tokenizer)->pre();
    summary.tokens = (*tokenizer)->size();
    return {};
  }
  const Metadata& meta = store.metadata();
  TRINE_ASSIGN(summary.tokenizer_model, meta.StringOr("tokenizer.ggml.model", ""));
  TRINE_ASSIGN(summary.tokenizer_pre, meta.StringOr("tokenizer.ggml.pre", ""));
  TRINE_ASSIGN(const std::vector<std::string>* tokens, meta.Strings("tokenizer.ggml.tokens"));
  summary.tokens = tokens == nullptr ? 0 : std::ssize(*tokens);
  return {};
}

Result<Summary> Summarise(const WeightStore& store, const Settings& settings) {
  const Metadata& meta = store.metadata();
  Summary summary;
  TRINE_ASSIGN(summary.architecture, meta.String("general.architecture"));
  TRINE_ASSIGN(summary.context, meta.IntOr(summary.architecture + ".context_length", 0));
  TRINE_RETURN_IF_ERROR(DescribeTokenizer(store, summary));
  for (const TensorInfo& tensor : store.tensors()) {
    summary.parameters += tensor.elements();
    summary.bytes += tensor.bytes;
    TypeCount& type = summary.types[Info(tensor.type).name];
    ++type.tensors;
    type.bytes += tensor.bytes;
  }
  TRINE_ASSIGN(const Rotation rotation, Rotation::Read(store));
  summary.rotation_block = rotation.block();
  summary.rotated_weights = rotation.weights().size();
  summary.verified = !settings.verify.empty();
  if (!settings.sha256 && !summary.verified) return summary;
  Sha256List list;
  if (summary.verified) {
    TRINE_ASSIGN(list, ReadSha256List(settings.verify));
  }
  TRINE_ASSIGN(summary.sha256, HashFiles(store));
  if (summary.verified) {
    TRINE_RETURN_IF_ERROR(Verify(store, summary.sha256, list, settings.verify));
  }
  return summary;
}

void PrintJson(const Summary& summary, const WeightStore& store) {
  nlohmann::ordered_json types;
  for (const auto& [name, type] : summary.types) {
    types[name] = {{"tensors", type.tensors}, {"bytes", type.bytes}};
  }
  nlohmann::ordered_json json = {
      {"architecture", summary.architecture},
      {"parameters", summary.parameters},
      {"tensors", store.tensors().size()},
      {"tensor_bytes", summary.bytes},
      {"types", types},
      {"rotation", {{"block", summary.rotation_block}, {"weights", summary.rotated_weights}}},
      {"tokenizer",
       {{"model", summary.tokenizer_model},
        {"pre", summary.tokenizer_pre},
        {"size", summary.tokens}}},
      {"context", summary.context}};
  if (summary.sha256.size() == 1) json["sha256"] = summary.sha256[0];
  if (summary.sha256.size() > 1) json["sha256"] = summary.sha256;
  if (summary.verified) json["verified"] = true;
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

std::string ShapeText(const TensorInfo& tensor) {
  std::string text;
  for (const int64_t size : tensor.shape)
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

void PrintText(const Summary& summary, const WeightStore& store) {
  std::printf("architecture  %s\n", summary.architecture.c_str());
  std::printf("parameters    %lld\n", static_cast<long long>(summary.parameters));
  std::printf("context       %lld\n", static_cast<long long>(summary.context));
  std::printf("tokenizer     %s, pre-tokeniser %s, %lld tokens\n", summary.tokenizer_model.c_str(),
              summary.tokenizer_pre.c_str(), static_cast<long long>(summary.tokens));
  std::printf("tensors       %zu, %lld bytes\n", store.tensors().size(),
              static_cast<long long>(summary.bytes));
  for (const auto& [name, type] : summary.types) {
    std::printf("  %-6s      %lld tensors, %lld bytes\n", name.c_str(),
                static_cast<long long>(type.tensors), static_cast<long long>(type.bytes));
  }
  if (summary.rotation_block > 0) {
    std::printf("rotation      blocks of %lld, %zu weights\n",
                static_cast<long long>(summary.rotation_block), summary.rotated_weights);
  }
  for (size_t i = 0; i < summary.sha256.size(); ++i) {
    std::printf("sha256        %s  %s%s\n", summary.sha256[i].c_str(),
                store.files()[i].path().c_str(), summary.verified ? ": OK" : "");
  }
  std::printf("\n%-36s %-18s %-6s %14s\n", "tensor", "shape", "type", "bytes");
  for (const TensorInfo& tensor : store.tensors()) {
    std::printf("%-36s %-18s %-6s %14lld\n", tensor.name.c_str(), ShapeText(tensor).c_str(),
                Info(tensor.type).name, static_cast<long long>(tensor.bytes));
  }
}

}  // namespace

Status InspectCommand(const Settings& settings) {
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(settings.model));
  TRINE_ASSIGN(const Summary summary, Summarise(*store, settings));
  if (settings.json) {
    PrintJson(summary, *store);
  } else {
    PrintText(summary, *store);
  }
  return {};
}

}  // namespace trine
