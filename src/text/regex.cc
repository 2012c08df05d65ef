#include "src/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>

#include "src/text/pattern.h"

namespace trine {
namespace {

// Longer than any tokenizer's, and short enough to compile in no time.
constexpr size_t kMaxPatternBytes = 20'000;

// Most matches need few steps. One that needs more is tried again with four times as many, which
// the text's budget pays for: backing off from a run of n characters takes n steps, so a limit that
// does not grow with the text would refuse one long run of spaces, and one that holds for each
// match alone would let a bad pattern take n * n.
constexpr uint32_t kCheapSteps = 1'000;
constexpr int64_t kBaseSteps = 1'000'000;
constexpr int64_t kStepsPerByte = 64;

// PCRE2 does not count the steps of simple loops, so that a bad pattern could still take n * n. So
// the clock is looked at between matches and, inside of one, behind such loops, each of which takes
// at most n. The time that a known pattern takes is a thirtieth of this.
constexpr double kBaseSeconds = 1;
constexpr double kSecondsPerByte = 2e-6;
constexpr int kCallsPerLookAtTheClock = 64;
constexpr int kTooSlow = 1;  // an error of our own; PCRE2's are negative

constexpr uint32_t kMaxHeapKiB = 256 * 1024;
constexpr size_t kJitStackBytes = size_t{16} << 20;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string ErrorText(int code) {
  if (code == kTooSlow) return "time limit exceeded";
  PCRE2_UCHAR8 buffer[256];
  pcre2_get_error_message_8(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

struct Free {
  void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
  void operator()(pcre2_compile_context_8* context) const { pcre2_compile_context_free_8(context); }
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
  void operator()(pcre2_match_data_8* match) const { pcre2_match_data_free_8(match); }
  void operator()(pcre2_jit_stack_8* stack) const { pcre2_jit_stack_free_8(stack); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

}  // namespace

struct RegexScratch::State {
  // One pair of offsets: no caller asks for groups.
  Owned<pcre2_match_data_8> match{pcre2_match_data_create_8(1, nullptr)};
  Owned<pcre2_match_context_8> context{pcre2_match_context_create_8(nullptr)};
  Owned<pcre2_jit_stack_8> jit_stack{pcre2_jit_stack_create_8(32 << 10, kJitStackBytes, nullptr)};
  int64_t budget;
  double deadline;  // in seconds of this thread
  int calls = 0;    // since the last look at the clock
  int error = 0;

  bool IsLate() {
    if (++calls < kCallsPerLookAtTheClock) return false;
    calls = 0;
    return ThreadSeconds() > deadline;
  }
};

RegexScratch::RegexScratch(size_t text_bytes) : state_(std::make_unique<State>()) {
  state_->budget = kBaseSteps + kStepsPerByte * static_cast<int64_t>(text_bytes);
  state_->deadline =
      ThreadSeconds() + kBaseSeconds + kSecondsPerByte * static_cast<double>(text_bytes);
  pcre2_set_match_limit_8(state_->context.get(), kCheapSteps);
  pcre2_set_callout_8(
      state_->context.get(),
      [](pcre2_callout_block_8*, void* state) {
        return static_cast<State*>(state)->IsLate() ? PCRE2_ERROR_CALLOUT : 0;
      },
      state_.get());
  pcre2_set_heap_limit_8(state_->context.get(), kMaxHeapKiB);
  pcre2_jit_stack_assign_8(state_->context.get(), nullptr, state_->jit_stack.get());
}

RegexScratch::~RegexScratch() = default;

std::string RegexScratch::Error() const {
  return ErrorText(state_->error);
}

struct Regex::Code {
  Owned<pcre2_code_8> code;
  bool jit;  // without it the same matches come out, about four times slower

  int Match(std::string_view text, size_t from, pcre2_match_data_8* match,
            pcre2_match_context_8* context) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
    if (jit) {
      return pcre2_jit_match_8(code.get(), subject, text.size(), from, 0, match, context);
    }
    return pcre2_match_8(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match,
                         context);
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;

Result<std::unique_ptr<const Regex>> Regex::Compile(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    return BadPattern(pattern.substr(0, 20), "is " + std::to_string(pattern.size()) +
                                                 " bytes long; 1 to " +
                                                 std::to_string(kMaxPatternBytes) + " are allowed");
  }
  TRINE_ASSIGN(const std::string translated, TranslatePattern(pattern));
  const Owned<pcre2_compile_context_8> context(pcre2_compile_context_create_8(nullptr));
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated.data()),
                                   translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                   &error, &offset, context.get()));
  if (code->code == nullptr) return BadPattern(pattern, "PCRE2 refuses it: " + ErrorText(error));
  code->jit = pcre2_jit_compile_8(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return std::unique_ptr<const Regex>(new Regex(std::move(code)));
}

Regex::Outcome Regex::Find(std::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
                           size_t* end) const {
  RegexScratch::State& state = *scratch->state_;
  if (state.IsLate()) {
    state.error = kTooSlow;
    return Outcome::kGaveUp;
  }
  int rc = code_->Match(text, from, state.match.get(), state.context.get());
  if (rc == PCRE2_ERROR_MATCHLIMIT) {
    for (int64_t steps = kCheapSteps; rc == PCRE2_ERROR_MATCHLIMIT && state.budget > 0;) {
      steps = std::min<int64_t>(steps * 4, UINT32_MAX);
      state.budget -= steps;
      pcre2_set_match_limit_8(state.context.get(), static_cast<uint32_t>(steps));
      rc = code_->Match(text, from, state.match.get(), state.context.get());
    }
    pcre2_set_match_limit_8(state.context.get(), kCheapSteps);
  }
  if (rc == PCRE2_ERROR_NOMATCH) return Outcome::kNone;
  const size_t* bounds = pcre2_get_ovector_pointer_8(state.match.get());
  *begin = bounds[0];
  *end = bounds[1];
  state.error = rc == PCRE2_ERROR_CALLOUT ? kTooSlow : rc;
  return rc < 0 ? Outcome::kGaveUp : Outcome::kMatch;
}

}  // namespace trine
