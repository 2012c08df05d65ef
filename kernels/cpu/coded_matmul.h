// Tiles over panels of integer codes: exact dot products of a unit's codes and integer activations,
// which scales turn into f32. Part of a unit, see simd.h and matmul.h.

// How 64 bytes of a panel give codes: kFields times four columns of 16 rows, in order.
struct TwoBitWords {
  static constexpr int kFields = 4, kTailFields = 0;
  static constexpr bool kSmall = true;
  using Word = Codes;
  static Word Load(const uint8_t* p) { return LoadCodes(p); }
  static Codes Field(const Word& word, int field) { return TwoBits(word, field); }
};
struct NibbleWords {
  static constexpr int kFields = 2, kTailFields = 0;
  static constexpr bool kSmall = true;
  using Word = Codes;
  static Word Load(const uint8_t* p) { return LoadCodes(p); }
  static Codes Field(const Word& word, int field) { return Nibbles(word, field); }
};
template <bool kSmallCodes>
struct PlainWords {
  static constexpr int kFields = 1, kTailFields = 0;
  static constexpr bool kSmall = kSmallCodes;
  using Word = Codes;
  static Word Load(const uint8_t* p) { return LoadCodes(p); }
  static Codes Field(const Word& word, int) { return word; }
};
using ByteWords = PlainWords<false>;

#ifdef TRINE_SIMD_AVX512
// Byte r + 81 t: the digits of r are the codes of four fields, t is the fifth's, kept in the top two
// bits. 128 columns are six such words and a tail of 32 bytes: 16 rows of four nibbles, two plain
// codes each.
struct BaseThreeWords {
  static constexpr int kFields = 5, kTailFields = 2;
  static constexpr bool kSmall = true;
  struct Word {
    Codes fours, fifth;
  };
  static Word Load(const uint8_t* p) {
    Word word;
    SplitBaseThree(LoadCodes(p), &word.fours, &word.fifth);
    return word;
  }
  static Codes Field(const Word& word, int field) {
    return field < 4 ? TwoBits(word.fours, field) : TwoBits(word.fifth, 3);
  }
  static Codes LoadTail(const uint8_t* p) { return SpreadNibbles(p); }
};
#endif

template <typename Words>
using SumsOf = std::conditional_t<Words::kSmall, SmallSums, I32x16>;

// Where the codes and the scales of P panels begin, of one unit, and how far the next ones are.
template <int P>
struct UnitAt {
  const uint8_t* codes[P];
  const uint8_t* scales[P];
  int64_t to_codes, to_scales;

  void NextUnit() {
    for (int p = 0; p < P; ++p) {
      codes[p] += to_codes;
      scales[p] += to_scales;
    }
  }
};
// The integers of one tile of tokens from a group on: activations [k / 4][TT], sums [unit][TT],
// scales [group][TT]. Without 16 bits `high` is nullptr.
template <int TT>
struct TileAt {
  const int32_t* high;
  const int32_t* low;
  const int32_t* sums;
  const float* scales;

  TileAt(const Panels& w, const QuantisedRows& q, int64_t t0, int64_t k)
      : high(q.high == nullptr ? nullptr : Ints(q.high + t0 * w.cols + k * TT)),
        low(Ints(q.low + t0 * w.cols + k * TT)),
        sums(q.sums + t0 * w.Units(w.cols) + w.Units(k) * TT),
        scales(q.scales + t0 * w.Groups(w.cols) + w.Groups(k) * TT) {}

  void NextUnit(const Panels& w) {
    if (high != nullptr) high += w.unit / 4 * TT;
    low += w.unit / 4 * TT;
    sums += TT;
  }

 private:
  static const int32_t* Ints(const int8_t* p) { return reinterpret_cast<const int32_t*>(p); }
};

// Bytes that panels are fetched ahead: one of them, and several side by side.
constexpr int64_t kStreamAhead = 2048;
constexpr int64_t kStreamsAhead = 1088;

