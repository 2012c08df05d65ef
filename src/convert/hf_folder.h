// WriteHfFolder: a checkpoint as Hugging Face has them: config.json, the tokenizer's files,
// model.safetensors or shards with an index.
#pragma once

#include "src/convert/convert.h"
#include "src/convert/row_converter.h"

namespace trine {

// See Convert. `store` is the source of the plan.
Status WriteHfFolder(const ConvertOptions& options, const WeightStore& store,
                     const Conversion& plan, RowConverter& converter,
                     const std::function<void(int64_t)>& skipped);

}  // namespace trine
