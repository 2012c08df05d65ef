// Hashes that no file can choose collisions for: each process has secrets of its own. What is found
// does not depend on them, only where in a table it lies.
#pragma once

#include <cstdint>
#include <random>

namespace trine {

class SecretHash {
 public:
  SecretHash() : start_(OfProcess().start), factor_(OfProcess().factor) {}

  uint64_t start() const { return start_; }

  // Both halves of a product with a secret: a multiplication alone would pass some changes of its
  // operand on whatever the factor is.
  uint64_t Mix(uint64_t hash, uint64_t value) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(hash ^ value) * factor_;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

 private:
  struct Secrets {
    uint64_t start, factor;
  };
  static const Secrets& OfProcess() {
    static const Secrets secrets = [] {
      std::random_device random;
      const auto word = [&random] {
        const auto high = static_cast<uint64_t>(random());
        return high << 32 | static_cast<uint64_t>(random());
      };
      // Odd, and neither half of it small.
      return Secrets{word(), word() | (uint64_t{1} << 63) | (uint64_t{1} << 31) | 1};
    }();
    return secrets;
  }

  uint64_t start_, factor_;
};

}  // namespace trine
