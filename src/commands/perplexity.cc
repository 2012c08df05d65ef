// trine perplexity: how well a model predicts a text, as llama.cpp's perplexity tool defines it.
// The text is tokenised once (BOS in front if the vocabulary wants it, control tokens are text) and
// cut into windows of --ctx-size tokens; BOS replaces the first token of each. The later half of
// every window is scored. With --kl-divergence, how far the model is from a reference on the same
// rows.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/commands/commands.h"
#include "src/core/output_file.h"
#include "src/core/parallel.h"
#include "src/engine/window_steps.h"
#include "src/eval/perplexity_stats.h"
#include "src/eval/reference_logits.h"

namespace trine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostWindowsAtOnce = 32;
// Of a step. With the executor's copies and a reference, 128 MiB on rank 0.
constexpr int64_t kLogitBytes = int64_t{32} << 20;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What rank 0 opens before a model is loaded.
struct Inputs {
  std::string text;
  std::optional<File> reference;
};

Result<Inputs> OpenInputs(const Settings& settings) {
  Inputs inputs;
  TRINE_ASSIGN(const std::vector<std::string> texts, ReadPrompts(settings));
  inputs.text = texts[0];
  // As llama.cpp reads files.
  if (!settings.prompt_file.empty() && inputs.text.ends_with('\n')) inputs.text.pop_back();
  if (!settings.kl_divergence.empty()) {
    TRINE_ASSIGN(File file, File::Open(settings.kl_divergence));
    inputs.reference.emplace(std::move(file));
  }
  return inputs;
}

Result<TextWindows> CutText(const Settings& settings, const std::string& text,
                            const Session& session) {
  const Tokenizer& tokenizer = session.tokenizer();
  TextWindows windows;
  windows.length = session.context();
  if (settings.context > windows.length) {
    return BadInput("--ctx-size is " + std::to_string(settings.context) +
                    ", but the model was made for " + std::to_string(windows.length) +
                    " tokens; give that or less");
  }
  if (tokenizer.add_bos()) windows.tokens.push_back(windows.bos = tokenizer.bos());
  TRINE_ASSIGN(const std::vector<int32_t> ids, tokenizer.Encode(text, Tokenizer::Special::kAsText));
  windows.tokens.insert(windows.tokens.end(), ids.begin(), ids.end());
  const int64_t tokens = std::ssize(windows.tokens);
  if (tokens < 2 * windows.length) {
    return BadInput("the text has " + std::to_string(tokens) + " tokens, but two windows of " +
                    std::to_string(windows.length) + " need " + std::to_string(2 * windows.length) +
                    "; give a longer text or a smaller --ctx-size");
  }
  const int64_t most = tokens / windows.length;
  windows.count = settings.chunks < 0 ? most : std::min(settings.chunks, most);
  return windows;
}

std::string Shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Rank 0's run over all windows. Scores in the order of the text.
class Measurement {
 public:
  Measurement(const TextWindows& windows, Session& session)
      : windows_(windows), session_(session), row_(static_cast<size_t>(session.config().vocab)) {}

  Status Open(const Settings& settings, std::optional<File> reference) {
    if (reference) {
      reference_.emplace(std::move(*reference), session_.config().vocab);
      TRINE_RETURN_IF_ERROR(reference_->CheckRows(windows_.count * windows_.rows()));
    }
    if (!settings.save_logits.empty()) {
      TRINE_ASSIGN(OutputFile file, OutputFile::Create(settings.save_logits));
      logits_.emplace(std::move(file));
    }
    if (settings.csv.empty()) return {};
    TRINE_ASSIGN(OutputFile file, OutputFile::Create(settings.csv));
    csv_.emplace(std::move(file));
    return WriteText(reference_ ? "window,position,token,nll,kl,p,reference_p,same_top\n"
                                : "window,position,token,nll\n");
  }

  Status Run() {
    const auto start = Clock::now();
    const Status status = RunSteps();
    std::fputc('\n', stderr);  // ends the line of estimates
    TRINE_RETURN_IF_ERROR(status);
    const double seconds = Since(start);
    const int64_t tokens = windows_.count * windows_.length;
    std::fprintf(stderr, "  %lld tokens in %.2f s, %.1f tokens/s; %.1f %% of it scoring logits\n",
                 static_cast<long long>(tokens), seconds, static_cast<double>(tokens) / seconds,
                 scoring_ / seconds * 100);
    if (logits_) TRINE_RETURN_IF_ERROR(logits_->Commit());
    return csv_ ? csv_->Commit() : Status();
  }

