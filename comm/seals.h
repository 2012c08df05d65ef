// Seals: numbers that mark a rank's contribution to one collective. They are added to the checksum
// that travels with it (backend.h), so that one which is lost, comes twice, or was sent to another
// collective does not pass for right, although it is whole in itself. Every rank computes those of
// all. Made anew for every collective; a 64-bit mix of rank and number, no secret.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.h"

namespace trine {

// How a message about a wrong checksum ends.
inline constexpr char kUnsound[] =
    "; the transport or the memory of a host is not sound, and the job ends before a wrong answer";

class Seals {
 public:
  explicit Seals(const World& world) : world_(world) {}

  const World& world() const { return world_; }

  // Another collective begins; all ranks call this alike.
  void Next() { ++collective_; }

  int64_t mine() const { return Of(world_.rank, collective_); }
  int64_t of(int rank) const { return Of(rank, collective_); }
  int64_t total() const { return Total(collective_); }  // wraps

  // What went wrong where `seal` was expected and the checksum differed by `difference`: which
  // rank, as far as it can be told, and which collective since the `first`.
  std::string Explain(int64_t first, int64_t seal, int64_t difference) const;

  int64_t collective() const { return collective_; }

 private:
  static int64_t Of(int rank, int64_t collective);
  int64_t Total(int64_t collective) const;
  std::string Blame(int64_t collective, int64_t difference) const;

  const World world_;
  int64_t collective_ = 0;
};

}  // namespace trine
