#include "src/convert/convert.h"

#include <filesystem>

#include "src/convert/hf_folder.h"
#include "src/convert/row_converter.h"
#include "src/text/tokenizer_files.h"
#include "src/weights/gguf_writer.h"

namespace trine {
namespace {

Status WriteGgufFile(const ConvertOptions& options, const WeightStore& store, Conversion& plan,
                     RowConverter& converter) {
  if (!store.tokenizer_folder().empty()) {
    TRINE_ASSIGN(const TensorInfo* embedding, store.Require("token_embd.weight"));
    TRINE_RETURN_IF_ERROR(
        FromHuggingFace(store.tokenizer_folder(), embedding->rows(), plan.metadata));
  }
  std::vector<TensorInfo> tensors;
  for (const ConvertedTensor& tensor : plan.tensors) tensors.push_back(tensor.out);
  return WriteGguf(options.output, plan.metadata, std::move(tensors),
                   [&](size_t index, const ByteSink& sink) {
                     return converter.Convert(plan.tensors[index], sink);
                   });
}

Status CheckOutput(const ConvertOptions& options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::equivalent(options.input, options.output, ignored)) {
    return BadInput(options.output + " is the model that is converted; name another output");
  }
  if (options.output.ends_with(".gguf")) return {};
  const fs::file_status there = fs::symlink_status(options.output, ignored);
  const bool empty = fs::is_directory(there) && fs::is_empty(options.output, ignored);
  if (!fs::exists(there) || empty) return {};
  return BadInput(options.output + " is there already; remove it or name another output");
}

// What is written must not be what is read: a part of a split file, or what has the temporary name.
Status CheckApart(const ConvertOptions& options, const WeightStore& store) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::string output = options.output;
  while (output.size() > 1 && output.ends_with('/')) output.pop_back();
  for (const File& file : store.files()) {
    const fs::path folder = fs::canonical(file.path(), ignored).parent_path();
    const bool apart = !fs::equivalent(file.path(), output, ignored) &&
                       !fs::equivalent(file.path(), output + ".partial", ignored) &&
                       !fs::equivalent(folder, output + ".partial", ignored);
    if (apart) continue;
    return BadInput("writing " + options.output + " would destroy " + file.path() +
                    ", which is converted; name another output");
  }
  return {};
}

}  // namespace

Result<Conversion> Convert(const ConvertOptions& options,
                           const std::function<void(int64_t done, int64_t total)>& progress) {
  TRINE_RETURN_IF_ERROR(CheckOutput(options));
  const bool gguf = options.output.ends_with(".gguf");
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(options.input));
  TRINE_RETURN_IF_ERROR(CheckApart(options, *store));
  if (!gguf && !store->tokenizer_folder().empty()) {
    return BadInput(options.input + " is a folder of safetensors already; name an OUT.gguf");
  }
  TRINE_ASSIGN(
      Conversion plan,
      PlanConversion(*store, gguf ? Container::kGguf : Container::kHuggingFace, options.type));
  const int64_t total = plan.read_bytes();
  int64_t done = 0;
  const auto advance = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  RowConverter converter(*store, options.threads, advance);
  TRINE_RETURN_IF_ERROR(gguf ? WriteGgufFile(options, *store, plan, converter)
                             : WriteHfFolder(options, *store, plan, converter, advance));
  for (ConvertedTensor& tensor : plan.tensors) tensor.in = nullptr;  // the store is gone
  return plan;
}

}  // namespace trine