  std::span<const TokenScore> scores() const { return scores_; }

 private:
  using Places = std::span<const WindowSteps::Place>;

  Status RunSteps() {
    const SchedulerLimits& limits = session_.scheduler_limits();
    const int64_t slots = std::min(limits.sequences, limits.pages / PagesFor(windows_.length));
    WindowSteps steps(windows_,
                      {slots, session_.step_limits().tokens, session_.step_limits().logit_rows});
    while (!steps.done()) {
      const StepResult& result = session_.Execute(steps.Next());
      const auto step_end = Clock::now();
      TRINE_RETURN_IF_ERROR(CheckFaults(result, steps.places()));
      if (!steps.places().empty()) TRINE_RETURN_IF_ERROR(Score(result.logits, steps.places()));
      scoring_ += Since(step_end);
    }
    return {};
  }

  static std::string Name(const WindowSteps::Place& place) {
    return "window " + std::to_string(place.window + 1) + ", token " +
           std::to_string(place.position);
  }

  Status CheckFaults(const StepResult& result, Places places) const {
    for (size_t i = 0; i < places.size(); ++i) {
      if (!result.rows[i].fault) continue;
      return BadInput(Name(places[i]) +
                      ", or one before it in the window: a value was not finite " +
                      "or beyond 2^22; the file is damaged, or the model needs --compute f32");
    }
    return {};
  }

  // logits [places, vocabulary]
  Status Score(std::span<const float> logits, Places places) {
    std::span<const float> reference;
    if (reference_) {
      TRINE_ASSIGN(reference, reference_->Read(std::ssize(scores_), std::ssize(places)));
    }
    const size_t before = scores_.size();
    scores_.resize(before + places.size());
    ScoreRows(logits, reference, places, scores_.data() + before);
    for (size_t i = 0; i < places.size(); ++i) {
      TRINE_RETURN_IF_ERROR(Note(places[i], scores_[before + i]));
    }
    return logits_ ? logits_->Write(std::as_bytes(logits)) : Status();
  }

  // Each row by one of the threads that compute.
  void ScoreRows(std::span<const float> logits, std::span<const float> reference, Places places,
                 TokenScore* out) const {
    const size_t threads =
        std::min(static_cast<size_t>(session_.backend().threads()), places.size());
    InParallel(static_cast<int64_t>(threads), [&](int64_t first) {
      for (size_t i = static_cast<size_t>(first); i < places.size(); i += threads) {
        const int32_t target = windows_.Target(places[i].window, places[i].position);
        const auto row = logits.subspan(i * row_, row_);
        out[i] = reference.empty() ? ScoreToken(row, target)
                                   : ScoreToken(row, reference.subspan(i * row_, row_), target);
      }
    });
  }

  // Checks a score, sums it up for the eye and writes its line.
  Status Note(const WindowSteps::Place& place, const TokenScore& score) {
    if (!std::isfinite(score.nll) || !std::isfinite(score.reference_nll)) {
      return BadInput(Name(place) + ": a logit " +
                      (std::isfinite(score.nll) ? "in " + reference_->path() : "of the model") +
                      " is not finite; the file is damaged");
    }
    nll_ += score.nll;
    if (place.position == windows_.length - 2) {
      const auto scored = static_cast<double>((place.window + 1) * windows_.rows());
      std::fprintf(stderr, "[%lld]%.4f,", static_cast<long long>(place.window + 1),
                   std::exp(nll_ / scored));
    }
    if (!csv_) return {};
    std::string line = std::to_string(place.window + 1) + ',' + std::to_string(place.position + 1) +
                       ',' + std::to_string(windows_.Target(place.window, place.position)) + ',' +
                       Shortest(score.nll);
    if (reference_) {
      line += ',' + Shortest(score.kl) + ',' + Shortest(std::exp(-score.nll)) + ',' +
              Shortest(std::exp(-score.reference_nll)) + (score.same_top ? ",1" : ",0");
    }
    return WriteText(line + '\n');
  }

  Status WriteText(const std::string& text) { return csv_->Write(std::as_bytes(std::span(text))); }

