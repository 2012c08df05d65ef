// Causal softmax attention of one query over paged keys, in tiles of one page from position 0.
// Online softmax (Milakov, Gimelshein 2018). Keys lie transposed, so a score is summed over d alone
// and values are added key by key: no order depends on the batch. Part of a unit, see simd.h.

// Scores of the 32 keys of a tile, those at and beyond `valid` as minus infinity.
template <typename Element>
static inline void TileScores(const float* q, const Element* keys, int64_t head_dim, float scale,
                              int64_t valid, float* scores) {
  F32x16 first = Zero(), second = Zero();
  for (int64_t d = 0; d < head_dim; ++d) {
    const F32x16 query = Set1(q[d]);
    first = Fma(query, LoadLanes(keys + d * kPageTokens), first);
    second = Fma(query, LoadLanes(keys + d * kPageTokens + 16), second);
  }
  Store(scores, Mul(first, Set1(scale)));
  Store(scores + 16, Mul(second, Set1(scale)));
  for (int64_t key = valid; key < kPageTokens; ++key) scores[key] = -__builtin_inff();
}

template <typename Element>
static void AttendOne(const AttentionTask& task, int64_t token, int64_t head) {
  const KvLayout& layout = task.pages.layout;
  const int64_t head_dim = layout.head_dim, row = KvRowElements(head_dim);
  const int64_t keys_total = task.places->positions[static_cast<size_t>(token)] + 1;
  const int32_t sequence = task.places->sequences[static_cast<size_t>(token)];
  const int32_t* pages =
      task.places->pages.data() + task.places->page_indptr[static_cast<size_t>(sequence)];
  const float* q = task.q.row(token) + head * head_dim;
  alignas(64) float sum[kMaxHeadDim] = {};
  alignas(64) float scores[kPageTokens];
  float best = -__builtin_inff(), weight = 0;

  for (int64_t tile = 0; tile * kPageTokens < keys_total; ++tile) {
    const int64_t left = keys_total - tile * kPageTokens;
    const int64_t valid = left < kPageTokens ? left : kPageTokens;
    const Element* keys =
        reinterpret_cast<const Element*>(task.pages.data) +
        (pages[tile] * layout.heads + task.kv_heads[head]) * KvHeadElements(head_dim);
    TileScores(q, keys, head_dim, task.scale, valid, scores);
    const float tile_best = MaxLanes(Max(Load(scores), Load(scores + 16)));
    const float new_best = tile_best > best ? tile_best : best;
    alignas(64) float shrink[16];
    Store(shrink, Exp(Set1(best - new_best)));
    const F32x16 first = Exp(Add(Load(scores), Set1(-new_best)));
    const F32x16 second = Exp(Add(Load(scores + 16), Set1(-new_best)));
    Store(scores, first);
    Store(scores + 16, second);
    weight = weight * shrink[0] + SumLanes(Add(first, second));
    best = new_best;

    const Element* values = keys + head_dim * kPageTokens;
    for (int64_t d = 0; d < row; d += 16) {
      F32x16 acc = Mul(Load(sum + d), Set1(shrink[0]));
      for (int64_t key = 0; key < valid; ++key) {
        acc = Fma(Set1(scores[key]), LoadLanes(values + key * row + d), acc);
      }
      Store(sum + d, acc);
    }
  }
  float* out = task.out.row(token) + head * head_dim;
  for (int64_t d = 0; d < head_dim; ++d) out[d] = sum[d] / weight;
}

static void Attention(const AttentionTask& task, int64_t begin, int64_t end) {
  const int64_t heads = task.q.cols / task.pages.layout.head_dim;
  for (int64_t i = begin; i < end; ++i) {
    if (task.pages.layout.type == KvType::kF16) {
      AttendOne<uint16_t>(task, i / heads, i % heads);
    } else {
      AttendOne<float>(task, i / heads, i % heads);
    }
  }
}
