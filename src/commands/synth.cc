// trine synth: a model file of a preset's exact shape with random weights, for measurements.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "src/commands/commands.h"
#include "src/core/cores.h"
#include "src/core/parallel.h"
#include "src/synth/model_layout.h"
#include "src/synth/random_rows.h"
#include "src/synth/vocabulary.h"
#include "src/weights/gguf_writer.h"

namespace trine {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Rows [first, first + count) of a tensor to `out`, on several threads.
void FillRows(const RandomRows& random, const SynthTensor& tensor, size_t index, int64_t first,
              int64_t count, int threads, std::byte* out) {
  const int64_t row_bytes = RowBytes(tensor.info.type, tensor.info.cols());
  InParallel(threads, [&](int64_t part) {
    const int64_t end = count * (part + 1) / threads;
    for (int64_t row = count * part / threads; row < end; ++row) {
      random.Fill(tensor, static_cast<int64_t>(index), first + row, out + row * row_bytes);
    }
  });
}

// Makes the tensors one after another, a chunk of rows at a time.
class Producer {
 public:
  Producer(const std::vector<SynthTensor>& tensors, uint64_t seed)
      : tensors_(tensors), random_(seed) {
    for (const SynthTensor& tensor : tensors) total_ += tensor.info.bytes;
  }

  int64_t total_bytes() const { return total_; }

  Status Produce(size_t index, const ByteSink& sink) {
    const SynthTensor& tensor = tensors_[index];
    const int64_t row_bytes = RowBytes(tensor.info.type, tensor.info.cols());
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / row_bytes);
    for (int64_t row = 0; row < tensor.info.rows(); row += chunk) {
      const int64_t rows = std::min(chunk, tensor.info.rows() - row);
      buffer_.resize(static_cast<size_t>(rows * row_bytes));
      FillRows(random_, tensor, index, row, rows, threads_, buffer_.data());
      TRINE_RETURN_IF_ERROR(sink(buffer_));
      done_ += rows * row_bytes;
      if (progress_) progress_(done_, total_);
    }
    return {};
  }

 private:
  const std::vector<SynthTensor>& tensors_;
  const RandomRows random_;
  const int threads_ = DefaultThreads(CountCores(), /*local_ranks=*/1);
  const std::function<void(int64_t, int64_t)> progress_ = TerminalProgress("writing");
  std::vector<std::byte> buffer_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

Status SynthCommand(const Settings& settings) {
  TRINE_ASSIGN(const Preset* preset, FindPreset(settings.preset));
  TRINE_ASSIGN(const DType type, FindSynthType(settings.type, preset->type));
  TRINE_ASSIGN(const int layers, LayerCount(*preset, settings.layers));
  const std::vector<SynthTensor> tensors = LayOutModel(*preset, type, layers);
  Metadata metadata = DescribeModel(*preset, layers, tensors, settings.seed);
  DescribeVocabulary(preset->hybrid() ? kQwen35Vocabulary : kQwen3Vocabulary, metadata);
  std::vector<TensorInfo> infos;
  for (const SynthTensor& tensor : tensors) infos.push_back(tensor.info);
  Producer producer(tensors, settings.seed);
  TRINE_RETURN_IF_ERROR(
      WriteGguf(settings.output_file, metadata, std::move(infos),
                [&](size_t index, const ByteSink& sink) { return producer.Produce(index, sink); }));
  std::fprintf(stderr, "%s: %s, %d layers, %zu tensors of %.1f MB, random weights\n",
               settings.output_file.c_str(), preset->name, layers, tensors.size(),
               static_cast<double>(producer.total_bytes()) / 1e6);
  return {};
}

}  // namespace trine
