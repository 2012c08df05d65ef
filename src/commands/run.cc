// trine run: text from a prompt. Several -p run side by side, each as if it were alone; those
// beyond --parallel wait their turn.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "src/commands/commands.h"
#include "src/core/output_file.h"
#include "src/text/stop_strings.h"

namespace trine {
namespace {

SamplingParams ToSampling(const Settings& settings) {
  SamplingParams params;
  params.temperature = static_cast<float>(settings.temperature);
  params.top_k = settings.top_k;
  params.top_p = static_cast<float>(settings.top_p);
  params.min_p = static_cast<float>(settings.min_p);
  params.typical_p = static_cast<float>(settings.typical_p);
  params.repeat_penalty = static_cast<float>(settings.repeat_penalty);
  params.repeat_last_n = settings.repeat_last_n;
  params.presence_penalty = static_cast<float>(settings.presence_penalty);
  params.frequency_penalty = static_cast<float>(settings.frequency_penalty);
  for (const auto& [id, bias] : settings.logit_bias) {
    params.logit_bias.push_back({id, static_cast<float>(bias)});
  }
  params.min_tokens = settings.min_tokens;
  params.seed = settings.seed;
  return params;
}

Status CheckBiases(const Settings& settings, const Tokenizer& tokenizer) {
  for (const auto& [id, bias] : settings.logit_bias) {
    if (id < tokenizer.size()) continue;
    return BadInput("--logit-bias names token " + std::to_string(id) + ", the model has " +
                    std::to_string(tokenizer.size()) + "; trine tokenize shows the ids of a text");
  }
  return {};
}

Result<Request> MakeRequest(const Settings& settings, const Tokenizer& tokenizer,
                            const std::string& prompt) {
  const auto special =
      settings.parse_special ? Tokenizer::Special::kParse : Tokenizer::Special::kAsText;
  Request request;
  if (tokenizer.add_bos()) request.prompt.push_back(tokenizer.bos());
  TRINE_ASSIGN(const std::vector<int32_t> ids, tokenizer.Encode(prompt, special));
  request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
  if (request.prompt.empty()) return BadInput("the prompt is empty; give -p some text");
  request.max_tokens = settings.predict;
  request.sampling = ToSampling(settings);
  if (!settings.ignore_eos) request.stop = tokenizer.end_of_generation();
  return request;
}

// Streams the text of one sequence; several are kept apart and printed one after another.
class TextOutput {
 public:
  TextOutput(const Tokenizer& tokenizer, const std::vector<std::string>& stop, size_t sequences) {
    for (size_t i = 0; i < sequences; ++i) {
      streams_.push_back({Detokenizer(tokenizer), StopStrings(stop), {}});
    }
  }

  // A stop string has ended the text: nothing that follows is part of it.
  bool ended(int64_t request) const { return streams_[static_cast<size_t>(request)].stop.found(); }

  // False if a stop string has ended the text; what follows of this request is not printed.
  bool Add(const TokenEvent& event) {
    Stream& stream = streams_[static_cast<size_t>(event.request)];
    if (event.token >= 0 && event.finish != FinishReason::kStop) {
      Emit(stream, stream.stop.Next(stream.detokenizer.Next(event.token)));
    }
    if (event.finish != FinishReason::kNone) {
      Emit(stream, stream.stop.Next(stream.detokenizer.Finish()));
      Emit(stream, stream.stop.Finish());
    }
    return !stream.stop.found();
  }

  void Finish() {
    for (const Stream& stream : streams_) {
      std::fwrite(stream.text.data(), 1, stream.text.size(), stdout);
      std::fputc('\n', stdout);
    }
    std::fflush(stdout);
  }

 private:
  struct Stream {
    Detokenizer detokenizer;
    StopStrings stop;
    std::string text;  // kept back when there are several
  };

  void Emit(Stream& stream, const std::string& text) {
    if (streams_.size() > 1) {
      stream.text += text;
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
  }

  std::vector<Stream> streams_;
};

// Rank 0: submit, step until idle, print.
Status Generate(const Settings& settings, const std::vector<std::string>& prompts,
                Session& session) {
  TRINE_RETURN_IF_ERROR(CheckBiases(settings, session.tokenizer()));
  Scheduler scheduler(session.scheduler_limits());
  for (const std::string& prompt : prompts) {
    if (settings.predict == 0) break;
    TRINE_ASSIGN(Request request, MakeRequest(settings, session.tokenizer(), prompt));
    TRINE_ASSIGN(const int64_t id, scheduler.Submit(std::move(request)));
    (void)id;
  }
  std::optional<OutputFile> logits;
  Status written;
  std::vector<float> rows;  // of the step's events, as far as they have some
  Session::OnRow save;
  if (!settings.save_logits.empty()) {
    TRINE_ASSIGN(OutputFile file, OutputFile::Create(settings.save_logits));
    logits.emplace(std::move(file));
    save = [&](const TokenEvent&, std::span<const float> row) {
      rows.insert(rows.end(), row.begin(), row.end());
    };
  }
  TextOutput output(session.tokenizer(), settings.stop, prompts.size());
  int64_t faults = 0;
  while (!scheduler.idle()) {
    rows.clear();
    size_t row = 0;
    for (const TokenEvent& event : session.Step(scheduler, save)) {
      if (logits && event.row >= 0) {
        const auto vocab = static_cast<size_t>(session.config().vocab);
        const auto values =
            std::as_bytes(std::span<const float>(rows).subspan(vocab * row++, vocab));
        if (written.ok() && !output.ended(event.request)) written = logits->Write(values);
      }
      if (!output.Add(event)) scheduler.Cancel(event.request);
      faults += event.finish == FinishReason::kFault ? 1 : 0;
    }
  }
  output.Finish();
  TRINE_RETURN_IF_ERROR(written);
  if (logits) TRINE_RETURN_IF_ERROR(logits->Commit());
  if (faults == 0) return {};
  return BadInput("a value was not finite or beyond 2^22 in " + std::to_string(faults) +
                  " sequence(s), which ended there; the file is damaged, or the model needs "
                  "--compute f32");
}

}  // namespace

Status RunCommand(const Settings& settings, Ranks ranks) {
  std::vector<std::string> prompts;
  Status status;
  if (ranks.world.rank == 0) {
    Result<std::vector<std::string>> read = ReadPrompts(settings);
    status = read.status();
    if (read.ok()) prompts = std::move(*read);
  }
  TRINE_RETURN_IF_ERROR(ranks.control.Agree(status));
  const int64_t given = std::ssize(settings.prompts) + (settings.prompt_file.empty() ? 0 : 1);
  const int64_t most = settings.parallel == 0 ? kMostSequences : settings.parallel;
  const int64_t at_once = std::min(given, most);
  TRINE_ASSIGN(const std::unique_ptr<Session> session, OpenSession(settings, ranks, at_once));
  return RunSession(ranks, *session, [&] { return Generate(settings, prompts, *session); });
}

}  // namespace trine
