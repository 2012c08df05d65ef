#include "src/weights/weight_loader.h"

#include <cmath>
#include <mutex>

#include "kernels/formats.h"

namespace trine {
namespace {

// Where the stored columns of a shard lie in each row.
struct ColumnBytes {
  int64_t skip_cols;  // at the start of the first block
  int64_t begin;      // bytes from the start of the row
};

ColumnBytes BytesOfColumns(const TensorInfo& tensor, int64_t first_col) {
  const DTypeInfo& type = Info(tensor.type);
  const int64_t block = first_col / type.block_elems;
  return {first_col % type.block_elems, block * type.block_bytes};
}

// Reads this rank's part of rows [first, first + n): one run for whole rows, else a run per row.
Status ReadPart(const WeightStore& store, const TensorInfo& tensor, const Shard& shard,
                const WeightDesc& desc, int64_t first, int64_t n, std::byte* out) {
  const int64_t stored_row = RowBytes(tensor.type, tensor.cols());
  const int64_t part_row = RowBytes(tensor.type, desc.stored_cols());
  if (shard.axis == Axis::kRows) {
    const int64_t row = shard.parts[0].begin + first;
    return store.Read(tensor, row * stored_row, n * stored_row, out);
  }
  const int64_t begin = BytesOfColumns(tensor, shard.parts[0].begin).begin;
  for (int64_t r = first; r < first + n; ++r, out += part_row) {
    TRINE_RETURN_IF_ERROR(store.Read(tensor, r * stored_row + begin, part_row, out));
  }
  return {};
}

}  // namespace

WeightLoader::WeightLoader(const WeightStore& store, Backend* backend,
                           std::function<void(int64_t)> progress)
    : store_(store), backend_(backend), progress_(std::move(progress)) {}

void WeightLoader::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const TensorInfo* WeightLoader::FindShaped(const std::string& name, std::vector<int64_t> shape) {
  if (!status_.ok()) return nullptr;
  const Result<const TensorInfo*> tensor = store_.Require(name, shape);
  if (tensor.ok()) return *tensor;
  Fail(tensor.status());
  return nullptr;
}

void WeightLoader::Record(const TensorInfo& tensor, const Shard& shard, int64_t bytes,
                          bool streamed) {
  claimed_.insert(tensor.name);
  claims_.push_back({tensor.name, shard, bytes, streamed});
}

std::unique_ptr<Weight> WeightLoader::Matrix(const std::string& name, int64_t rows, int64_t cols,
                                             const Shard& shard, int64_t granule) {
  const TensorInfo* tensor = FindShaped(name, {cols, rows});
  if (tensor == nullptr) return nullptr;
  const bool by_rows = shard.axis == Axis::kRows;
  WeightDesc desc{tensor->type, rows, {{0, cols}}, granule};
  if (by_rows) {
    desc.rows = shard.size();
  } else {
    desc.runs = {{BytesOfColumns(*tensor, shard.parts[0].begin).skip_cols, shard.size()}};
  }
  const int64_t bytes = desc.rows * RowBytes(desc.type, desc.stored_cols());
  Record(*tensor, shard, bytes, /*streamed=*/false);
  if (backend_ == nullptr || desc.rows == 0) return nullptr;

  std::mutex mutex;
  LoadedWeight loaded = backend_->LoadWeight(desc, [&](int64_t first, int64_t n, std::byte* out) {
    Status status = ReadPart(store_, *tensor, shard, desc, first, n, out);
    const std::lock_guard lock(mutex);
    if (!status.ok()) Fail(std::move(status));
    return status_.ok();
  });
  if (!loaded.finite) {
    Fail(BadInput(store_.files()[0].path() + ": tensor '" + name +
                  "' holds a value that is not finite; the file is damaged, get it again"));
  }
  if (progress_) progress_(bytes);
  return std::move(loaded.weight);
}

std::vector<float> WeightLoader::HostVector(const std::string& name, int64_t n, Interval part) {
  const TensorInfo* tensor = FindShaped(name, {n});
  if (tensor == nullptr) return {};
  const int64_t width = Info(tensor->type).block_bytes;
  if (Info(tensor->type).block_elems != 1) {
    Fail(BadInput(store_.files()[0].path() + ": vector '" + name + "' is of type " +
                  Info(tensor->type).name + "; F32, F16 or BF16 expected"));
    return {};
  }
  Record(*tensor, Shard::Rows(part), part.size() * width, /*streamed=*/false);
  if (backend_ == nullptr) return {};
  std::vector<std::byte> packed(static_cast<size_t>(part.size() * width));
  Status read = store_.Read(*tensor, part.begin * width, part.size() * width, packed.data());
  std::vector<float> values(static_cast<size_t>(part.size()));
  formats::DecodePlain(tensor->type, packed.data(), part.size(), values.data());
  for (const float value : values) {
    if (std::isfinite(value) || !read.ok()) continue;
    read = BadInput(store_.files()[0].path() + ": '" + name +
                    "' holds a value that is not finite; the file is damaged, get it again");
  }
  if (progress_) progress_(part.size() * width);
  if (read.ok()) return values;
  Fail(std::move(read));
  return {};
}

Buffer WeightLoader::Vector(const std::string& name, int64_t n, Interval part) {
  const std::vector<float> values = HostVector(name, n, part);
  if (values.empty()) return {};
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  Buffer buffer = backend_->Allocate(bytes);
  backend_->Upload(values.data(), bytes, buffer.as());
  return buffer;
}

const TensorInfo* WeightLoader::Streamed(const std::string& name, int64_t rows, int64_t cols) {
  const TensorInfo* tensor = FindShaped(name, {cols, rows});
  if (tensor != nullptr) Record(*tensor, Shard::Rows({0, rows}), tensor->bytes, /*streamed=*/true);
  return tensor;
}

Status WeightLoader::Finish(std::string_view architecture) {
  for (const TensorInfo& tensor : store_.tensors()) {
    if (!status_.ok()) break;
    if (claimed_.count(tensor.name) != 0) continue;
    Fail(BadInput(store_.files()[0].path() + ": tensor '" + tensor.name +
                  "' has no place in architecture '" + std::string(architecture) +
                  "'; a part of the model would be left out"));
  }
  return status_;
}

int64_t LoadedBytes(const std::vector<Claim>& claims) {
  int64_t total = 0;
  for (const Claim& claim : claims) total += claim.streamed ? 0 : claim.bytes;
  return total;
}

}  // namespace trine
