// WriteSafetensors: a safetensors file as a stream: the header, then one tensor after another, none
// of which is ever in memory as a whole. The reader is safetensors.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/core/output_file.h"
#include "src/core/result.h"
#include "src/weights/gguf_writer.h"
#include "src/weights/weight_store.h"

namespace trine {

// Whether a lies before b in a file: types from F32 down, then names. It is the order of the
// reference writer, so that files of the same tensors have the same bytes.
bool SafetensorsBefore(const TensorInfo& a, const TensorInfo& b);

// Bytes of the whole file. `tensors` need name, type (F32, F16, BF16), shape (contiguous size
// first) and bytes, and lie in the order above.
int64_t SafetensorsBytes(const std::vector<TensorInfo>& tensors);

// Writes `path` under a temporary name (see OutputFile). `produce` is called once a tensor, in
// order, and as of WriteGguf. Errors: what the disk reports; what `produce` returned.
Status WriteSafetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                        const TensorProducer& produce);

}  // namespace trine
