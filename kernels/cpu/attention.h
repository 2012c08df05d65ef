// Causal softmax attention over paged keys, in tiles of one page from position 0. Online softmax
// (Milakov, Gimelshein 2018). Keys lie transposed, so a score is summed over d alone, and values are
// added key by key: no order depends on the batch. A few queries that meet the same keys walk the
// tiles together and share what they load. Part of a unit, see simd.h.

#ifdef TRINE_SIMD_AVX512
constexpr int kQueriesAtOnce = kBlockQueries;  // two sums each, of 32 registers
#else
constexpr int kQueriesAtOnce = 2;
#endif

// One head of a page, and how sixteen keys of a d, or d of a value, are read. Scales: what kGroup d
// have in common.
template <typename Element>
struct PlainTile {
  static constexpr int64_t kGroup = kMaxHeadDim;
  struct Scales {};
  const Element* keys;    // [D][32]
  const Element* values;  // [32][row]
  int64_t row;

  PlainTile(const std::byte* head, int64_t head_dim)
      : keys(reinterpret_cast<const Element*>(head)),
        values(keys + head_dim * kPageTokens),
        row(KvRowElements(head_dim)) {}

  Scales KeyScales(int64_t) const { return {}; }
  Scales ValueScales(int64_t) const { return {}; }
  F32x16 Keys(int64_t d, int64_t first, const Scales&) const {
    return LoadLanes(keys + d * kPageTokens + first);
  }
  F32x16 Value(int64_t key, int64_t d, const Scales&) const {
    return LoadLanes(values + key * row + d);
  }
};

// Codes times scales are exact: 8 and 11 bits.
struct Q8Tile {
  static constexpr int64_t kGroup = kKvGroup;
  struct Scales {
    alignas(64) float of[kPageTokens];
  };
  PlainTile<int8_t> codes;
  const F16 *key_scales, *value_scales;  // [groups][32]

  Q8Tile(const std::byte* head, int64_t head_dim)
      : codes(head, head_dim),
        key_scales(reinterpret_cast<const F16*>(head + KvHeadElements(head_dim))),
        value_scales(key_scales + KvScales(head_dim)) {}

  static Scales Convert(const F16* scales) {
    Scales converted;
    Store(converted.of, LoadF16(scales));
    Store(converted.of + 16, LoadF16(scales + 16));
    return converted;
  }
  Scales KeyScales(int64_t d) const { return Convert(key_scales + d / kGroup * kPageTokens); }
  Scales ValueScales(int64_t d) const { return Convert(value_scales + d / kGroup * kPageTokens); }
  F32x16 Keys(int64_t d, int64_t first, const Scales& scales) const {
    return Mul(LoadI8(codes.keys + d * kPageTokens + first), Load(scales.of + first));
  }
  F32x16 Value(int64_t key, int64_t d, const Scales& scales) const {
    return Mul(LoadI8(codes.values + key * codes.row + d), Set1(scales.of[key]));
  }
};

// One query on its way through the tiles.
struct Query {
  const float* q;  // [D]
  float* out;      // [D]
  int64_t keys;    // that it attends to
  float best = -__builtin_inff(), weight = 0;
  alignas(64) float scores[kPageTokens];
  alignas(64) float sum[kMaxHeadDim] = {};
};

// Scores of the 32 keys of a tile, those at and beyond valid[i] as minus infinity.
template <int Q, typename Tile>
static inline void TileScores(const Tile& tile, int64_t head_dim, float scale, const int64_t* valid,
                              Query* queries) {
  F32x16 scores[2 * Q];
  Unrolled<2 * Q>([&](int i) TRINE_INLINE { scores[i] = Zero(); });
  for (int64_t group = 0; group < head_dim; group += Tile::kGroup) {
    const auto scales = tile.KeyScales(group);
    const int64_t end = group + Tile::kGroup < head_dim ? group + Tile::kGroup : head_dim;
    for (int64_t d = group; d < end; ++d) {
      const F32x16 first = tile.Keys(d, 0, scales), second = tile.Keys(d, 16, scales);
      Unrolled<Q>([&](int i) TRINE_INLINE {
        const F32x16 query = Set1(queries[i].q[d]);
        scores[2 * i] = Fma(query, first, scores[2 * i]);
        scores[2 * i + 1] = Fma(query, second, scores[2 * i + 1]);
      });
    }
  }
  Unrolled<Q>([&](int i) TRINE_INLINE {
    Store(queries[i].scores, Mul(scores[2 * i], Set1(scale)));
    Store(queries[i].scores + 16, Mul(scores[2 * i + 1], Set1(scale)));
    for (int64_t key = valid[i]; key < kPageTokens; ++key) {
      queries[i].scores[key] = -__builtin_inff();
    }
  });
}

// Scores to weights, relative to the best so far; returns what the sums before shrink by.
static inline float TileWeights(Query& query) {
  const float tile_best = MaxLanes(Max(Load(query.scores), Load(query.scores + 16)));
  const float new_best = tile_best > query.best ? tile_best : query.best;
  alignas(64) float shrink[16];
  Store(shrink, Exp(Set1(query.best - new_best)));
  const F32x16 first = Exp(Add(Load(query.scores), Set1(-new_best)));
  const F32x16 second = Exp(Add(Load(query.scores + 16), Set1(-new_best)));
  Store(query.scores, first);
  Store(query.scores + 16, second);
  query.weight = query.weight * shrink[0] + SumLanes(Add(first, second));
  query.best = new_best;
  return shrink[0];
}

