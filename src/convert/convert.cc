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
  const bool folder = !options.output.ends_with(".gguf");
  if (folder && fs::exists(options.output, ignored) && !fs::is_empty(options.output, ignored)) {
    return BadInput(options.output + " is there already; remove it or name another output");
  }
  return {};
}

}  // namespace

Result<Conversion> Convert(const ConvertOptions& options,
                           const std::function<void(int64_t done, int64_t total)>& progress) {
  TRINE_RETURN_IF_ERROR(CheckOutput(options));
  const bool gguf = options.output.ends_with(".gguf");
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(options.input));
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
