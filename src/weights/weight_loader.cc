#include "src/weights/weight_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "kernels/formats.h"
#include "src/core/quote.h"

namespace trine {
namespace {

// The blocks of a row that hold some columns.
struct StoredRun {
  int64_t begin = 0;  // bytes from the start of the row
  int64_t bytes = 0;
  int64_t end() const { return begin + bytes; }
};

// The columns of a shard, and where their blocks lie.
std::vector<ColumnRun> RunsOf(DType type, const Shard& shard) {
  std::vector<ColumnRun> runs;
  for (const Interval& part : shard.parts) {
    runs.push_back({part.begin % Info(type).block_elems, part.size()});
  }
  return runs;
}
std::vector<StoredRun> BytesOf(DType type, const Shard& shard) {
  std::vector<StoredRun> stored;
  for (const Interval& part : shard.parts) {
    const ColumnRun run{part.begin % Info(type).block_elems, part.size()};
    stored.push_back(
        {RowBytes(type, part.begin - run.skip), RowBytes(type, run.stored_cols(type))});
  }
  return stored;
}

// The same bytes in as few runs as possible, ascending.
std::vector<StoredRun> Merge(std::vector<StoredRun> runs) {
  std::sort(runs.begin(), runs.end(), [](auto a, auto b) { return a.begin < b.begin; });
  std::vector<StoredRun> merged;
  for (const StoredRun& run : runs) {
    if (merged.empty() || run.begin > merged.back().end()) {
      merged.push_back(run);
    } else {
      merged.back().bytes = std::max(merged.back().end(), run.end()) - merged.back().begin;
    }
  }
  return merged;
}

// Rows [first, first + n) of a shard of rows.
Status ReadRowParts(const WeightStore& store, const TensorInfo& tensor, const Shard& shard,
                    int64_t first, int64_t n, std::byte* out) {
  const int64_t row_bytes = RowBytes(tensor.type, tensor.cols());
  for (const Interval& part : shard.parts) {
    const int64_t rows = std::min(n, part.size() - first);
    if (rows > 0) {
      TRINE_RETURN_IF_ERROR(
          store.Read(tensor, (part.begin + first) * row_bytes, rows * row_bytes, out));
      out += rows * row_bytes;
      n -= rows;
      first += rows;
    }
    first -= part.size();
  }
  return {};
}

// Rows [first, first + n) of a shard of columns: a read for each gap-free piece of a row, whose
// blocks are then laid out in the shard's order.
Status ReadColumnParts(const WeightStore& store, const TensorInfo& tensor, const Shard& shard,
                       int64_t first, int64_t n, std::byte* out) {
  const std::vector<StoredRun> wanted = BytesOf(tensor.type, shard), pieces = Merge(wanted);
  const int64_t row_bytes = RowBytes(tensor.type, tensor.cols());
  const bool in_order = wanted.size() == pieces.size();
  std::vector<std::byte> scratch(static_cast<size_t>(in_order ? 0 : row_bytes));
  for (int64_t r = first; r < first + n; ++r) {
    for (const StoredRun& piece : pieces) {
      std::byte* to = in_order ? out : scratch.data() + piece.begin;
      TRINE_RETURN_IF_ERROR(store.Read(tensor, r * row_bytes + piece.begin, piece.bytes, to));
      if (in_order) out += piece.bytes;
    }
    for (size_t i = 0; !in_order && i < wanted.size(); ++i) {
      std::memcpy(out, scratch.data() + wanted[i].begin, static_cast<size_t>(wanted[i].bytes));
      out += wanted[i].bytes;
    }
  }
  return {};
}

Status NotFinite(const WeightStore& store, const std::string& name) {
  return BadInput(store.name() + ": tensor '" + store.NameInFile(name) +
                  "' holds a value that is not finite; the file is damaged, get it again");
}

Status Missing(const WeightStore& store, const std::set<std::string>& names) {
  if (names.size() == 1) return store.Require(*names.begin()).status();
  constexpr size_t kShown = 8;
  std::string list;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (++shown > kShown) break;
    list += (shown == 1 ? "'" : ", '") + store.NameInFile(name) + "'";
  }
  return BadInput(store.name() + ": " + std::to_string(names.size()) +
                  " tensors are missing: " + list + (names.size() > kShown ? ", ..." : "") +
                  "; the model is incomplete, get it again");
}

}  // namespace

WeightLoader::WeightLoader(const WeightStore& store, const Rotation& rotation, Backend& backend,
                           std::function<void(int64_t)> progress)
    : store_(store), rotation_(rotation), backend_(backend), progress_(std::move(progress)) {}

