#include "comm/fault.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace trine {

Fault& OwnFault() {
  static Fault fault;
  return fault;
}

namespace {

const std::map<std::string, Fault::Kind> kKinds = {
    {"exit", Fault::Kind::kExit},   {"abort", Fault::Kind::kAbort},
    {"segv", Fault::Kind::kSegv},   {"stop", Fault::Kind::kStop},
    {"sleep", Fault::Kind::kSleep}, {"throw", Fault::Kind::kThrow},
    {"slow", Fault::Kind::kSlow},   {"corrupt", Fault::Kind::kCorrupt},
    {"zero", Fault::Kind::kZero},   {"stale", Fault::Kind::kStale}};

bool ToNumber(const std::string& text, int64_t* number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stop == end && *number >= 0;
}

int PhaseOf(const std::string& name) {
  for (int i = 0; i < kPhases; ++i) {
    if (name == PhaseName(static_cast<Phase>(i))) return i;
  }
  return -1;
}

}  // namespace

std::string Fault::Arm(int rank) {
  const char* variable = std::getenv("TRINE_FAULT");
  if (variable == nullptr) return "";
  const auto refuse = [&](const std::string& part) {
    return "TRINE_FAULT: '" + part + "' is not understood, so no fault will happen; " +
           "rank=R,kind=exit|abort|segv|stop|sleep|throw|slow|corrupt|zero|stale[,phase=P][,step="
           "S]";
  };
  Fault wanted;
  int64_t wanted_rank = -1;
  std::istringstream parts(variable);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    bool good = false;
    if (name == "rank") good = ToNumber(value, &wanted_rank);
    if (name == "step") good = ToNumber(value, &wanted.step_);
    if (name == "collective") good = ToNumber(value, &wanted.collective_);
    if (name == "phase") good = (wanted.phase_ = PhaseOf(value)) >= 0;
    if (name == "kind") {
      const auto kind = kKinds.find(value);
      good = kind != kKinds.end();
      if (good) wanted.kind_ = kind->second;
    }
    if (!good) return refuse(part);
  }
  if (wanted_rank < 0 || wanted.kind_ == Kind::kNone) return refuse(variable);
  if (wanted_rank == rank) *this = wanted;
  return "";
}

void Fault::Meet(Phase phase, int64_t step) {
  const bool here =
      (phase_ < 0 || phase_ == static_cast<int>(phase)) && (step_ < 0 || step_ == step);
  met_ = met_ || here;
  if (kind_ == Kind::kSlow && met_) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!here) return;
  switch (kind_) {
    case Kind::kExit:
      _exit(3);
    case Kind::kAbort:
      std::abort();
    case Kind::kSegv:
      std::signal(SIGSEGV, SIG_DFL);  // Open MPI has a handler of its own
      std::raise(SIGSEGV);
      return;
    case Kind::kStop:
      std::raise(SIGSTOP);
      return;
    case Kind::kSleep:
      return std::this_thread::sleep_for(std::chrono::hours(1));
    case Kind::kThrow:
      throw std::runtime_error("TRINE_FAULT asked for it");
    default:
      return;
  }
}

// Falsifies this rank's contribution to the first collective after the fault was met.
class FalseCommunicator final : public Communicator {
 public:
  explicit FalseCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  const World& world() const override { return inner_->world(); }
  std::string_view name() const override { return inner_->name(); }

  void AllReduceSum(void* data, int64_t count, Element type) override {
    Falsify(static_cast<std::byte*>(data), count * ElementBytes(type));
    inner_->AllReduceSum(data, count, type);
  }
  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override {
    const int64_t count = counts[static_cast<size_t>(world().rank)];
    const auto* bytes = static_cast<const std::byte*>(mine);
    std::vector<std::byte> copy(bytes, bytes + count * ElementBytes(type));
    Falsify(copy.data(), std::ssize(copy));
    inner_->AllGather(copy.data(), all, counts, type);
  }
  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override {
    int64_t count = 0;
    for (const int64_t part : counts) count += part;
    Falsify(static_cast<std::byte*>(all), count * ElementBytes(type));
    inner_->ReduceScatterSum(all, mine, counts, type);
  }

  [[noreturn]] void Abort(std::string_view reason) override {
    inner_->Abort(reason);
    std::abort();  // gcc forgets noreturn on virtual functions
  }

 private:
  void Falsify(std::byte* data, int64_t bytes) {
    std::vector<std::byte>& before = before_[bytes];
    const std::vector<std::byte> truth(data, data + bytes);
    const bool possible = bytes > 0 && (fault_.kind_ != Fault::Kind::kStale || !before.empty());
    if (fault_.met_ && possible && --fault_.collective_ <= 0) {
      const auto kind = std::exchange(fault_.kind_, Fault::Kind::kNone);
      if (kind == Fault::Kind::kCorrupt) data[bytes / 2] ^= std::byte{0x10};
      if (kind == Fault::Kind::kZero) std::memset(data, 0, static_cast<size_t>(bytes));
      if (kind == Fault::Kind::kStale) std::ranges::copy(before, data);
    }
    before = truth;
  }

  Fault& fault_ = OwnFault();
  const std::unique_ptr<Communicator> inner_;
  std::map<int64_t, std::vector<std::byte>> before_;  // by size
};

std::unique_ptr<Communicator> Fault::Falsify(std::unique_ptr<Communicator> inner) {
  if (kind_ != Kind::kCorrupt && kind_ != Kind::kZero && kind_ != Kind::kStale) return inner;
  return std::make_unique<FalseCommunicator>(std::move(inner));
}

}  // namespace trine