// sums = shrink . sums + weights . values
template <int Q, typename Tile>
static inline void TileValues(const Tile& tile, int64_t head_dim, const float* shrink,
                              const int64_t* valid, Query* queries) {
  int64_t common = valid[0];
  for (int i = 1; i < Q; ++i) common = valid[i] < common ? valid[i] : common;
  for (int64_t d = 0; d < head_dim; d += 16) {
    const auto scales = tile.ValueScales(d);
    F32x16 acc[Q];
    Unrolled<Q>([&](int i) TRINE_INLINE { acc[i] = Mul(Load(queries[i].sum + d), Set1(shrink[i])); });
    for (int64_t key = 0; key < common; ++key) {
      const F32x16 value = tile.Value(key, d, scales);
      Unrolled<Q>([&](int i)
                      TRINE_INLINE { acc[i] = Fma(Set1(queries[i].scores[key]), value, acc[i]); });
    }
    Unrolled<Q>([&](int i) TRINE_INLINE {
      for (int64_t key = common; key < valid[i]; ++key) {
        acc[i] = Fma(Set1(queries[i].scores[key]), tile.Value(key, d, scales), acc[i]);
      }
      Store(queries[i].sum + d, acc[i]);
    });
  }
}

// Queries of one sequence and one KV head; those of later tokens come last.
template <int Q, typename Tile>
static void AttendTogether(const AttentionTask& task, const int32_t* pages, int64_t kv_head,
                           Query* queries) {
  const KvLayout& layout = task.pages.layout;
  const int64_t head_dim = layout.head_dim, head_bytes = KvHeadBytes(layout.type, head_dim);
  for (int64_t page = 0; page * kPageTokens < queries[Q - 1].keys; ++page) {
    const Tile tile(task.pages.data + (pages[page] * layout.heads + kv_head) * head_bytes,
                    head_dim);
    int64_t valid[Q];
    float shrink[Q];
    int done = 0;  // of the first queries, which end before this tile
    for (int i = 0; i < Q; ++i) {
      const int64_t left = queries[i].keys - page * kPageTokens;
      valid[i] = left < kPageTokens ? left : kPageTokens;
      if (left <= 0) ++done;
    }
    if (done > 0) {
      for (int i = done; i < Q; ++i) {
        TileScores<1>(tile, head_dim, task.scale, valid + i, queries + i);
        shrink[i] = TileWeights(queries[i]);
        TileValues<1>(tile, head_dim, shrink + i, valid + i, queries + i);
      }
      continue;
    }
    TileScores<Q>(tile, head_dim, task.scale, valid, queries);
    for (int i = 0; i < Q; ++i) shrink[i] = TileWeights(queries[i]);
    TileValues<Q>(tile, head_dim, shrink, valid, queries);
  }
  for (int i = 0; i < Q; ++i) {
    for (int64_t d = 0; d < head_dim; ++d) queries[i].out[d] = queries[i].sum[d] / queries[i].weight;
  }
}

template <int Q, typename Tile>
static void AttendUpTo(const AttentionTask& task, const int32_t* pages, int64_t kv_head, int count,
                       Query* queries) {
  if (count == Q) return AttendTogether<Q, Tile>(task, pages, kv_head, queries);
  if constexpr (Q > 1) AttendUpTo<Q - 1, Tile>(task, pages, kv_head, count, queries);
}

template <typename Tile>
static void AttendBlock(const AttentionTask& task, const QueryBlock& block) {
  const int64_t head_dim = task.pages.layout.head_dim;
  const auto sequence = static_cast<size_t>(task.places->sequences[block.token]);
  const int32_t* pages = task.places->pages.data() + task.places->page_indptr[sequence];
  Query queries[kQueriesAtOnce];
  int count = 0;
  for (int64_t t = block.token; t < block.token + block.tokens; ++t) {
    for (int64_t head = block.head; head < block.head + block.heads; ++head) {
      queries[count] = {};
      queries[count].q = task.q.row(t) + head * head_dim;
      queries[count].out = task.out.row(t) + head * head_dim;
      queries[count].keys = task.places->positions[static_cast<size_t>(t)] + 1;
      if (++count < kQueriesAtOnce) continue;
      AttendTogether<kQueriesAtOnce, Tile>(task, pages, task.kv_heads[block.head], queries);
      count = 0;
    }
  }
  AttendUpTo<kQueriesAtOnce, Tile>(task, pages, task.kv_heads[block.head], count, queries);
}

static void Attention(const AttentionTask& task, std::span<const QueryBlock> blocks) {
  for (const QueryBlock& block : blocks) {
    switch (task.pages.layout.type) {
      case KvType::kF16:
        AttendBlock<PlainTile<F16>>(task, block);
        break;
      case KvType::kQ8_0:
        AttendBlock<Q8Tile>(task, block);
        break;
      case KvType::kF32:
        AttendBlock<PlainTile<float>>(task, block);
        break;
    }
  }
}