// sums[p * N + i] += codes of panel p times row i of x, over a unit. x(step, i): four columns of it.
template <typename Words, int P, int N, bool kStream, typename Rows>
TRINE_INLINE static inline void AddDots(const uint8_t* const* codes, const Rows& x, int64_t unit,
                                        SumsOf<Words> (&sums)[P * N]) {
  const uint8_t* at[P];
  Unrolled<P>([&](int p) TRINE_INLINE { at[p] = codes[p]; });
  int64_t step = 0;
  const auto multiply = [&](const Codes* field) TRINE_INLINE {
    Unrolled<N>([&](int i) TRINE_INLINE {
      const Fours a = Broadcast(x(step, i));
      Unrolled<P>([&](int p) TRINE_INLINE {
        if constexpr (Words::kSmall) {
          sums[p * N + i] = DotSmall(sums[p * N + i], field[p], a);
        } else {
          sums[p * N + i] = DotWide(sums[p * N + i], field[p], a);
        }
      });
    });
    ++step;
  };
  for (int64_t word = unit / (4 * Words::kFields); word > 0; --word) {
    typename Words::Word words[P];
    Unrolled<P>([&](int p) TRINE_INLINE {
      if constexpr (kStream) __builtin_prefetch(at[p] + kStreamsAhead);
      words[p] = Words::Load(at[p]);
      at[p] += 64;
    });
    Unrolled<Words::kFields>([&](int f) TRINE_INLINE {
      Codes field[P];
      Unrolled<P>([&](int p) TRINE_INLINE { field[p] = Words::Field(words[p], f); });
      multiply(field);
    });
  }
  if constexpr (Words::kTailFields > 0) {
    Codes tails[P];
    Unrolled<P>([&](int p) TRINE_INLINE { tails[p] = Words::LoadTail(at[p]); });
    Unrolled<Words::kTailFields>([&](int f) TRINE_INLINE {
      Codes field[P];
      Unrolled<P>([&](int p) TRINE_INLINE { field[p] = TwoBits(tails[p], f); });
      multiply(field);
    });
  }
}

// dots[p * N + i] = start[i] + the exact sum of codes times row i of x, over a unit.
template <typename Words, int P, int N, bool kStream, typename Rows>
TRINE_INLINE static inline void UnitDots(const uint8_t* const* codes, const Rows& x, int64_t unit,
                                         const int32_t* start, I32x16 (&dots)[P * N]) {
  SumsOf<Words> sums[P * N];
  Unrolled<P * N>([&](int i) TRINE_INLINE {
    if constexpr (Words::kSmall) {
      sums[i] = StartSmall(start[i % N]);
    } else {
      sums[i] = Set1(start[i % N]);
    }
  });
  AddDots<Words, P, N, kStream>(codes, x, unit, sums);
  Unrolled<P * N>([&](int i) TRINE_INLINE {
    EndLoop(sums[i]);
    if constexpr (Words::kSmall) {
      dots[i] = FinishSmall(sums[i], start[i % N]);
    } else {
      dots[i] = sums[i];
    }
  });
}

// The rows of a tile of 8-bit activations [k / 4][TT].
template <int TT>
struct EightBitRows {
  const int32_t* x;
  TRINE_INLINE int32_t operator()(int64_t step, int row) const { return x[step * TT + row]; }
};
// Those of 16-bit activations of tokens [first, first + N): N high ones, then N low ones.
template <int TT, int N>
struct SixteenBitRows {
  const int32_t* high;
  const int32_t* low;
  int first;
  TRINE_INLINE int32_t operator()(int64_t step, int row) const {
    return (row < N ? high : low)[step * TT + first + row % N];
  }
};

