// The CPU backend: splits each operation over the thread pool and calls the kernels of the best
// instruction-set unit. No order of summation depends on the split.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/candidates.h"
#include "kernels/cpu/checksums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/formats/encode.h"
#include "kernels/half.h"

namespace trine {
namespace cpu {
namespace {

// Angles are reduced by pi/2 in two parts and evaluated by Taylor polynomials in double: the same
// bits on every machine, error below 1e-15 for positions up to millions.
std::pair<double, double> SinCos(double angle) {
  const double n = std::nearbyint(angle * 0.6366197723675814);
  const double r = (angle - n * 1.5707963267948966) - n * 6.123233995736766e-17;
  const double square = r * r;
  double sine = 0, cosine = 0;
  for (int k = 17; k >= 1; k -= 2) sine = 1 - square / ((k + 1) * (k + 2)) * sine;
  for (int k = 16; k >= 0; k -= 2) cosine = 1 - square / ((k + 1) * (k + 2)) * cosine;
  sine *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

// A plain read keeps several streams going: memory gives more to them than to one.
constexpr int64_t kReadStreams = 8;
typedef uint64_t CacheLine __attribute__((vector_size(64)));

void ReadLines(const CacheLine* lines, int64_t n) {
  CacheLine seen[kReadStreams] = {};
  const int64_t stream = n / kReadStreams;
  for (int64_t i = 0; i < stream; ++i) {
    for (int64_t s = 0; s < kReadStreams; ++s) seen[s] |= lines[s * stream + i];
  }
  for (int64_t i = kReadStreams * stream; i < n; ++i) seen[0] |= lines[i];
  for (int64_t s = 1; s < kReadStreams; ++s) seen[0] |= seen[s];
  [[maybe_unused]] volatile uint64_t needed;  // so that no load is left out
  for (int i = 0; i < 8; ++i) needed = seen[0][i];
}

template <typename Element>
Element ToKv(float value) {
  if constexpr (sizeof(Element) == 2) {
    return FloatToF16(value);
  } else {
    return value;
  }
}

// One token's k and v [D] to their slot of a page's head.
template <typename Element>
void WriteHead(const float* k, const float* v, int64_t slot, int64_t head_dim, std::byte* head) {
  auto* keys = reinterpret_cast<Element*>(head);
  Element* values = keys + head_dim * kPageTokens + slot * KvRowElements(head_dim);
  for (int64_t d = 0; d < head_dim; ++d) {
    keys[d * kPageTokens + slot] = ToKv<Element>(k[d]);
    values[d] = ToKv<Element>(v[d]);
  }
}

// x [D] to codes `stride` apart and scales, those of a group a page's tokens apart.
void WriteQ8(const float* x, int64_t head_dim, int64_t stride, int8_t* codes, uint16_t* scales) {
  using formats::Q8_0;
  static_assert(kKvGroup == Q8_0::kUnit);
  for (int64_t d = 0; d < head_dim; d += kKvGroup, scales += kPageTokens) {
    const int64_t n = std::min(kKvGroup, head_dim - d);
    float group[kKvGroup] = {};
    std::copy_n(x + d, n, group);
    Q8_0::Block block = {FloatToF16(NAN), {}};
    if (std::all_of(group, group + n, [](float value) { return std::isfinite(value); })) {
      formats::Encode(group, block);
    }
    *scales = block.d;
    for (int64_t j = 0; j < n; ++j) codes[(d + j) * stride] = block.q[j];
  }
}

void WriteQ8Head(const float* k, const float* v, int64_t slot, int64_t head_dim, std::byte* head) {
  auto* codes = reinterpret_cast<int8_t*>(head);
  auto* scales = reinterpret_cast<uint16_t*>(head + KvHeadElements(head_dim)) + slot;
  WriteQ8(k, head_dim, kPageTokens, codes + slot, scales);
  WriteQ8(v, head_dim, /*stride=*/1,
          codes + head_dim * kPageTokens + slot * KvRowElements(head_dim),
          scales + KvScales(head_dim));
}

void WriteToken(const float* k, const float* v, int64_t slot, const KvLayout& layout,
                std::byte* page) {
  const auto write = layout.type == KvType::kF16    ? WriteHead<uint16_t>
                     : layout.type == KvType::kQ8_0 ? WriteQ8Head
                                                    : WriteHead<float>;
  const int64_t head_dim = layout.head_dim, bytes = KvHeadBytes(layout.type, head_dim);
  for (int64_t h = 0; h < layout.heads; ++h) {
    write(k + h * head_dim, v + h * head_dim, slot, head_dim, page + h * bytes);
  }
}

bool HasVbmi() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuKernels& kernels, const CpuOptions& options)
      : kernels_(kernels),
        base_three_(kernels.base_three && HasVbmi()),
        compute_(options.compute),
        dry_(options.dry),
        pool_(options.threads) {}

