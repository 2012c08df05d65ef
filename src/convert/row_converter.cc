#include "src/convert/row_converter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "src/core/parallel.h"
#include "src/core/quote.h"
#include "src/weights/row_codec.h"

namespace trine {
namespace {

constexpr int64_t kChunkBytes = int64_t{16} << 20;  // of values in f32, of all threads at a time

bool IsCopy(const ConvertedTensor& tensor) {
  return tensor.in->type == tensor.out.type && tensor.in->stored_as == tensor.out.stored_as &&
         tensor.columns.empty() && tensor.unrotate.empty();
}

int64_t RowsOf(const ConvertedTensor& tensor) {
  return tensor.out.bytes / RowBytes(tensor.out.type, tensor.out.cols());
}

// Stored rows of the source that become rows [first, first + n).
Status ReadSource(const WeightStore& store, const ConvertedTensor& tensor, int64_t first, int64_t n,
                  std::byte* out) {
  const int64_t row_bytes = RowBytes(tensor.in->type, tensor.in->cols());
  const auto source = [&](int64_t row) {
    return tensor.rows.empty() ? row : tensor.rows[static_cast<size_t>(row)];
  };
  for (int64_t row = first, end = first + n; row < end;) {
    int64_t run = 1;
    while (row + run < end && source(row + run) == source(row) + run) ++run;
    TRINE_RETURN_IF_ERROR(store.Read(*tensor.in, source(row) * row_bytes, run * row_bytes, out));
    out += run * row_bytes;
    row += run;
  }
  return {};
}

// Row `row` of a tensor does not fit the type that it is to have.
Status Unfit(const ConvertedTensor& tensor, int64_t row, bool finite) {
  const DType type = tensor.out.type;
  const std::string what = "tensor " + Quote(tensor.in->name) + ", row " + std::to_string(row);
  if (!finite) {
    return BadInput(what + " has a value that is not finite; the file is damaged, get it again");
  }
  if (!IsTernary(type)) {
    return BadInput(what + " has a value beyond the range of " + Info(type).name +
                    "; choose f32 or bf16");
  }
  if (IsTernary(tensor.in->type)) {
    return BadInput(what + " does not fit into " + Info(type).name + ", whose blocks of " +
                    std::to_string(Info(type).block_elems) +
                    " values have one scale and codes of their own; choose q2_0, which holds all");
  }
  return BadInput(what + " is not ternary, and nothing is rounded to " + Info(type).name +
                  ": a model must be trained for it; choose f16, bf16, f32 or q8_0");
}

// Values of stored rows [n, cols] in the target's order, basis and meaning, in place.
void ToTarget(const ConvertedTensor& tensor, Backend& backend, F32View values) {
  if (!tensor.unrotate.empty()) {
    backend.Rotate(values, tensor.unrotate.data(), tensor.block, Backend::Rotation::kInverse,
                   values);
  }
  if (!tensor.columns.empty()) {
    std::vector<float> row(tensor.columns.size());
    for (int64_t r = 0; r < values.rows; ++r) {
      for (size_t c = 0; c < row.size(); ++c) row[c] = values.row(r)[tensor.columns[c]];
      std::copy(row.begin(), row.end(), values.row(r));
    }
  }
  if (tensor.in->stored_as == tensor.out.stored_as) return;
  const std::span all(values.data, static_cast<size_t>(values.rows * values.cols));
  FromStored(tensor.in->stored_as, all);
  ToStored(tensor.out.stored_as, all);
}

// Ternary codes to another packing, n rows; -1, or the first that does not fit.
int64_t Transcode(const ConvertedTensor& tensor, const std::byte* stored, int64_t n,
                  std::byte* out) {
  const int64_t cols = tensor.in->cols();
  CodedRow row(static_cast<size_t>(cols / kCodedUnit));
  for (int64_t r = 0; r < n; ++r) {
    DecodeCodes(tensor.in->type, stored + r * RowBytes(tensor.in->type, cols), row);
    if (!EncodeCodes(tensor.out.type, row, out + r * RowBytes(tensor.out.type, cols))) return r;
  }
  return -1;
}

int64_t Encode(const ConvertedTensor& tensor, F32View values, std::byte* out) {
  const DType type = tensor.out.type;
  CodedRow codes(static_cast<size_t>(IsTernary(type) ? values.cols / kCodedUnit : 0));
  for (int64_t r = 0; r < values.rows; ++r, out += RowBytes(type, values.cols)) {
    const std::span row(values.row(r), static_cast<size_t>(values.cols));
    const bool fits = IsTernary(type) ? FindCodes(row, codes) && EncodeCodes(type, codes, out)
                                      : EncodeRow(type, row, out);
    if (!fits) return r;
  }
  return -1;
}

std::unique_ptr<Backend> OneThread() {
  std::string error;
  return MakeCpuBackend({.threads = 1}, &error);
}

}  // namespace

RowConverter::RowConverter(const WeightStore& store, int threads, std::function<void(int64_t)> done)
    : store_(store), done_(std::move(done)) {
  for (int i = 0; i < threads; ++i) backends_.push_back(OneThread());
}

Status RowConverter::ConvertPart(const ConvertedTensor& tensor, int64_t first, int64_t n,
                                 Backend& backend, std::byte* out) const {
  if (IsCopy(tensor)) return ReadSource(store_, tensor, first, n, out);
  const TensorInfo& in = *tensor.in;
  const int64_t cols = in.cols();
  std::vector<std::byte> stored(static_cast<size_t>(n * RowBytes(in.type, cols)));
  TRINE_RETURN_IF_ERROR(ReadSource(store_, tensor, first, n, stored.data()));
  int64_t unfit = -1;
  bool finite = true;
  if (IsTernary(in.type) && IsTernary(tensor.out.type)) {
    unfit = Transcode(tensor, stored.data(), n, out);
  } else {
    std::vector<float> memory(static_cast<size_t>(n * cols));
    const F32View values{memory.data(), n, cols, cols};
    backend.DecodeRows(in.type, stored.data(), values);
    ToTarget(tensor, backend, values);
    unfit = Encode(tensor, values, out);
    finite = unfit < 0 || std::all_of(values.row(unfit), values.row(unfit) + cols,
                                      [](float value) { return std::isfinite(value); });
  }
  if (unfit < 0) return {};
  const Status unfitting = Unfit(tensor, first + unfit, finite);
  return {unfitting.code(), store_.name() + ": " + unfitting.message()};
}

Status RowConverter::Convert(const ConvertedTensor& tensor, const ByteSink& sink) {
  if (tensor.in == nullptr) return sink(std::as_bytes(std::span(tensor.values)));
  const int64_t rows = RowsOf(tensor), row_bytes = RowBytes(tensor.out.type, tensor.out.cols());
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / (4 * tensor.out.cols()));
  std::vector<std::byte> out(static_cast<size_t>(std::min(rows, chunk) * row_bytes));
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t n = std::min(chunk, rows - first);
    const int64_t threads = std::min(std::ssize(backends_), n);
    std::mutex mutex;
    Status status;
    InParallel(threads, [&](int64_t i) {
      const int64_t begin = n * i / threads, end = n * (i + 1) / threads;
      Status made = ConvertPart(tensor, first + begin, end - begin,
                                *backends_[static_cast<size_t>(i)], out.data() + begin * row_bytes);
      const std::lock_guard lock(mutex);
      if (status.ok()) status = std::move(made);
    });
    TRINE_RETURN_IF_ERROR(status);
    TRINE_RETURN_IF_ERROR(sink(std::span(out).first(static_cast<size_t>(n * row_bytes))));
    if (done_) done_(n * RowBytes(tensor.in->type, tensor.in->cols()));
  }
  return {};
}

Result<std::vector<float>> ReadVector(const WeightStore& store, const TensorInfo& tensor) {
  std::vector<std::byte> stored(static_cast<size_t>(tensor.bytes));
  TRINE_RETURN_IF_ERROR(store.Read(tensor, 0, tensor.bytes, stored.data()));
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  OneThread()->DecodeRows(tensor.type, stored.data(),
                          {values.data(), tensor.rows(), tensor.cols(), tensor.cols()});
  FromStored(tensor.stored_as, values);
  return values;
}

Result<bool> HoldsExactly(const WeightStore& store, const ConvertedTensor& tensor, DType type) {
  TRINE_ASSIGN(std::vector<float> values, ReadVector(store, *tensor.in));
  ToStored(tensor.out.stored_as, values);
  std::vector<std::byte> packed(values.size() * 4);
  if (!EncodeRow(type, values, packed.data())) return false;
  std::vector<float> back(values.size());
  OneThread()->DecodeRows(type, packed.data(),
                          {back.data(), 1, std::ssize(back), std::ssize(back)});
  return std::memcmp(back.data(), values.data(), values.size() * sizeof(float)) == 0;
}

}  // namespace trine
