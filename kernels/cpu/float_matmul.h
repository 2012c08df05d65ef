// Matrix products over panels of f32, f16 or bf16. One routine serves one token and many: a sum is
// always built over k = 0, 1, ... by fused multiply-adds, and it may rest in memory between two
// blocks of columns, which keeps its bits. Part of a unit, see simd.h.
//
// Few tokens (one tile) read the panels once, as they are, as fast as memory gives them. More
// tokens share a slab: the f32 values of a few columns of a group of panels, which stay in the
// first-level cache while every tile of tokens passes (Goto, van de Geijn 2008).

// A tile is 4 panels and 6 tokens: 24 sums, 4 weights and one value of x fill 29 of AVX-512's 32
// registers, and a column costs 10 loads for its 24 multiply-adds. AVX2 has 16 registers and two to
// a panel, so it takes a tile in parts, as many panels at a time as its tokens leave room for.
template <int TT>
constexpr int PanelsAtOnce() {
#ifdef TRINE_SIMD_AVX512
  return kGroupPanels;
#else
  return TT == 1 ? 4 : TT == 2 ? 2 : 1;
#endif
}
constexpr int64_t kSlabCols = 128;        // 32 KiB with the 4 panels
constexpr int64_t kPrefetchBytes = 1024;  // ahead in each panel; a line is 64

// One group of panels, one block of columns.
template <typename Element>
struct FloatBlock {
  const Element* w[kGroupPanels];  // [n][16] each; surplus ones repeat the last panel
  int64_t panel, panels;           // the first, and how many are not surplus
  int64_t k, n;                    // the columns
  bool begins, ends;               // the sums of a granule
  bool first;                      // granule
};

// acc[p][t] += w[p][k] x[k][t], one k after the other. With kStream, w comes from memory and is
// fetched ahead; without it the next tile's x is, which lies too far off for the processor to guess
// (+75 % where x is larger than the second-level cache).
template <int P, int TT, bool kStream, typename Element>
TRINE_INLINE static inline void MultiplyTile(const Element* const* w, const float* x,
                                             const float* next, int64_t n, F32x16 (&acc)[P * TT]) {
  const Element* at[P];
  Unrolled<P>([&](int p) TRINE_INLINE { at[p] = w[p]; });
  const auto columns = [&](int64_t count) TRINE_INLINE {
    for (int64_t i = 0; i < count; ++i, x += TT, next += TT) {
      if constexpr (!kStream) __builtin_prefetch(next);
      F32x16 lanes[P];
      Unrolled<P>([&](int p) TRINE_INLINE {
        lanes[p] = LoadLanes(at[p]);
        at[p] += 16;
      });
      Unrolled<TT>([&](int t) TRINE_INLINE {
        const F32x16 value = Set1(x[t]);
        Unrolled<P>([&](int p)
                        TRINE_INLINE { acc[p * TT + t] = Fma(lanes[p], value, acc[p * TT + t]); });
      });
    }
  };
  constexpr int64_t kLine = 64 / (16 * sizeof(Element));  // columns of a cache line
  if constexpr (kStream) {
    for (; n >= kLine; n -= kLine) {
      Unrolled<P>([&](int p) TRINE_INLINE {
        __builtin_prefetch(reinterpret_cast<const char*>(at[p]) + kPrefetchBytes);
      });
      columns(kLine);
    }
  }
  columns(n);
}

// One tile: sums begin at zero or in `kept`, and end with `emit` or in `kept` [panels][TT][16].
template <int TT, bool kStream, typename Element, typename Emit>
static inline void FloatTile(const FloatBlock<Element>& block, const float* x, const float* next,
                             int64_t t0, float* kept, const Emit& emit) {
  constexpr int P = PanelsAtOnce<TT>();
  for (int first = 0; first < block.panels; first += P, kept += P * TT * 16) {
    F32x16 acc[P * TT];
    Unrolled<P * TT>([&](int i)
                         TRINE_INLINE { acc[i] = block.begins ? Zero() : Load(kept + i * 16); });
    MultiplyTile<P, TT, kStream>(block.w + first, x, next, block.n, acc);
    alignas(64) float done[P * TT * 16];
    float* to = block.ends ? done : kept;
    Unrolled<P * TT>([&](int i) TRINE_INLINE { Store(to + i * 16, acc[i]); });
    if (!block.ends) continue;
    for (int p = 0; p < P && first + p < block.panels; ++p) {
      for (int t = 0; t < TT; ++t) {
        emit(block.panel + first + p, t0 + t, Load(done + (p * TT + t) * 16), block.first);
      }
    }
  }
}

