// Tiles over panels of f32, f16 or bf16: a sum is built over k = 0, 1, ... by fused multiply-adds.
// Part of a unit, see simd.h and matmul.h.

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
constexpr int64_t kPrefetchBytes = 1024;  // ahead in each panel; a line is 64

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

// A tile with all panels of a block, w[p] their values from its first column on: sums begin at zero
// or in `kept` [panels][TT][16], and end with `emit` or in `kept`. x, next: this tile's and the next
// one's values.
template <int TT, bool kStream, typename Element, typename Emit>
static inline void FloatTile(const Block& block, const Element* const* w, const float* x,
                             const float* next, int64_t t0, float* kept, const Emit& emit) {
  constexpr int P = PanelsAtOnce<TT>();
  for (int first = 0; first < block.panels; first += P) {
    const auto rest = [&](int i) { return kept + (first * TT + i) * 16; };
    F32x16 acc[P * TT];
    Unrolled<P * TT>([&](int i) TRINE_INLINE { acc[i] = block.begins ? Zero() : Load(rest(i)); });
    MultiplyTile<P, TT, kStream>(w + first, x, next, block.n, acc);
    alignas(64) float done[P * TT * 16];
    Unrolled<P * TT>([&](int i) TRINE_INLINE { Store(block.ends ? done + i * 16 : rest(i), acc[i]); });
    if (!block.ends) continue;
    for (int p = 0; p < P && first + p < block.panels; ++p) {
      for (int t = 0; t < TT; ++t) {
        emit(block.panel + first + p, t0 + t, Load(done + (p * TT + t) * 16), block.first);
      }
    }
  }
}

template <typename Element>
struct FloatProduct {
  static constexpr int64_t kDirectTokens = kTileTokens;
  static constexpr int64_t kSlabCols = 128;  // 32 KiB with the 4 panels
  // Their sums, 132 KiB, and their slice of x, 264 KiB, stay in the second-level cache.
  static constexpr int64_t kBlockTiles = kMostBlockTiles;

  static int64_t DirectPanels(int64_t) { return kGroupPanels; }
  struct Slab {
    alignas(64) float values[kGroupPanels][kSlabCols * 16];
  };

  static const Element* At(const Block& block, int64_t p) {
    return reinterpret_cast<const Element*>(block.w[p]);
  }
  // The values of tile t0 from the block's first column on.
  static const float* Values(const Panels& w, const Block& block, const Activations& a, int64_t t0,
                             int64_t tokens) {
    return a.tiles + t0 * w.cols + block.k * tokens;
  }

  // The block's values as f32; the columns after it are fetched, for the next block of the same
  // panels.
  static void Unpack(const Panels&, const Block& block, Slab& slab) {
    for (int64_t p = 0; p < block.panels; ++p) {
      const Element* from = At(block, p);
      for (int64_t k = 0; k < block.n; ++k) {
        __builtin_prefetch(from + 16 * (k + kSlabCols), /*rw=*/0, /*locality=*/2);
        Store(slab.values[p] + 16 * k, LoadLanes(from + 16 * k));
      }
    }
  }

  template <int TT, typename Emit>
  static void SlabTile(const Panels& w, const Block& block, const Slab& slab, const Activations& a,
                       int64_t t0, int64_t after, float* kept, const Emit& emit) {
    const float* values[kGroupPanels];
    for (int64_t p = 0; p < kGroupPanels; ++p) values[p] = slab.values[block.nth[p]];
    FloatTile<TT, false>(block, values, Values(w, block, a, t0, TT), Values(w, block, a, after, TT),
                         t0, kept, emit);
  }

  template <int TT, typename Emit>
  static void DirectTile(const Panels& w, Block block, const Activations& a, int64_t t0,
                         int64_t granule, const Emit& emit) {
    const Element* values[kGroupPanels];
    for (int64_t p = 0; p < kGroupPanels; ++p) values[p] = At(block, p);
    do {
      block.n = w.cols - block.k < granule ? w.cols - block.k : granule;
      const float* x = Values(w, block, a, t0, TT);
      FloatTile<TT, true>(block, values, x, x, t0, /*kept=*/nullptr, emit);
      for (const Element*& p : values) p += 16 * block.n;
      block.k += granule;
      block.first = false;
    } while (block.k < w.cols);
  }
};

// Tiles [begin, end) of tokens: out + t0 * cols holds tile t0's [cols][tokens of the tile].
static void PackTokenTiles(F32View x, int64_t begin, int64_t end, float* out) {
  ForTokenTiles({x.rows}, begin, end, [&]<int TT>(int64_t t0, int64_t) {
    const float* rows[TT];
    for (int t = 0; t < TT; ++t) rows[t] = x.row(t0 + t);
    float* to = out + t0 * x.cols;
    for (int64_t k = 0; k < x.cols; ++k, to += TT) {
      for (int t = 0; t < TT; ++t) to[t] = rows[t][k];
    }
  });
}
