// Matrix products over panels of 16 rows: the walk over panels, columns and tokens that all kinds
// share, and the entries. One routine serves one token and many, and every sum is built in the same
// order; it may rest in memory between two blocks of columns, which keeps its bits. What a tile of
// tokens does with a block is a Product's: float_matmul.h, coded_matmul.h. Part of a unit, see
// simd.h.
//
// Few tokens read the panels once, as they are, as fast as memory gives them. More tokens share a
// slab: the unpacked values of a few columns of a group of panels, which stay in the first-level
// cache while every tile of tokens passes (Goto, van de Geijn 2008).

static inline void StoreLinear(const Panels& w, int64_t panel, F32x16 sums, const float* bias,
                               float* y) {
  const int64_t row = 16 * panel;
  const int64_t rows = w.rows - row < 16 ? w.rows - row : 16;
  if (bias != nullptr) sums = Add(sums, LoadPart(bias + row, rows));
  StorePart(y + row, sums, rows);
}

// One granule of one panel to the words of one token; the first one sets them.
static inline void AddGranule(const Panels& w, int64_t panel, F32x16 sums, bool first,
                              int64_t* words) {
  const int64_t row = 16 * panel;
  const int64_t rows = w.rows - row;
  alignas(64) int64_t part[16];  // of the last panel
  int64_t* to = rows < 16 ? part : words + row;
  if (first) {
    __builtin_memset(to, 0, sizeof part);
  } else if (rows < 16) {
    for (int64_t i = 0; i < 16; ++i) part[i] = i < rows ? words[row + i] : 0;
  }
  const int64_t faults = AccumulatePartial(to, sums);
  for (int64_t i = 0; i < 16 && rows < 16; ++i) {
    if (i < rows) words[row + i] = part[i];
  }
  if (faults != 0) __atomic_fetch_add(words + w.rows, faults, __ATOMIC_RELAXED);
}

// Panels [panel, end) from column k on; of the granule [start, stop), n columns.
static inline Block BlockAt(const Panels& w, int64_t panel, int64_t end, int64_t start, int64_t k,
                            int64_t n, int64_t stop) {
  Block block;
  block.panel = panel;
  block.panels = end - panel;
  block.k = k;
  block.n = n;
  block.begins = k == start;
  block.ends = k + n == stop;
  block.first = start == 0;
  const uint8_t* at = w.data + panel * w.panel_bytes + w.Units(k) * w.unit_bytes;
  for (int64_t p = 0; p < kGroupPanels; ++p) {
    block.nth[p] = p < block.panels ? p : block.panels - 1;
    block.w[p] = at + block.nth[p] * w.panel_bytes;
  }
  return block;
}

// A group of panels times tiles [begin, end) of tokens, by slabs; emit(panel, token, sums, first) for
// every granule.
template <typename Product, typename Emit>
static void MultiplySlabs(const Panels& w, const Activations& a, int64_t panel, int64_t panel_end,
                          int64_t begin, int64_t end, int64_t granule,
                          typename Product::Slab& slab, const Emit& emit) {
  const TokenTiles tiles{a.x.rows};
  for (int64_t start = 0, stop = 0; start < w.cols; start = stop) {
    stop = start + granule < w.cols ? start + granule : w.cols;
    for (int64_t k = start, n = 0; k < stop; k += n) {
      n = stop - k < Product::kSlabCols ? stop - k : Product::kSlabCols;
      const Block block = BlockAt(w, panel, panel_end, start, k, n, stop);
      Product::Unpack(w, block, slab);
      ForTokenTiles(tiles, begin, end, [&]<int TT>(int64_t t, int64_t after) {
        float* kept = a.kept + (t - tiles.begin(begin)) * kGroupPanels * 16;
        Product::template SlabTile<TT>(w, block, slab, a, t, after, kept, emit);
      });
    }
  }
}

// Panels [begin, end) times all tokens.
template <typename Product, typename Emit>
static void MultiplyPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                           int64_t granule, const Emit& emit) {
  const TokenTiles tiles{a.x.rows};
  const int64_t count = tiles.count(), most = Product::kBlockTiles;
  if (a.x.rows <= Product::kDirectTokens || w.cols == 0) {  // of no columns every sum is 0
    const int64_t step = Product::DirectPanels(a.x.rows);
    for (int64_t p = begin; p < end; p += step) {
      const Block block = BlockAt(w, p, p + step < end ? p + step : end, 0, 0, w.cols, w.cols);
      ForTokenTiles(tiles, 0, count, [&]<int TT>(int64_t t, int64_t) {
        Product::template DirectTile<TT>(w, block, a, t, granule, emit);
      });
    }
    return;
  }
  typename Product::Slab slab;
  for (int64_t p = begin; p < end; p += kGroupPanels) {
    for (int64_t i = 0; i < count; i += most) {
      MultiplySlabs<Product>(w, a, p, p + kGroupPanels < end ? p + kGroupPanels : end, i,
                             i + most < count ? i + most : count, granule, slab, emit);
    }
  }
}

template <typename Emit>
static void MultiplyPanelsOfKind(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                                 int64_t granule, const Emit& emit) {
  switch (w.kind) {
    case PanelKind::kF32:
      return MultiplyPanels<FloatProduct<float>>(w, a, begin, end, granule, emit);
    case PanelKind::kF16:
      return MultiplyPanels<FloatProduct<F16>>(w, a, begin, end, granule, emit);
    case PanelKind::kBF16:
      return MultiplyPanels<FloatProduct<BF16>>(w, a, begin, end, granule, emit);
    case PanelKind::kNibble:
      return MultiplyPanels<CodedProduct<NibbleWords>>(w, a, begin, end, granule, emit);
    case PanelKind::kByte:
      return MultiplyPanels<CodedProduct<ByteWords>>(w, a, begin, end, granule, emit);
    case PanelKind::kTwoBit:
      return MultiplyPanels<CodedProduct<TwoBitWords>>(w, a, begin, end, granule, emit);
    case PanelKind::kBaseThree:
#ifdef TRINE_SIMD_AVX512
      return MultiplyPanels<CodedProduct<BaseThreeWords>>(w, a, begin, end, granule, emit);
#else
      return;  // not planned here: kBaseThree is false
#endif
  }
}

static void LinearPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                         const float* bias, F32View y) {
  MultiplyPanelsOfKind(w, a, begin, end, w.cols, [&](int64_t panel, int64_t t, F32x16 sums, bool) {
    StoreLinear(w, panel, sums, bias, y.row(t));
  });
}

static void LinearPartialPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                                I64View out) {
  MultiplyPanelsOfKind(
      w, a, begin, end, w.granule, [&](int64_t panel, int64_t t, F32x16 sums, bool first) {
        AddGranule(w, panel, sums, first, out.row(t));
      });
}