  std::string Describe() const override {
    return std::string("cpu, ") + kernels_.name + ", " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads");
  }

  int threads() const override { return pool_.threads(); }

  Buffer Allocate(int64_t bytes) override {
    if (bytes == 0) return {};
    allocated_ += bytes;
    if (dry_) return Buffer(nullptr, bytes, [](void*, int64_t) {});
    void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      std::fprintf(stderr,
                   "trine: out of memory: %lld bytes at once; use more ranks, a smaller model, "
                   "--ctx-size or --batch-size\n",
                   static_cast<long long>(bytes));
      std::_Exit(1);  // under mpirun this ends every rank
    }
    madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return Buffer(data, bytes, [](void* p, int64_t n) { munmap(p, static_cast<size_t>(n)); });
  }

  int64_t allocated() const override { return allocated_; }
  bool dry() const override { return dry_; }

  LoadedWeight LoadWeight(const WeightDesc& desc, const RowReader& reader) override {
    return RepackWeight(desc, compute_, base_three_, reader, pool_, *this);
  }

  void Upload(const void* host, int64_t bytes, void* to) override {
    if (bytes > 0 && !dry_) std::memcpy(to, host, static_cast<size_t>(bytes));
  }

  void ReadThrough(const Weight& weight) override {
    // Buffers are whole pages, so the last line is all there.
    const auto* lines =
        reinterpret_cast<const CacheLine*>(static_cast<const CpuWeight&>(weight).panels().data);
    pool_.ForRange((weight.bytes() + 63) / 64, kReadGrain,
                   [&](int64_t begin, int64_t end) { ReadLines(lines + begin, end - begin); });
  }

  void DecodeRows(DType type, const std::byte* packed, F32View out) override {
    DecodeStoredRows(type, packed, out);
  }

  void Linear(F32View x, std::span<const LinearTask> tasks) override {
    prepared_ = {};
    for (const LinearTask& task : tasks) {
      const auto& weight = static_cast<const CpuWeight&>(*task.weight);
      ForPanels(x, weight, [&](const Activations& a, int64_t begin, int64_t end) {
        kernels_.linear(weight.panels(), a, begin, end, task.bias, task.y);
      });
    }
  }

