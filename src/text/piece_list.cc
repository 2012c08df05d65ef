#include "src/text/piece_list.h"

#include <cstring>

namespace trine {
namespace {

template <typename T>
uint64_t Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Words are short: at most two overlapping loads up to 16 bytes.
uint32_t HashOf(const SecretHash& secret, std::string_view piece) {
  const char* at = piece.data();
  size_t left = piece.size();
  uint64_t hash = secret.Mix(secret.start(), left);
  for (; left > 16; left -= 8, at += 8) hash = secret.Mix(hash, Load<uint64_t>(at));
  if (left >= 8) {
    hash = secret.Mix(secret.Mix(hash, Load<uint64_t>(at)), Load<uint64_t>(at + left - 8));
  } else if (left >= 4) {
    hash = secret.Mix(hash, Load<uint32_t>(at) << 32 | Load<uint32_t>(at + left - 4));
  } else if (left > 0) {
    hash = secret.Mix(hash, Load<uint8_t>(at) << 16 | Load<uint8_t>(at + left / 2) << 8 |
                                Load<uint8_t>(at + left - 1));
  }
  return static_cast<uint32_t>(secret.Mix(hash, secret.start()));
}

}  // namespace

size_t PieceIndex::Probe(std::string_view piece, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id < 0 || (slot.hash == hash && (*pieces_)[slot.id] == piece)) return i;
  }
}

int32_t PieceIndex::Find(std::string_view piece) const {
  return slots_[Probe(piece, HashOf(secret_, piece))].id;
}

int32_t PieceIndex::Insert(int32_t id) {
  const std::string_view piece = (*pieces_)[id];
  const uint32_t hash = HashOf(secret_, piece);
  Slot& slot = slots_[Probe(piece, hash)];
  if (slot.id >= 0) return slot.id;
  slot = {hash, id};
  if (++used_ * 2 > slots_.size()) Grow();
  return -1;
}

void PieceIndex::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    size_t i = slot.hash & mask;
    while (slots_[i].id >= 0) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

}  // namespace trine
