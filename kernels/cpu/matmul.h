// Matrix products over panels of 16 rows: the coded kinds, and the entries for all. One routine
// serves one token and many: tiles of tokens share the unpacked weights, and every token's sums are
// built in the same order. Part of a unit, see simd.h; float kinds: float_matmul.h.

static inline int32_t FourBytes(const int8_t* q) {
  int32_t word;
  __builtin_memcpy(&word, q, 4);
  return word;
}

// Where the activations of one unit lie, for TT tokens.
template <int TT>
struct UnitRows {
  const int8_t* high[TT];
  const int8_t* low[TT];
  int32_t sum[TT];
  float scale[TT];

  UnitRows(const Panels& w, const QuantisedRows& q, int64_t t0, int64_t k) {
    for (int t = 0; t < TT; ++t) {
      high[t] = q.high + (t0 + t) * w.cols + k;
      low[t] = q.low + (t0 + t) * w.cols + k;
      sum[t] = q.sums[(t0 + t) * (w.cols / w.unit) + k / w.unit];
      scale[t] = q.scales[(t0 + t) * (w.cols / w.group) + k / w.group];
    }
  }
};

// dot[t][row] = sum of code * a over one unit: exact, below 2^31 for units of 32 columns.
template <int TT, bool kNibbles>
static inline void UnitDots(const Panels& w, const uint8_t* codes, const UnitRows<TT>& a,
                            I32x16* dot) {
  I32x16 high[TT];
  for (int t = 0; t < TT; ++t) {
    high[t] = Set1(int32_t{0});
    dot[t] = DotStart(a.sum[t], w.code_bias);
  }
  if constexpr (kNibbles) {
    for (int64_t k = 0; k < w.unit; k += 8, codes += 64) {
      Codes first, second;
      LoadNibbles(codes, &first, &second);
      for (int t = 0; t < TT; ++t) {
        high[t] = DotSmall(high[t], first, FourBytes(a.high[t] + k));
        dot[t] = DotSmall(dot[t], first, FourBytes(a.low[t] + k));
        high[t] = DotSmall(high[t], second, FourBytes(a.high[t] + k + 4));
        dot[t] = DotSmall(dot[t], second, FourBytes(a.low[t] + k + 4));
      }
    }
  } else {
    for (int64_t k = 0; k < w.unit; k += 4, codes += 64) {
      const Codes bytes = LoadCodes(codes);
      for (int t = 0; t < TT; ++t) {
        high[t] = DotByte(high[t], bytes, FourBytes(a.high[t] + k));
        dot[t] = DotByte(dot[t], bytes, FourBytes(a.low[t] + k));
      }
    }
  }
  for (int t = 0; t < TT; ++t) dot[t] = AddShifted(dot[t], high[t]);
}

// acc[t] += sum over the units of [begin, end) of scale * x scale * dot (+ min * x scale * sum).
template <int TT, bool kNibbles>
static inline void CodedColumns(const Panels& w, const uint8_t* panel, const Activations& x,
                                int64_t t0, int64_t begin, int64_t end, F32x16* acc) {
  for (int64_t k = begin; k < end; k += w.unit) {
    const uint8_t* codes = panel + k / w.unit * w.unit_bytes;
    const UnitRows<TT> a(w, x.q, t0, k);
    I32x16 dot[TT];
    UnitDots<TT, kNibbles>(w, codes, a, dot);
    const float* scales = reinterpret_cast<const float*>(codes + w.scales_at);
    const F32x16 scale = Load(scales);
    for (int t = 0; t < TT; ++t) {
      acc[t] = Fma(ToFloat(dot[t]), Mul(scale, Set1(a.scale[t])), acc[t]);
    }
    if (w.has_min) {
      const F32x16 min = Load(scales + 16);
      for (int t = 0; t < TT; ++t) {
        acc[t] = Fma(min, Set1(a.scale[t] * static_cast<float>(a.sum[t])), acc[t]);
      }
    }
  }
}

// Two-bit codes against the one plane of 8-bit activations.
template <int TT>
static inline void TwoBitDots(const Panels& w, const uint8_t* words, const QuantisedRows& q,
                              int64_t t0, int64_t k, I32x16* dot) {
  const int8_t* a[TT];
  for (int t = 0; t < TT; ++t) {
    a[t] = q.low + (t0 + t) * w.cols + k;
    dot[t] = DotStart(q.sums[(t0 + t) * (w.cols / w.unit) + k / w.unit], w.code_bias);
  }
  for (int64_t j = 0; j < w.unit; j += 16, words += 64) {
    Codes fields[4];
    LoadTwoBits(words, fields);
    for (int t = 0; t < TT; ++t) {
      for (int f = 0; f < 4; ++f) {
        dot[t] = DotSmall(dot[t], fields[f], FourBytes(a[t] + j + 4 * f));
      }
    }
  }
}