  const TextWindows& windows_;
  Session& session_;
  const size_t row_;  // vocabulary
  std::optional<ReferenceLogits> reference_;
  std::optional<OutputFile> logits_, csv_;
  std::vector<TokenScore> scores_;
  double nll_ = 0, scoring_ = 0;  // nats and seconds so far
};

void PrintText(const Estimate& perplexity, const std::optional<Comparison>& comparison) {
  std::printf("Final estimate: PPL = %.4f +/- %.5f\n", perplexity.value, perplexity.error);
  if (!comparison) return;
  const auto print = [](const char* name, const Estimate& estimate, double scale = 1) {
    std::printf("%-24s %11.6f +/- %.6f%s\n", name, estimate.value * scale, estimate.error * scale,
                scale == 1 ? "" : " %");
  };
  print("PPL of the reference", comparison->reference);
  print("PPL / reference", comparison->ratio);
  print("KL divergence, mean", comparison->kl);
  for (size_t i = 0; i < kPercents.size(); ++i) {
    std::printf("  %4.1f %%                 %11.6f\n", kPercents[i], comparison->kl_percentiles[i]);
  }
  std::printf("  maximum                %11.6f\n", comparison->max_kl);
  print("same top token", comparison->top1_agreement, 100);
  print("delta p, mean", comparison->mean_delta_p, 100);
  print("delta p, RMS", comparison->rms_delta_p, 100);
}

void PrintJson(const TextWindows& windows, const Estimate& perplexity,
               const std::optional<Comparison>& comparison) {
  nlohmann::ordered_json json = {{"perplexity", perplexity.value},
                                 {"stderr", perplexity.error},
                                 {"tokens", windows.count * windows.rows()},
                                 {"windows", windows.count},
                                 {"context", windows.length}};
  if (comparison) {
    const auto add = [&](const std::string& name, const Estimate& estimate) {
      json[name] = estimate.value;
      json[name + "_stderr"] = estimate.error;
    };
    add("mean_kl", comparison->kl);
    json["max_kl"] = comparison->max_kl;
    for (size_t i = 0; i < kPercents.size(); ++i) {
      json["kl_percentiles"][Shortest(kPercents[i])] = comparison->kl_percentiles[i];
    }
    add("top1_agreement", comparison->top1_agreement);
    add("ppl_ratio", comparison->ratio);
    add("reference_perplexity", comparison->reference);
    add("mean_delta_p", comparison->mean_delta_p);
    add("rms_delta_p", comparison->rms_delta_p);
  }
  std::printf("%s\n", json.dump(2).c_str());
}

Status Measure(const Settings& settings, Inputs inputs, Session& session) {
  TRINE_ASSIGN(const TextWindows windows, CutText(settings, inputs.text, session));
  Measurement measurement(windows, session);
  TRINE_RETURN_IF_ERROR(measurement.Open(settings, std::move(inputs.reference)));
  std::fprintf(stderr, "  %lld windows of %lld tokens, the last %lld of each scored\n",
               static_cast<long long>(windows.count), static_cast<long long>(windows.length),
               static_cast<long long>(windows.rows()));
  TRINE_RETURN_IF_ERROR(measurement.Run());
  const Estimate perplexity = Perplexity(measurement.scores());
  std::optional<Comparison> comparison;
  if (!settings.kl_divergence.empty()) comparison = Compare(measurement.scores());
  if (settings.json) {
    PrintJson(windows, perplexity, comparison);
  } else {
    PrintText(perplexity, comparison);
  }
  return {};
}

}  // namespace

Status PerplexityCommand(const Settings& settings, Ranks ranks) {
  Inputs inputs;
  Status status;
  if (ranks.world.rank == 0) {
    Result<Inputs> opened = OpenInputs(settings);
    status = opened.status();
    if (opened.ok()) inputs = std::move(*opened);
  }
  TRINE_RETURN_IF_ERROR(ranks.control.Agree(status));
  // Of unknown length, one: a window may fill the memory.
  const int64_t at_once =
      settings.context == 0
          ? 1
          : std::clamp<int64_t>(settings.batch / settings.context, 1, kMostWindowsAtOnce);
  TRINE_ASSIGN(const std::unique_ptr<Session> session,
               OpenSession(settings, ranks, at_once,
                           [](SessionOptions& options) { options.logit_bytes = kLogitBytes; }));
  return RunSession(ranks, *session,
                    [&] { return Measure(settings, std::move(inputs), *session); });
}

}  // namespace trine
