#include "comm/sealed_gather.h"

#include <cstring>
#include <string>

#include "comm/progress.h"

namespace trine {
namespace {

constexpr int64_t kChecksum = sizeof(uint64_t);

// Every byte times an odd number of its place, and the seal: modulo 2^64.
uint64_t Checksum(const std::byte* data, int64_t bytes, int64_t seal) {
  auto sum = static_cast<uint64_t>(seal);
  for (int64_t i = 0; i < bytes; ++i) {
    const auto place = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C16u + 1;
    sum += static_cast<uint64_t>(data[i]) * place;
  }
  return sum;
}

void Copy(const void* from, int64_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void SealedGather::Run(const void* mine, void* all, std::span<const int64_t> bytes) {
  seals_.Next();
  const int64_t my_bytes = bytes[static_cast<size_t>(comm_.world().rank)];
  mine_.resize(static_cast<size_t>(my_bytes + kChecksum));
  Copy(mine, my_bytes, mine_.data());
  const uint64_t checksum = Checksum(mine_.data(), my_bytes, seals_.mine());
  Copy(&checksum, kChecksum, mine_.data() + my_bytes);
  int64_t total = 0;
  sealed_bytes_.clear();
  for (const int64_t part : bytes) {
    sealed_bytes_.push_back(part + kChecksum);
    total += part + kChecksum;
  }
  all_.resize(static_cast<size_t>(total));
  comm_.AllGather(mine_.data(), all_.data(), sealed_bytes_, Element::kByte);

  const std::byte* from = all_.data();
  auto* to = static_cast<std::byte*>(all);
  for (int rank = 0; rank < comm_.world().size; ++rank) {
    const int64_t part = bytes[static_cast<size_t>(rank)];
    uint64_t found = 0;
    Copy(from + part, kChecksum, &found);
    if (found != Checksum(from, part, seals_.of(rank))) {
      const Standing now = OwnProgress().standing();
      comm_.Abort(PlaceText(now.phase, now.step) + ": what came from rank " + std::to_string(rank) +
                  " is not what it should have sent" + kUnsound);
    }
    Copy(from, part, to);
    from += part + kChecksum;
    to += part;
  }
}

}  // namespace trine