  void LinearPartial(F32View x, const Weight& w, int64_t seal, I64View out) override {
    const auto& weight = static_cast<const CpuWeight&>(w);
    prepared_ = {};
    const int64_t n = weight.panels().rows;
    for (int64_t t = 0; t < out.rows; ++t) out.row(t)[n] = 0;
    ForPanels(x, weight, [&](const Activations& a, int64_t begin, int64_t end) {
      kernels_.linear_partial(weight.panels(), a, begin, end, out);
    });
    pool_.ForRange(out.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        out.row(t)[n + 1] = Minus(seal, SumWords(out.row(t), n + 1));
      }
    });
  }

  void RmsNorm(F32View x, const float* w, float eps, F32View out) override {
    pool_.ForRange(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernels_.rms_norm(x.row(t), w, eps, x.cols, out.row(t));
      }
    });
  }

  void AddPartialNorm(F32View x, I64View partial, int64_t seal, const float* bias, const float* w,
                      float eps, F32View out, std::span<int32_t> row_faults) override {
    pool_.ForRange(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t* words = partial.row(t);
        breach_.Expect(seal, SumWords(words, x.cols + kPartialExtraWords));
        if (words[x.cols] != 0) ++row_faults[static_cast<size_t>(t)];
        kernels_.add_partial(words, bias, x.cols, x.row(t));
        kernels_.rms_norm(x.row(t), w, eps, x.cols, out.row(t));
      }
    });
  }

  void SealPart(F32View x, int64_t seal, float* to) override {
    Copy(x, {to, x.rows, x.cols, x.cols});
    const int64_t sum = Minus(seal, SumBits(pool_, to, x.rows * x.cols));
    std::memcpy(to + x.rows * x.cols, &sum, sizeof sum);
  }
  void CheckPart(const float* part, int64_t floats, int64_t seal) override {
    int64_t sum = 0;
    std::memcpy(&sum, part + floats, sizeof sum);
    breach_.Expect(seal, SumBits(pool_, part, floats) + static_cast<uint64_t>(sum));
  }

  Breach breach() const override { return breach_.get(); }

  void RopeAngles(const TokenPlaces& places, const RopeParams& rope, F32View angles) override {
    const int64_t pairs = rope.dims / 2;
    for (int64_t t = 0; t < angles.rows; ++t) {
      for (int64_t i = 0; i < pairs; ++i) {
        const auto [sine, cosine] = SinCos(static_cast<double>(rope.frequencies[i]) *
                                           places.positions[static_cast<size_t>(t)]);
        angles.row(t)[i] = static_cast<float>(cosine * rope.magnitude);
        angles.row(t)[pairs + i] = static_cast<float>(sine * rope.magnitude);
      }
    }
  }

  void Rope(F32View x, F32View angles, const RopeParams& rope) override {
    const int64_t pairs = rope.dims / 2;
    const bool halves = rope.pairs == RopePairs::kHalves;
    pool_.ForRange(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float *cosine = angles.row(t), *sine = cosine + pairs;
        for (float* head = x.row(t); head < x.row(t) + x.cols; head += rope.head_dim) {
          for (int64_t i = 0; i < pairs; ++i) {
            float& a = head[halves ? i : 2 * i];
            float& b = head[halves ? i + pairs : 2 * i + 1];
            const float rotated = a * cosine[i] - b * sine[i];
            b = b * cosine[i] + a * sine[i];
            a = rotated;
          }
        }
      }
    });
  }

  int64_t KvPageBytes(const KvLayout& layout) const override {
    return layout.heads * KvHeadBytes(layout.type, layout.head_dim);
  }

  void WriteKv(F32View k, F32View v, const TokenPlaces& places, const KvPages& pages) override {
    const int64_t page_bytes = KvPageBytes(pages.layout);
    pool_.ForRange(k.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const auto i = static_cast<size_t>(t);
        const int64_t position = places.positions[i];
        const auto sequence = static_cast<size_t>(places.sequences[i]);
        const int64_t nth = places.page_indptr[sequence] + position / kPageTokens;
        std::byte* page = pages.data + places.pages[static_cast<size_t>(nth)] * page_bytes;
        WriteToken(k.row(t), v.row(t), position % kPageTokens, pages.layout, page);
      }
    });
  }

  void PagedAttention(F32View q, std::span<const int32_t> kv_heads, float scale,
                      const TokenPlaces& places, const KvPages& pages, F32View out) override {
    const AttentionTask task{q, kv_heads.data(), scale, &places, pages, out};
    ListQueryBlocks(places, kv_heads, q.rows);
    pool_.ForRange(std::ssize(query_blocks_), 1, [&](int64_t begin, int64_t end) {
      kernels_.attention(
          task, std::span(query_blocks_)
                    .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    });
  }

  void Rotate(F32View x, const float* signs, int64_t block, Rotation direction,
              F32View out) override {
    const int64_t blocks = x.cols / block;
    pool_.ForRange(x.rows * blocks, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i % blocks * block;
        kernels_.rotate(x.row(i / blocks) + at, signs + at, block, direction,
                        out.row(i / blocks) + at);
      }
    });
  }

  void CausalConvSilu(F32View x, const float* weights, const TokenPlaces& places,
                      const DeltaStates& states) override {
    const DeltaLayout& layout = states.layout;
    ForSequences(places, [&](int64_t first, int64_t n, int32_t slot, const SlotTask& slot_task) {
      const ConvTask task{x.Rows(first, n),
                          weights,
                          layout.taps,
                          slot_task,
                          states.conv + slot * layout.conv_floats(),
                          LogOfSlot(states, slot).inputs};
      pool_.ForRange((x.cols + 15) / 16, kConvGrain, [&](int64_t begin, int64_t end) {
        kernels_.conv_silu(task, 16 * begin, std::min(16 * end, x.cols));
      });
    });
  }

  void DeltaGates(F32View decay, F32View beta, const float* rate, const float* bias) override {
    for (int64_t t = 0; t < decay.rows; ++t) {
      kernels_.delta_gates(rate, bias, decay.cols, decay.row(t), beta.row(t));
    }
  }

  void GatedDeltaRule(F32View qkv, F32View decay, F32View beta, const TokenPlaces& places,
                      const DeltaStates& states, F32View out) override {
    const DeltaLayout& layout = states.layout;
    const int64_t keys = layout.key_heads * layout.head_dim;
    ForSequences(places, [&](int64_t first, int64_t n, int32_t slot, const SlotTask& slot_task) {
      const DraftLog log = LogOfSlot(states, slot);
      const DeltaTask task{qkv.Rows(first, n),
                           decay.Rows(first, n),
                           beta.Rows(first, n),
                           out.Rows(first, n),
                           layout,
                           slot_task,
                           states.delta + slot * layout.delta_floats(),
                           log};
      pool_.ForRange((out.cols + 15) / 16, 1, [&](int64_t begin, int64_t end) {
        kernels_.delta_rule(task, 16 * begin, std::min(16 * end, out.cols));
      });
      // Only now: until here every head and thread read the log of the step before.
      const int64_t drafts = slot_task.drafts, certain = first + n - drafts;
      Copy({qkv.row(certain) + keys, drafts, log.kv.cols, qkv.stride}, log.kv);
      Copy(decay.Rows(certain, drafts), log.decay);
      Copy(beta.Rows(certain, drafts), log.beta);
    });
  }

  void SigmoidMul(F32View gate, F32View x) override {
    pool_.ForRange(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) kernels_.sigmoid_mul(gate.row(t), x.cols, x.row(t));
    });
  }

  void SiluMul(F32View gate, F32View up, F32View out) override {
    pool_.ForRange(gate.rows, kRowGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernels_.silu_mul(gate.row(t), up.row(t), gate.cols, out.row(t));
      }
    });
  }

  void Copy(F32View x, F32View out) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      std::memcpy(out.row(t), x.row(t), static_cast<size_t>(x.cols) * sizeof(float));
    }
  }

  void SelectRows(F32View x, std::span<const int32_t> rows, F32View out) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(out.row(static_cast<int64_t>(i)), x.row(rows[i]),
                  static_cast<size_t>(x.cols) * sizeof(float));
    }
  }

  void TopCandidates(F32View logits, int32_t first_id, const uint8_t* allowed,
                     std::span<const CandidateSpec> specs, Candidate* out, LogSum* sums) override {
    pool_.ForRange(std::ssize(specs), 1, [&](int64_t begin, int64_t end) {
      Candidate* to = out;
      LogSum* sums_to = sums;
      for (int64_t i = 0; i < end; ++i) {
        const CandidateSpec& spec = specs[static_cast<size_t>(i)];
        if (i >= begin) {
          SelectCandidates({logits.row(spec.row), static_cast<size_t>(logits.cols)}, first_id,
                           allowed, spec, to, sums_to);
        }
        to += spec.count + (spec.target >= 0 ? 1 : 0);
        if (spec.log_sums) sums_to += LogSumBlocks(logits.cols);
      }
    });
  }

 private:
  static constexpr int64_t kRowGrain = 4;    // a thread: below, waking it costs more than it saves
  static constexpr int64_t kReadGrain = 64;  // lines of a plain read

  static constexpr int64_t kConvGrain = 32;

  // fn(first token, tokens, state slot, SlotTask) for every sequence of a step.
  template <typename Fn>
  static void ForSequences(const TokenPlaces& places, Fn fn) {
    const auto tokens = std::ssize(places.sequences);
    for (int64_t first = 0, end = 0; first < tokens; first = end) {
      const auto sequence = static_cast<size_t>(places.sequences[static_cast<size_t>(first)]);
      const auto of = [&](std::span<const int32_t> counts) {
        return counts.empty() ? 0 : counts[sequence];
      };
      while (end < tokens && places.sequences[static_cast<size_t>(end)] ==
                                 places.sequences[static_cast<size_t>(first)]) {
        ++end;
      }
      fn(first, end - first, places.slots[sequence],
         SlotTask{places.positions[static_cast<size_t>(first)] == 0, of(places.drafts),
                  of(places.accepted)});
    }
  }

  // Dealt out to the threads in turn: the later a token, the more keys it meets.
  void ListQueryBlocks(const TokenPlaces& places, std::span<const int32_t> kv_heads,
                       int64_t tokens) {
    all_blocks_.clear();
    for (int64_t h = 0, heads = 0; h < std::ssize(kv_heads); h += heads) {
      const auto same = [&](int64_t head) {
        return kv_heads[static_cast<size_t>(head)] == kv_heads[static_cast<size_t>(h)];
      };
      for (heads = 1;
           heads < kBlockQueries && h + heads < std::ssize(kv_heads) && same(h + heads);) {
        ++heads;
      }
      for (int64_t t = 0, n = 0; t < tokens; t += n) {
        const auto sequence = [&](int64_t token) {
          return places.sequences[static_cast<size_t>(token)];
        };
        for (n = 1;
             n < kBlockQueries / heads && t + n < tokens && sequence(t + n) == sequence(t);) {
          ++n;
        }
        all_blocks_.push_back({t, n, h, heads});
      }
    }
    query_blocks_.clear();
    const auto count = all_blocks_.size(), dealt = static_cast<size_t>(threads());
    for (size_t first = 0; first < dealt; ++first) {
      for (size_t i = first; i < count; i += dealt) query_blocks_.push_back(all_blocks_[i]);
    }
  }

  // kernel(x in the form that the weight multiplies, begin, end) over its panels, a part a thread.
  template <typename Kernel>
  void ForPanels(F32View x, const CpuWeight& weight, const Kernel& kernel) {
    const Activations shared = Prepare(x, weight.panels());
    const int64_t panels = weight.panel_count();
    const int64_t parts = std::min<int64_t>(threads(), panels);
    const int64_t lanes = KeptFloats(x.rows) / 16;
    if (std::ssize(kept_) < parts * lanes) kept_.resize(static_cast<size_t>(parts * lanes));
    pool_.ForRange(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        Activations a = shared;
        if (lanes > 0) a.kept = kept_[static_cast<size_t>(part * lanes)].values;
        kernel(a, panels * part / parts, panels * (part + 1) / parts);
      }
    });
  }

  // Weights of one Linear mostly want the same form of x, so the last one made for it is kept.
  Activations Prepare(F32View x, const Panels& w) {
    const bool eight_bits = w.kind == PanelKind::kTwoBit || w.kind == PanelKind::kBaseThree;
    const Form wanted{w.group, w.unit, w.group == 0 ? 0 : eight_bits ? 1 : 2};
    const bool made = std::exchange(prepared_, wanted) == wanted;
    if (w.group == 0) return {x, {}, Tiles(x, made)};
    if (!made) {
      Reserve(wanted.planes, x.rows * x.cols, x.rows * (x.cols / w.unit));
      pool_.ForRange(TokenTiles{x.rows}.count(), 1, [&](int64_t begin, int64_t end) {
        kernels_.quantise(x, w.group, w.unit, begin, end, rows_);
      });
    }
    return {x, rows_};
  }

  const float* Tiles(F32View x, bool made) {
    if (x.rows == 1) return x.data;
    if (made) return tiles_.data();
    const int64_t floats = x.rows * x.cols;
    if (std::ssize(tiles_) < floats) tiles_.resize(static_cast<size_t>(floats));
    pool_.ForRange(TokenTiles{x.rows}.count(), 1, [&](int64_t begin, int64_t end) {
      kernels_.pack_tiles(x, begin, end, tiles_.data());
    });
    return tiles_.data();
  }

  // Grows to the largest step seen; a warm decode step allocates nothing.
  void Reserve(int planes, int64_t values, int64_t units) {
    if (std::ssize(low_) < values) low_.resize(static_cast<size_t>(values));
    if (planes == 2 && std::ssize(high_) < values) high_.resize(static_cast<size_t>(values));
    if (std::ssize(sums_) < units) {
      sums_.resize(static_cast<size_t>(units));
      scales_.resize(static_cast<size_t>(units));
    }
    rows_ = {planes == 2 ? high_.data() : nullptr, low_.data(), scales_.data(), sums_.data()};
  }

  // How x was prepared. Group 0: in tiles, for float kinds; -1: not yet.
  struct Form {
    int64_t group = -1, unit = 0;
    int planes = 0;
    bool operator==(const Form&) const = default;
  };

  struct alignas(64) Lanes {
    float values[16];
  };

  const CpuKernels& kernels_;
  const bool base_three_;
  const Compute compute_;
  const bool dry_;
  int64_t allocated_ = 0;
  ThreadPool pool_;
  FirstBreach breach_;
  Form prepared_;
  QuantisedRows rows_;
  std::vector<int8_t> high_, low_;
  std::vector<float> scales_;
  std::vector<int32_t> sums_;
  std::vector<float> tiles_;
  std::vector<Lanes> kept_;
  std::vector<QueryBlock> all_blocks_, query_blocks_;
};

