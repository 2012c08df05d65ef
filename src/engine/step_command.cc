#include "src/engine/step_command.h"

#include <cstring>
#include <type_traits>

#include "src/core/check.h"

namespace trine {
namespace {

template <typename T>
void Put(const T* values, size_t count, Bytes& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t at = message.size();
  message.resize(at + count * sizeof(T));
  if (count > 0) std::memcpy(message.data() + at, values, count * sizeof(T));
}

template <typename T>
void PutVector(const std::vector<T>& values, Bytes& message) {
  const auto count = static_cast<int64_t>(values.size());
  Put(&count, 1, message);
  Put(values.data(), values.size(), message);
}

class Reader {
 public:
  explicit Reader(const Bytes& message) : message_(message) {}

  template <typename T>
  void Get(T* values, size_t count) {
    TRINE_CHECK(at_ + count * sizeof(T) <= message_.size(), "a step command was cut short");
    if (count > 0) std::memcpy(values, message_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }

  template <typename T>
  void GetVector(std::vector<T>& values) {
    int64_t count = 0;
    Get(&count, 1);
    values.resize(static_cast<size_t>(count));
    Get(values.data(), values.size());
  }

 private:
  const Bytes& message_;
  size_t at_ = 0;
};

}  // namespace

void Encode(const StepCommand& command, Bytes& message) {
  message.clear();
  PutVector(command.sequences, message);
  PutVector(command.tokens, message);
  PutVector(command.new_pages, message);
  PutVector(command.rows, message);
  PutVector(command.changes, message);
  const int64_t gather = command.gather_logits ? 1 : 0;
  Put(&gather, 1, message);
}

void Decode(const Bytes& message, StepCommand& command) {
  Reader reader(message);
  reader.GetVector(command.sequences);
  reader.GetVector(command.tokens);
  reader.GetVector(command.new_pages);
  reader.GetVector(command.rows);
  reader.GetVector(command.changes);
  int64_t gather = 0;
  reader.Get(&gather, 1);
  command.gather_logits = gather != 0;
}

}  // namespace trine
