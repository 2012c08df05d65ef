// The Walsh-Hadamard rotation. Part of a unit, see simd.h.

// The butterflies h = 1, 2, 4, ... of one block, in place: (a, b) becomes (a + b, a - b) for pairs
// h apart. The first four are done on sixteen columns at a time.
static inline void Butterflies(float* x, int64_t block) {
  for (int64_t i = 0; i < block; i += 16) {
    const int64_t n = block - i < 16 ? block - i : 16;
    for (int64_t h = 1; h < n; h *= 2) {
      float sums[16];
      for (int64_t j = 0; j < n; ++j) {
        const float other = x[i + (j ^ h)];
        sums[j] = (j & h) == 0 ? x[i + j] + other : other - x[i + j];
      }
      __builtin_memcpy(x + i, sums, static_cast<size_t>(n) * sizeof(float));
    }
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