#if defined(__x86_64__)
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool Runs(const char* unit) {
#if defined(__x86_64__)
  if (std::strcmp(unit, "avx2") == 0) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  }
  if (std::strcmp(unit, "avx512") == 0) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && HasF16c();
  }
#endif
  return std::strcmp(unit, "generic") == 0;
}

// The unit that TRINE_CPU names, or the best that runs here.
const CpuKernels* ChooseKernels(std::string* error) {
  const char* wanted = std::getenv("TRINE_CPU");
  for (const CpuKernels* kernels : {Avx512Kernels(), Avx2Kernels(), GenericKernels()}) {
    if (kernels == nullptr) continue;
    if (wanted == nullptr || *wanted == 0) {
      if (Runs(kernels->name)) return kernels;
    } else if (std::strcmp(wanted, kernels->name) == 0) {
      if (Runs(wanted)) return kernels;
      *error = "TRINE_CPU=" + std::string(wanted) + ": this processor does not have it; unset it";
      return nullptr;
    }
  }
  *error = "TRINE_CPU=" + std::string(wanted) + " is none of generic, avx2, avx512";
  return nullptr;
}

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options, std::string* error) {
  const cpu::CpuKernels* kernels = cpu::ChooseKernels(error);
  if (kernels == nullptr) return nullptr;
  try {
    return std::make_unique<cpu::CpuBackend>(*kernels, options);
  } catch (const std::system_error& failure) {
    *error = "cannot start " + std::to_string(options.threads) + " threads: " + failure.what() +
             "; use a smaller --threads";
    return nullptr;
  }
}

}  // namespace trine