// The same for one token and one panel of two-bit fields: a sum for every field, so that products do
// not wait for each other and no field has to be shifted.
template <typename Words>
TRINE_INLINE static inline I32x16 OneTokenDot(const uint8_t* at, const int32_t* x, int64_t unit,
                                              int32_t start) {
  SmallSums sums[4] = {StartSmall(start), StartSmall(0), StartSmall(0), StartSmall(0)};
  SmallSums fifth = StartSmall(0);
  const auto add = [&](SmallSums& sum, Codes word, int field, int32_t a) TRINE_INLINE {
    sum = DotSmall(sum, FieldInPlace(word, field), Broadcast(a));
  };
#pragma GCC unroll 4
  for (int64_t left = unit / (4 * Words::kFields); left > 0; --left, at += 64) {
    __builtin_prefetch(at + kStreamAhead);
    const auto word = Words::Load(at);
    if constexpr (Words::kFields == 5) {
      Unrolled<4>([&](int f) TRINE_INLINE { add(sums[f], word.fours, f, x[f]); });
      add(fifth, word.fifth, 3, x[4]);
    } else {
      Unrolled<4>([&](int f) TRINE_INLINE { add(sums[f], word, f, x[f]); });
    }
    x += Words::kFields;
  }
  if constexpr (Words::kTailFields > 0) {
    const Codes tail = Words::LoadTail(at);
    Unrolled<Words::kTailFields>([&](int f) TRINE_INLINE { add(sums[f], tail, f, x[f]); });
    sums[3] = Add(sums[3], fifth);
  }
  return JoinFields(sums, start);
}

// start[t]: what takes the bias of the codes out of a sum over a unit.
template <int TT>
struct Starts {
  int32_t start[TT];
  Starts(const Panels& w, const int32_t* sums) {
    for (int t = 0; t < TT; ++t) start[t] = sums[t] * -w.code_bias;
  }
};

// One unit of 16-bit activations for tokens [First, First + N) of a tile. sums [P][TT][16].
template <typename Words, int P, int TT, int First, int N, bool kStream>
static inline void AddSixteenBits(const Panels& w, const UnitAt<P>& at, const TileAt<TT>& x,
                                  float* sums) {
  int32_t start[2 * N] = {};
  for (int t = 0; t < N; ++t) start[N + t] = x.sums[First + t] * -w.code_bias;
  I32x16 dots[P * 2 * N];
  UnitDots<Words, P, 2 * N, kStream>(at.codes, SixteenBitRows<TT, N>{x.high, x.low, First}, w.unit,
                                     start, dots);
  const auto finish = [&]<bool kHasMin>() TRINE_INLINE {
    Unrolled<P>([&](int p) TRINE_INLINE {
      const auto* scales = reinterpret_cast<const float*>(at.scales[p]);
      Unrolled<N>([&](int t) TRINE_INLINE {
        float* to = sums + (p * TT + First + t) * 16;
        const float scale = x.scales[First + t];
        const I32x16 dot = AddShifted(dots[p * 2 * N + N + t], dots[p * 2 * N + t]);
        F32x16 sum = Fma(ToFloat(dot), Mul(Load(scales), Set1(scale)), Load(to));
        if constexpr (kHasMin) {
          sum = Fma(Load(scales + 16), Set1(scale * static_cast<float>(x.sums[First + t])), sum);
        }
        Store(to, sum);
      });
    });
  };
  if (w.has_min) {
    finish.template operator()<true>();
  } else {
    finish.template operator()<false>();
  }
}

static inline F32x16 HalfScales(const uint8_t* scales) {
  return LoadF16(reinterpret_cast<const uint16_t*>(scales));
}

// One group of 8-bit activations that is one unit.
template <typename Words, int P, int TT, bool kStream>
static inline void AddEightBits(const Panels& w, const UnitAt<P>& at, const TileAt<TT>& x,
                                float* sums) {
  const Starts<TT> starts(w, x.sums);
  I32x16 dots[P * TT];
  if constexpr (P * TT == 1 && Words::kFields >= 4) {
    dots[0] = OneTokenDot<Words>(at.codes[0], x.low, w.unit, starts.start[0]);
  } else {
    UnitDots<Words, P, TT, kStream>(at.codes, EightBitRows<TT>{x.low}, w.unit, starts.start, dots);
  }
  Unrolled<P>([&](int p) TRINE_INLINE {
    const F32x16 scale = HalfScales(at.scales[p]);
    Unrolled<TT>([&](int t) TRINE_INLINE {
      float* to = sums + (p * TT + t) * 16;
      Store(to, Fma(ToFloat(dots[p * TT + t]), Mul(scale, Set1(x.scales[t])), Load(to)));
    });
  });
}

