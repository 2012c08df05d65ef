// The communicator of a job of one rank: a sum over one rank is that rank's own data.
#include <cstdlib>
#include <cstring>

#include "comm/communicator.h"
#include "comm/reason.h"

namespace trine {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  const World& world() const override { return world_; }
  std::string_view name() const override { return "self"; }

  void AllReduceSum(void* /*data*/, int64_t /*count*/, Element type) override {
    if (type == Element::kByte) Abort("AllReduceSum: bytes are not summable");
  }

  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override {
    Copy(mine, all, counts, type);
  }

  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override {
    if (type == Element::kByte) Abort("ReduceScatterSum: bytes are not summable");
    Copy(all, mine, counts, type);
  }

  [[noreturn]] void Abort(std::string_view reason) override {
    PrintReason(world_, reason);
    std::abort();
  }

 private:
  // memmove: the two may be the same memory.
  static void Copy(const void* from, void* to, std::span<const int64_t> counts, Element type) {
    if (counts[0] == 0) return;  // then the pointers may be null
    std::memmove(to, from, static_cast<size_t>(counts[0] * ElementBytes(type)));
  }

  const World world_{};
};

}  // namespace

std::unique_ptr<Communicator> MakeSelfCommunicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace trine
