// The Walsh-Hadamard rotation. Part of a unit, see simd.h.

// Sixteen columns at once: each becomes its partner h apart plus itself, or minus itself where it
// is the second of the pair.
typedef float Columns16 __attribute__((vector_size(64)));
typedef int32_t Lanes16 __attribute__((vector_size(64)));

template <int h>
TRINE_INLINE static inline void Butterfly16(Columns16& x) {
  constexpr Lanes16 kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes16 negative = (kLane & h) != 0;  // all bits
#ifdef __clang__
  Columns16 partner;
  for (int j = 0; j < 16; ++j) partner[j] = x[j ^ h];
#else
  const Columns16 partner = __builtin_shuffle(x, kLane ^ h);
#endif
  x = partner + (Columns16)((Lanes16)x ^ (negative << 31));
}

// The butterflies h = 1, 2, 4, ... of one block, in place: (a, b) becomes (a + b, a - b) for pairs
// h apart. The first four are done on sixteen columns at a time.
static inline void Butterflies(float* x, int64_t block) {
  for (int64_t h = 1; block < 16 && h < block; h *= 2) {
    float sums[16];
    for (int64_t j = 0; j < block; ++j) sums[j] = x[j ^ h] + ((j & h) == 0 ? x[j] : -x[j]);
    __builtin_memcpy(x, sums, static_cast<size_t>(block) * sizeof(float));
  }
  for (int64_t i = 0; i + 16 <= block; i += 16) {
    Columns16 sixteen;
    __builtin_memcpy(&sixteen, x + i, sizeof sixteen);
    Butterfly16<1>(sixteen);
    Butterfly16<2>(sixteen);
    Butterfly16<4>(sixteen);
    Butterfly16<8>(sixteen);
    __builtin_memcpy(x + i, &sixteen, sizeof sixteen);
  }
  for (int64_t h = 16; h < block; h *= 2) {
    for (int64_t group = 0; group < block; group += 2 * h) {
      for (float *a = x + group, *end = a + h; a < end; a += 16) {
        const F32x16 first = Load(a), second = Load(a + h);
        Store(a, Add(first, second));
        Store(a + h, Sub(first, second));
      }
    }
  }
}

static void RotateBlock(const float* x, const float* signs, int64_t block,
                        Backend::Rotation direction, float* out) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  const bool forward = direction == Backend::Rotation::kForward;
  for (int64_t i = 0; i < block; ++i) out[i] = forward ? x[i] * signs[i] : x[i];
  Butterflies(out, block);
  for (int64_t i = 0; i < block; ++i) out[i] *= forward ? scale : scale * signs[i];
}
