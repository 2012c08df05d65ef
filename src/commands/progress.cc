#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "src/commands/commands.h"

namespace trine {

std::function<void(int64_t, int64_t)> TerminalProgress(const std::string& label) {
  // mpirun puts a pipe before the terminal that trine --np was started from.
  const bool terminal = isatty(STDERR_FILENO) != 0 || std::getenv("TRINE_ON_TERMINAL") != nullptr;
  if (!terminal) return {};
  const auto start = std::chrono::steady_clock::now();
  return [label, start](int64_t done, int64_t total) {
    constexpr int kWidth = 30;
    const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
    char bar[kWidth + 1] = {};
    std::fill_n(bar, kWidth, ' ');
    std::fill_n(bar, static_cast<int>(share * kWidth), '#');
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);  // bytes a second
    const double left = static_cast<double>(total - done) / std::max(rate, 1.0);
    std::fprintf(stderr, "\r%s [%s] %3.0f%% of %.1f MB, %.0f MB/s, %.0f s left %s", label.c_str(),
                 bar, share * 100, static_cast<double>(total) / 1e6, rate / 1e6, left,
                 done == total ? "\n" : "");
  };
}

}  // namespace trine
