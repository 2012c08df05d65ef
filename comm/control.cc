// What all control channels share (Agree), and the channel of a job of one rank.
#include "comm/control.h"

#include <algorithm>
#include <string>

namespace trine {
namespace {

// One byte of code, then the message.
Bytes Encode(const Status& status) {
  Bytes bytes(1 + status.message().size());
  bytes[0] = static_cast<std::byte>(status.code());
  std::transform(status.message().begin(), status.message().end(), bytes.begin() + 1,
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

Status Decode(const Bytes& bytes, const std::string& prefix) {
  return {static_cast<Code>(bytes[0]),
          prefix + std::string(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1)};
}

class SelfControl final : public ControlChannel {
 public:
  const World& world() const override { return world_; }
  void Broadcast(Bytes& /*message*/, int /*root*/) override {}
  std::vector<Bytes> AllGather(const Bytes& mine) override { return {mine}; }
  void Barrier() override {}

 private:
  const World world_{};
};

}  // namespace

Status ControlChannel::Agree(const Status& mine) {
  const std::vector<Bytes> all = AllGather(Encode(mine));
  const auto failing = std::find_if(all.begin(), all.end(), [](const Bytes& status) {
    return status[0] != static_cast<std::byte>(Code::kOk);
  });
  if (failing == all.end()) return {};
  const auto rank = failing - all.begin();
  const bool same =
      std::all_of(all.begin(), all.end(), [&](const Bytes& status) { return status == *failing; });
  return Decode(*failing, same || rank == 0 ? "" : "rank " + std::to_string(rank) + ": ");
}

std::unique_ptr<ControlChannel> MakeSelfControl() {
  return std::make_unique<SelfControl>();
}

}  // namespace trine