// The block's values as f32 into slab [kGroupPanels][kSlabCols][16]; the columns after it are
// fetched, for the next block of the same panels.
template <typename Element>
static FloatBlock<float> UnpackSlab(const FloatBlock<Element>& block, float* slab) {
  FloatBlock<float> unpacked = {{},      block.panel,  block.panels, block.k,
                                block.n, block.begins, block.ends,   block.first};
  for (int p = 0; p < kGroupPanels; ++p) {
    unpacked.w[p] = slab + (p < block.panels ? p : block.panels - 1) * kSlabCols * 16;
  }
  for (int p = 0; p < block.panels; ++p) {
    const Element* from = block.w[p];
    float* to = slab + p * kSlabCols * 16;
    for (int64_t k = 0; k < block.n; ++k) {
      __builtin_prefetch(from + 16 * (k + kSlabCols), /*rw=*/0, /*locality=*/2);
      Store(to + 16 * k, LoadLanes(from + 16 * k));
    }
  }
  return unpacked;
}

template <typename Element>
static inline FloatBlock<Element> BlockAt(const Panels& w, int64_t panel, int64_t end, int64_t k,
                                          int64_t depth, int64_t granule) {
  FloatBlock<Element> block;
  block.panel = panel;
  block.panels = end - panel < kGroupPanels ? end - panel : kGroupPanels;
  const int64_t start = granule == 0 ? 0 : k / granule * granule;
  const int64_t stop = start + granule < w.cols ? start + granule : w.cols;
  block.k = k;
  block.n = stop - k < depth ? stop - k : depth;
  block.begins = k == start;
  block.ends = k + block.n == stop;
  block.first = start == 0;
  for (int64_t p = 0; p < kGroupPanels; ++p) {
    const int64_t real = panel + (p < block.panels ? p : block.panels - 1);
    block.w[p] = reinterpret_cast<const Element*>(w.data + real * w.panel_bytes) + 16 * k;
  }
  return block;
}

// Panels [begin, end) times all tokens; emit(panel, token, sums, first) for every granule. The
// sums of a group and kBlockTokens, 132 KB, and those tokens' slice of x, 264 KB, stay in the
// second-level cache.
template <typename Element, typename Emit>
static void FloatPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                        int64_t granule, const Emit& emit) {
  alignas(64) float slab[kGroupPanels * kSlabCols * 16];
  const bool direct = a.x.rows <= kTileTokens;
  for (int64_t t0 = 0; t0 < a.x.rows; t0 += kBlockTokens) {
    const int64_t t1 = t0 + kBlockTokens < a.x.rows ? t0 + kBlockTokens : a.x.rows;
    for (int64_t p = begin; p < end; p += kGroupPanels) {
      int64_t k = 0;
      do {
        const auto block = BlockAt<Element>(w, p, end, k, direct ? w.cols : kSlabCols, granule);
        const auto tiles = [&]<bool kStream>(const auto& weights) {
          ForTokenTiles<kTileTokens>(t0, t1, [&]<int TT>(int64_t t) {
            const int64_t after = t + TT < t1 ? t + TT : t0;
            FloatTile<TT, kStream>(weights, a.tiles + t * w.cols + k * TT,
                                   a.tiles + after * w.cols + k * TT, t,
                                   a.kept + (t - t0) * kGroupPanels * 16, emit);
          });
        };
        if (direct) {
          tiles.template operator()<true>(block);
        } else {
          tiles.template operator()<false>(UnpackSlab(block, slab));
        }
        k += block.n;
      } while (k < w.cols);
    }
  }
}

template <typename Emit>
static void FloatPanelsOfKind(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                              int64_t granule, const Emit& emit) {
  switch (w.kind) {
    case PanelKind::kF16:
      return FloatPanels<F16>(w, a, begin, end, granule, emit);
    case PanelKind::kBF16:
      return FloatPanels<BF16>(w, a, begin, end, granule, emit);
    default:
      return FloatPanels<float>(w, a, begin, end, granule, emit);
  }
}

// Tiles [begin, end) of tokens: out + t0 * cols holds tile t0's [cols][tokens of the tile].
static void PackTokenTiles(F32View x, int64_t begin, int64_t end, float* out) {
  const int64_t last = end * kTileTokens < x.rows ? end * kTileTokens : x.rows;
  ForTokenTiles<kTileTokens>(begin * kTileTokens, last, [&]<int TT>(int64_t t0) {
    const float* rows[TT];
    for (int t = 0; t < TT; ++t) rows[t] = x.row(t0 + t);
    float* to = out + t0 * x.cols;
    for (int64_t k = 0; k < x.cols; ++k, to += TT) {
      for (int t = 0; t < TT; ++t) to[t] = rows[t][k];
    }
  });
}
