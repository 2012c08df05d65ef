// WriteGguf: a GGUF version 3 file as a stream: the header, then one tensor after another, none of
// which is ever in memory as a whole. It knows no model. The reader is gguf.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/core/metadata.h"
#include "src/core/output_file.h"
#include "src/core/result.h"
#include "src/weights/weight_store.h"

namespace trine {

// Hands all bytes of tensors[index] to `sink`, in pieces of any size, in the order they are stored:
// row after row, RowBytes(type, cols) each. Handing over more or fewer is a programmer's error,
// which ends the process. What it returns other than OK ends the writing.
using TensorProducer = std::function<Status(size_t index, const ByteSink& sink)>;

// Fills in `bytes` and `offset` (absolute; tensors lie in the order given, each at the next
// multiple of 32) and leaves the other fields. An error names the tensor: no name or one of more
// than 63 bytes, a name given twice, not 1 to 4 dimensions, a size below 1, rows that are not whole
// blocks of the type.
Status LayOutGguf(const Metadata& metadata, std::vector<TensorInfo>& tensors);

// Writes `path` under a temporary name that replaces `path` when all is on the disk; on any error
// nothing is left (see OutputFile). `tensors` need name, type and shape. `produce` is called once a
// tensor, in order. Uses the memory of the header, which is about that of the metadata.
// Metadata goes into the file in the order of the keys. Integers: u32 where they fit, else i32,
// else i64; arrays of them i32, else i64. Other numbers: f32. general.alignment, where given, must
// be 32, the alignment that is written.
// Errors: those of LayOutGguf; less free space than the file needs, with both numbers; what the
// disk reports; what `produce` returned.
Status WriteGguf(const std::string& path, const Metadata& metadata, std::vector<TensorInfo> tensors,
                 const TensorProducer& produce);

}  // namespace trine
