#include "src/engine/window_steps.h"

#include <algorithm>

#include "src/engine/kv_cache.h"

namespace trine {

StepCommand WindowSteps::Next() {
  StepCommand command;
  places_.clear();
  while (!done() && std::ssize(command.sequences) < limits_.slots && AddTokens(command)) {
  }
  command.gather_logits = !command.rows.empty();
  return command;
}

// Adds what the limits allow of the current window, and steps on to the next if that is all of it.
bool WindowSteps::AddTokens(StepCommand& command) {
  const int64_t last = windows_.length - 1;  // whose logits nobody asks for
  const int64_t rows = limits_.rows - std::ssize(command.rows);
  const int64_t end = std::min({last, position_ + limits_.tokens - std::ssize(command.tokens),
                                std::max(position_, windows_.first()) + rows});
  if (end <= position_) return false;

  // Neighbouring windows are in different slots, and a slot's pages are its own.
  const int64_t pages = PagesFor(windows_.length);
  SequenceStep step;
  step.slot = static_cast<int32_t>(window_ % limits_.slots);
  step.first_position = static_cast<int32_t>(position_);
  step.tokens = static_cast<int32_t>(end - position_);
  step.begins = position_ == 0 ? 1 : 0;
  for (int64_t page = PagesFor(position_); page < PagesFor(end); ++page) {
    command.new_pages.push_back(static_cast<int32_t>(step.slot * pages + page));
    ++step.new_pages;
  }
  command.sequences.push_back(step);
  for (; position_ < end; ++position_) {
    if (position_ >= windows_.first()) {
      LogitRow row;
      row.row = static_cast<int32_t>(command.tokens.size());
      command.rows.push_back(row);
      places_.push_back({window_, position_});
    }
    command.tokens.push_back(windows_.Input(window_, position_));
  }
  if (position_ < last) return false;
  ++window_;
  position_ = 0;
  return true;
}

}  // namespace trine