// acc[t] += sum over the groups of [begin, end) of scale * x scale * dot. A group of two units
// whose scales are equal is summed as one unit of twice the width would be, row by row.
template <int TT>
static inline void TwoBitColumns(const Panels& w, const uint8_t* panel, const Activations& x,
                                 int64_t t0, int64_t begin, int64_t end, F32x16* acc) {
  for (int64_t k = begin; k < end; k += w.group) {
    const uint8_t* words = panel + k / w.unit * w.unit_bytes;
    float x_scale[TT];
    for (int t = 0; t < TT; ++t) {
      x_scale[t] = x.q.scales[(t0 + t) * (w.cols / w.group) + k / w.group];
    }
    I32x16 dot[TT];
    TwoBitDots<TT>(w, words, x.q, t0, k, dot);
    const F32x16 scale = LoadF16(reinterpret_cast<const uint16_t*>(words + w.scales_at));
    if (w.group == w.unit) {
      for (int t = 0; t < TT; ++t) {
        acc[t] = Fma(ToFloat(dot[t]), Mul(scale, Set1(x_scale[t])), acc[t]);
      }
      continue;
    }
    words += w.unit_bytes;
    I32x16 second[TT];
    TwoBitDots<TT>(w, words, x.q, t0, k + w.unit, second);
    const F32x16 scale2 = LoadF16(reinterpret_cast<const uint16_t*>(words + w.scales_at));
    for (int t = 0; t < TT; ++t) {
      const F32x16 by = Mul(scale, Set1(x_scale[t])), by2 = Mul(scale2, Set1(x_scale[t]));
      const F32x16 joint = Fma(ToFloat(Add(dot[t], second[t])), by, acc[t]);
      const F32x16 apart = Fma(ToFloat(second[t]), by2, Fma(ToFloat(dot[t]), by, acc[t]));
      acc[t] = IfEqual(scale, scale2, joint, apart);
    }
  }
}

template <int TT>
static inline void Columns(const Panels& w, const uint8_t* panel, const Activations& a, int64_t t0,
                           int64_t begin, int64_t end, F32x16* acc) {
  switch (w.kind) {
    case PanelKind::kNibble:
      return CodedColumns<TT, true>(w, panel, a, t0, begin, end, acc);
    case PanelKind::kByte:
      return CodedColumns<TT, false>(w, panel, a, t0, begin, end, acc);
    case PanelKind::kTwoBit:
      return TwoBitColumns<TT>(w, panel, a, t0, begin, end, acc);
    default:  // float kinds
      return;
  }
}

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

static void LinearPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                         const float* bias, F32View y) {
  if (w.group == 0) {
    return FloatPanelsOfKind(w, a, begin, end, w.cols,
                             [&](int64_t panel, int64_t t, F32x16 sums, bool) {
                               StoreLinear(w, panel, sums, bias, y.row(t));
                             });
  }
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* panel = w.data + p * w.panel_bytes;
    const int64_t row = 16 * p;
    const int64_t rows = w.rows - row < 16 ? w.rows - row : 16;
    const F32x16 shift = bias == nullptr ? Zero() : LoadPart(bias + row, rows);
    ForTokenTiles<4>(0, y.rows, [&]<int TT>(int64_t t0) {
      F32x16 acc[TT];
      for (int t = 0; t < TT; ++t) acc[t] = Zero();
      Columns<TT>(w, panel, a, t0, 0, w.cols, acc);
      for (int t = 0; t < TT; ++t) StorePart(y.row(t0 + t) + row, Add(acc[t], shift), rows);
    });
  }
}

static void LinearPartialPanels(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                                I64View out) {
  if (w.group == 0) {
    return FloatPanelsOfKind(w, a, begin, end, w.granule,
                             [&](int64_t panel, int64_t t, F32x16 sums, bool first) {
                               AddGranule(w, panel, sums, first, out.row(t));
                             });
  }
  for (int64_t p = begin; p < end; ++p) {
    const uint8_t* panel = w.data + p * w.panel_bytes;
    const int64_t row = 16 * p;
    const int64_t rows = w.rows - row < 16 ? w.rows - row : 16;
    ForTokenTiles<4>(0, out.rows, [&]<int TT>(int64_t t0) {
      alignas(64) int64_t sums[TT][16] = {};
      int64_t faults[TT] = {};
      for (int64_t k = 0; k < w.cols; k += w.granule) {
        F32x16 acc[TT];
        for (int t = 0; t < TT; ++t) acc[t] = Zero();
        Columns<TT>(w, panel, a, t0, k, k + w.granule < w.cols ? k + w.granule : w.cols, acc);
        for (int t = 0; t < TT; ++t) faults[t] += AccumulatePartial(sums[t], acc[t]);
      }
      for (int t = 0; t < TT; ++t) {
        int64_t* to = out.row(t0 + t);
        __builtin_memcpy(to + row, sums[t], static_cast<size_t>(rows) * sizeof(int64_t));
        if (faults[t] != 0) __atomic_fetch_add(to + w.rows, faults[t], __ATOMIC_RELAXED);
      }
    });
  }
}
