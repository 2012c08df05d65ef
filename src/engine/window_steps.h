// WindowSteps: a long text cut into windows of equal length, and the steps that run them through a
// model so that each token of the later half of a window is predicted from all before it in its
// window. A state machine without device or message; rank 0 owns it.
//
// Steps take the windows one after another, several in a step where the limits allow, so that rows
// of logits come in the order of the text whatever the limits are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/step_command.h"

namespace trine {

// Where llama.cpp's perplexity tool has its windows: side by side from the first token on, an
// incomplete one at the end left out.
struct TextWindows {
  std::vector<int32_t> tokens;
  int64_t length = 0;  // of a window, at least 3
  int64_t count = 0;   // length * count <= tokens
  int32_t bos = -1;    // takes the place of every window's first token; -1: nothing does

  // The positions whose logits are wanted: [first, length - 1). Each predicts the next.
  int64_t first() const { return length / 2; }
  int64_t rows() const { return length - 1 - first(); }  // of a window
  int32_t Input(int64_t window, int64_t position) const {
    return position == 0 && bos >= 0 ? bos
                                     : tokens[static_cast<size_t>(window * length + position)];
  }
  int32_t Target(int64_t window, int64_t position) const {
    return tokens[static_cast<size_t>(window * length + position + 1)];
  }
};

struct WindowLimits {
  int64_t slots = 0;   // windows in a step, each with pages for `length` tokens
  int64_t tokens = 0;  // in a step
  int64_t rows = 0;    // of logits in a step
};

class WindowSteps {
 public:
  // `windows` must outlive this.
  WindowSteps(const TextWindows& windows, const WindowLimits& limits)
      : windows_(windows), limits_(limits) {}

  bool done() const { return window_ == windows_.count; }

  // The next step; not done. Its logits are to be gathered.
  StepCommand Next();

  // The place of each row of that step.
  struct Place {
    int64_t window = 0;
    int64_t position = 0;  // in the window; the row predicts the one after it
  };
  std::span<const Place> places() const { return places_; }

 private:
  bool AddTokens(StepCommand& command);

  const TextWindows& windows_;
  const WindowLimits limits_;
  int64_t window_ = 0, position_ = 0;  // of the next token
  std::vector<Place> places_;
};

}  // namespace trine