// One group of 8-bit activations that is two units. Where their scales are equal they are summed as
// one unit of twice the width would be, row by row.
template <typename Words, int P, int TT, bool kStream>
static inline void AddPair(const Panels& w, const UnitAt<P>& at, const TileAt<TT>& x,
                           float* sums) {
  UnitAt<P> after = at;
  after.NextUnit();
  const Starts<TT> starts(w, x.sums), starts2(w, x.sums + TT);
  I32x16 first[P * TT], second[P * TT];
  UnitDots<Words, P, TT, kStream>(at.codes, EightBitRows<TT>{x.low}, w.unit, starts.start, first);
  UnitDots<Words, P, TT, kStream>(after.codes, EightBitRows<TT>{x.low + w.unit / 4 * TT}, w.unit,
                                  starts2.start, second);
  for (int p = 0; p < P; ++p) {
    const F32x16 scale = HalfScales(at.scales[p]), scale2 = HalfScales(after.scales[p]);
    for (int t = 0; t < TT; ++t) {
      const int i = p * TT + t;
      const F32x16 sum = Load(sums + i * 16);
      const F32x16 by = Mul(scale, Set1(x.scales[t])), by2 = Mul(scale2, Set1(x.scales[t]));
      const F32x16 joint = Fma(ToFloat(Add(first[i], second[i])), by, sum);
      const F32x16 apart = Fma(ToFloat(second[i]), by2, Fma(ToFloat(first[i]), by, sum));
      Store(sums + i * 16, IfEqual(scale, scale2, joint, apart));
    }
  }
}

// sums [P][TT][16] += the next `columns` of P panels times those of a tile, whole groups; `at` and x
// go on to what follows.
template <typename Words, int P, int TT, bool kStream>
static inline void AddColumns(const Panels& w, int64_t columns, UnitAt<P>& at, TileAt<TT>& x,
                              float* sums) {
  const int64_t units = w.Units(w.group);  // of a group
  for (int64_t groups = w.Groups(columns); groups > 0; --groups, x.scales += TT) {
    if (x.high == nullptr) {
      if (units == 1) {
        AddEightBits<Words, P, TT, kStream>(w, at, x, sums);
      } else {
        AddPair<Words, P, TT, kStream>(w, at, x, sums);
      }
    }
    for (int64_t i = 0; i < units; ++i) {
      if (x.high != nullptr) {
        constexpr int kHalf = TT <= 3 ? TT : (TT + 1) / 2;  // two planes each fill the registers
        AddSixteenBits<Words, P, TT, 0, kHalf, kStream>(w, at, x, sums);
        if constexpr (kHalf < TT) {
          AddSixteenBits<Words, P, TT, kHalf, TT - kHalf, false>(w, at, x, sums);
        }
      }
      at.NextUnit();
      x.NextUnit(w);
    }
  }
}

template <typename Words>
struct CodedProduct {
  static constexpr int64_t kDirectTokens = 8;
  static constexpr int64_t kSlabCols = 128;  // a multiple of every unit; 8 KiB with the 4 panels
  // Their sums, 24 KiB, and the slab fit the first-level cache.
  static constexpr int64_t kBlockTiles = 16;

  // Panels that are read side by side: one stream is the fastest where there is one token.
  static int64_t DirectPanels(int64_t tokens) { return tokens == 1 ? 1 : kGroupPanels; }
  struct Slab {
    alignas(64) uint8_t codes[kGroupPanels][kSlabCols * 16];
  };