void WeightLoader::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const TensorInfo* WeightLoader::FindShaped(const std::string& name, std::vector<int64_t> shape) {
  if (!status_.ok()) return nullptr;
  if (store_.Find(name) == nullptr) {
    missing_.insert(name);
    return nullptr;
  }
  const Result<const TensorInfo*> tensor = store_.Require(name, shape);
  if (!tensor.ok()) {
    Fail(tensor.status());
    return nullptr;
  }
  claimed_.insert(name);
  return *tensor;
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
    desc.runs = RunsOf(tensor->type, shard);
  }
  int64_t row_bytes = 0;
  for (const StoredRun& piece :
       Merge(by_rows ? BytesOf(desc.type, Shard::Cols({0, cols})) : BytesOf(desc.type, shard))) {
    row_bytes += piece.bytes;
  }
  const int64_t bytes = desc.rows * row_bytes;
  claims_.push_back({tensor, shard, bytes, 0, /*streamed=*/false, {}});
  if (desc.rows == 0) return nullptr;

  std::mutex mutex;
  LoadedWeight loaded = backend_.LoadWeight(desc, [&](int64_t first, int64_t n, std::byte* out) {
    Status status = by_rows ? ReadRowParts(store_, *tensor, shard, first, n, out)
                            : ReadColumnParts(store_, *tensor, shard, first, n, out);
    const std::lock_guard lock(mutex);
    if (!status.ok()) Fail(std::move(status));
    return status_.ok();
  });
  if (!loaded.finite) Fail(NotFinite(store_, name));
  if (progress_) progress_(bytes);
  if (loaded.weight != nullptr) {
    claims_.back().resident = loaded.weight->bytes();
    claims_.back().kernel = loaded.weight->kernel();
  }
  return std::move(loaded.weight);
}

std::vector<float> WeightLoader::HostTable(const std::string& name, int64_t rows, int64_t cols,
                                           const Shard& shard) {
  const TensorInfo* tensor =
      FindShaped(name, cols == 1 ? std::vector{rows} : std::vector{cols, rows});
  if (tensor == nullptr) return {};
  if (Info(tensor->type).block_elems != 1) {
    Fail(BadInput(store_.name() + ": '" + name + "' is of type " + Info(tensor->type).name +
                  "; F32, F16 or BF16 expected"));
    return {};
  }
  const int64_t values = shard.size() * cols;
  const int64_t width = Info(tensor->type).block_bytes;
  claims_.push_back({tensor, shard, values * width, 4 * values, /*streamed=*/false, {}});
  if (backend_.dry()) return {};
  std::vector<std::byte> packed(static_cast<size_t>(values * width));
  std::byte* to = packed.data();
  for (const Interval& part : shard.parts) {
    const int64_t bytes = part.size() * cols * width;
    Status read = store_.Read(*tensor, part.begin * cols * width, bytes, to);
    if (!read.ok()) Fail(std::move(read));
    to += bytes;
  }
  std::vector<float> decoded(static_cast<size_t>(values));
  formats::DecodePlain(tensor->type, packed.data(), values, decoded.data());
  FromStored(tensor->stored_as, decoded);
  if (!std::all_of(decoded.begin(), decoded.end(), [](float v) { return std::isfinite(v); })) {
    Fail(NotFinite(store_, name));
  }
  if (progress_) progress_(values * width);
  return status_.ok() ? decoded : std::vector<float>{};
}

Buffer WeightLoader::Table(const std::string& name, int64_t rows, int64_t cols,
                           const Shard& shard) {
  const std::vector<float> values = HostTable(name, rows, cols, shard);
  if (!status_.ok() || !missing_.empty()) return {};
  Buffer buffer = backend_.Allocate(shard.size() * cols * 4);
  backend_.Upload(values.data(), buffer.bytes(), buffer.as());
  return buffer;
}

const TensorInfo* WeightLoader::Streamed(const std::string& name, int64_t rows, int64_t cols) {
  const TensorInfo* tensor = FindShaped(name, {cols, rows});
  if (tensor != nullptr) {
    claims_.push_back({tensor, Shard::Rows({0, rows}), tensor->bytes, 0, /*streamed=*/true, {}});
  }
  return tensor;
}

bool WeightLoader::Rotates(const std::string& weight) {
  if (!rotation_.Rotates(weight)) return false;
  rotated_.insert(weight);
  return true;
}

std::shared_ptr<const Buffer> WeightLoader::Signs(int64_t width, Interval part) {
  std::shared_ptr<const Buffer>& shared = signs_[{width, part.begin}];
  if (shared == nullptr || shared->bytes() < part.size() * 4) {
    const std::vector<float> signs = rotation_.Signs(width);
    Buffer buffer = backend_.Allocate(part.size() * 4);
    backend_.Upload(signs.data() + part.begin, buffer.bytes(), buffer.as());
    shared = std::make_shared<const Buffer>(std::move(buffer));
  }
  return shared;
}

bool WeightLoader::IsIgnored(std::string_view name) const {
  return std::any_of(ignored_.begin(), ignored_.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

Status WeightLoader::Finish(std::string_view architecture, std::vector<std::string>* unexpected) {
  if (!missing_.empty()) Fail(Missing(store_, missing_));
  for (const TensorInfo& tensor : store_.tensors()) {
    if (!status_.ok()) break;
    if (claimed_.count(tensor.name) != 0 || IsIgnored(tensor.name)) continue;
    if (unexpected != nullptr) {
      unexpected->push_back(tensor.name);
      continue;
    }
    Fail(BadInput(store_.name() + ": tensor " + Quote(tensor.name) +
                  " has no place in architecture '" + std::string(architecture) +
                  "'; a part of the model would be left out"));
  }
  for (const std::string& weight : rotation_.weights()) {
    if (!status_.ok()) break;
    if (rotated_.count(weight) != 0 || IsIgnored(weight)) continue;
    Fail(BadInput(store_.name() + ": 'prism.hadamard.weight_names' lists " + Quote(weight) +
                  ", which architecture '" + std::string(architecture) + "' does not rotate"));
  }
  return status_;
}

int64_t LoadedBytes(const std::vector<Claim>& claims) {
  int64_t total = 0;
  for (const Claim& claim : claims) total += claim.streamed ? 0 : claim.bytes;
  return total;
}

}  // namespace trine
