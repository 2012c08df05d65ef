// What containers keep in different ways: orders of heads and rows, and what stands for a value.
// The model has one way of its own; a container's Conventions say how to get there. Sources:
// transformers' model classes, llama.cpp's converter.
#pragma once

#include <cstdint>
#include <span>

namespace trine {

// The order in which a container stores what belongs to the value heads of Gated DeltaNet, rep of
// them for each key head k: grouped, head k * rep + r (Hugging Face), or tiled, r * key heads + k
// (GGUF). The model's own order is grouped.
enum class ValueHeadOrder { kGrouped, kTiled };

// The order of llama's rows of attn_q and attn_k within a head of D: the partners of rotary pair i
// are rows i and i + D / 2 (Hugging Face), or 2 i and 2 i + 1 (GGUF).
enum class RotaryRowOrder { kHalves, kAdjacent };

struct Conventions {
  ValueHeadOrder value_heads = ValueHeadOrder::kTiled;
  RotaryRowOrder llama_rows = RotaryRowOrder::kAdjacent;
};
inline constexpr Conventions kGgufConventions = {ValueHeadOrder::kTiled, RotaryRowOrder::kAdjacent};
inline constexpr Conventions kHfConventions = {ValueHeadOrder::kGrouped, RotaryRowOrder::kHalves};

// Where a container has value head `head` of the model's order.
inline int64_t StoredValueHead(ValueHeadOrder order, int64_t key_heads, int64_t value_heads,
                               int64_t head) {
  const int64_t rep = value_heads / key_heads;
  return order == ValueHeadOrder::kGrouped ? head : head % rep * key_heads + head / rep;
}

// Where a container has row `row` of a head, counted as in kHalves.
inline int64_t StoredRotaryRow(RotaryRowOrder order, int64_t head_dim, int64_t row) {
  const int64_t pairs = head_dim / 2;
  return order == RotaryRowOrder::kHalves ? row : 2 * (row % pairs) + row / pairs;
}

// What a container keeps of a vector of the model: the values v themselves, or what they can be had
// from.
enum class StoredAs {
  kValue,
  kLessOne,        // v - 1: the norm weights of Hugging Face's qwen3_5
  kLogOfNegative,  // log(-v): its A_log
};

// What is stored to values of the model, in place.
void FromStored(StoredAs stored_as, std::span<float> values);
// The inverse, as far as there is one: v - 1, which has lost what 1 + w could not hold (a w below
// 2^-16 in BF16); for log(-v), of which several give the same v, the shortest, else the nearest.
void ToStored(StoredAs stored_as, std::span<float> values);

}  // namespace trine