  // Panels of a tile. A slab's tile holds a sum a token and panel, a code and an activation: 29
  // registers of 6 tokens and 4 panels. Straight from a panel there are its words besides.
  template <int TT, bool kDirect>
  static constexpr int PanelsAtOnce() {
#ifdef TRINE_SIMD_AVX512
    if (TT == 1) return kDirect ? 1 : 4;
    return kDirect && TT == 6 ? 2 : 4;
#else
    return 1;
#endif
  }

  // The codes of a block, one a byte.
  static void Unpack(const Panels& w, const Block& block, Slab& slab) {
    for (int64_t p = 0; p < block.panels; ++p) {
      uint8_t* to = slab.codes[p];
      for (int64_t k = 0; k < block.n; k += w.unit) {
        const uint8_t* at = block.w[p] + w.Units(k) * w.unit_bytes;
        const auto store = [&](Codes field) TRINE_INLINE {
          StoreCodes(to, field);
          to += 64;
        };
        for (int64_t word = w.unit / (4 * Words::kFields); word > 0; --word, at += 64) {
          __builtin_prefetch(at + kStreamsAhead);
          const auto loaded = Words::Load(at);
          Unrolled<Words::kFields>(
              [&](int f) TRINE_INLINE { store(Words::Field(loaded, f)); });
        }
        if constexpr (Words::kTailFields > 0) {
          const Codes tail = Words::LoadTail(at);
          Unrolled<Words::kTailFields>([&](int f) TRINE_INLINE { store(TwoBits(tail, f)); });
        }
      }
    }
  }

  // kept: sums [panels][TT][16] of a granule between its blocks.
  template <int TT, typename Emit>
  static void SlabTile(const Panels& w, const Block& block, const Slab& slab, const Activations& a,
                       int64_t t0, int64_t, float* kept, const Emit& emit) {
    constexpr int P = PanelsAtOnce<TT, false>();
    for (int first = 0; first < block.panels; first += P, kept += P * TT * 16) {
      UnitAt<P> at;
      for (int p = 0; p < P; ++p) {
        at.codes[p] = slab.codes[block.nth[first + p]];
        at.scales[p] = block.w[first + p] + w.scales_at;
      }
      at.to_codes = w.unit * 16;
      at.to_scales = w.unit_bytes;
      TileAt<TT> x(w, a.q, t0, block.k);
      if (block.begins) __builtin_memset(kept, 0, P * TT * 64);
      AddColumns<PlainWords<Words::kSmall>, P, TT, false>(w, block.n, at, x, kept);
      if (!block.ends) continue;
      for (int p = 0; p < P && first + p < block.panels; ++p) {
        for (int t = 0; t < TT; ++t) {
          emit(block.panel + first + p, t0 + t, Load(kept + (p * TT + t) * 16), block.first);
        }
      }
    }
  }

  template <int TT, typename Emit>
  static void DirectTile(const Panels& w, const Block& block, const Activations& a, int64_t t0,
                         int64_t granule, const Emit& emit) {
    constexpr int P = PanelsAtOnce<TT, true>();
    for (int first = 0; first < block.panels; first += P) {
      UnitAt<P> at;
      for (int p = 0; p < P; ++p) {
        at.codes[p] = block.w[first + p];
        at.scales[p] = at.codes[p] + w.scales_at;
      }
      at.to_codes = at.to_scales = w.unit_bytes;
      TileAt<TT> x(w, a.q, t0, 0);
      int64_t k = 0;
      do {
        alignas(64) float sums[P * TT * 16] = {};
        AddColumns<Words, P, TT, true>(w, w.cols - k < granule ? w.cols - k : granule, at, x, sums);
        for (int p = 0; p < P && first + p < block.panels; ++p) {
          for (int t = 0; t < TT; ++t) {
            emit(block.panel + first + p, t0 + t, Load(sums + (p * TT + t) * 16), k == 0);
          }
        }
        k += granule;
      } while (k < w.cols);
    }
  }
};
