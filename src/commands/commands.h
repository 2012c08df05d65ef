// The verbs. Each returns OK or the error that rank 0 will print; results go to stdout, everything
// else to stderr. Collective verbs are called on every rank with the same settings and end with the
// same status everywhere.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "src/core/result.h"
#include "src/core/settings.h"
#include "src/engine/session.h"

namespace trine {

struct Ranks {
  World world;
  ControlChannel& control;
  Communicator& comm;
};

Status RunCommand(const Settings& settings, Ranks ranks);         // collective
Status BenchCommand(const Settings& settings, Ranks ranks);       // collective
Status PerplexityCommand(const Settings& settings, Ranks ranks);  // collective
// Collective. Checks each of the paths.
Status FabricCommand(const Settings& settings, ControlChannel& control,
                     std::span<const std::unique_ptr<Communicator>> paths);
Status InspectCommand(const Settings& settings);                  // rank 0
Status TokenizeCommand(const Settings& settings);                 // rank 0
Status PlanCommand(const Settings& settings);                     // rank 0
Status SynthCommand(const Settings& settings);                    // rank 0
Status ConvertCommand(const Settings& settings);                  // rank 0

// The life of a session: rank 0 runs `lead` and then stops the others, which execute its steps. The
// status of `lead`, on every rank. Collective.
Status RunSession(Ranks ranks, Session& session, const std::function<Status()>& lead);

// Draws a bar behind `label` on stderr, for `done` of `total` bytes, with the rate since this call
// and the time that is left; the last call ends the line.
// Empty where stderr is no terminal.
std::function<void(int64_t done, int64_t total)> TerminalProgress(const std::string& label);

// The prompts of -p and then that of -f, which is read here. Blocks on standard input for "-".
Result<std::vector<std::string>> ReadPrompts(const Settings& settings);

// The tokenizer of a model, or of a tokenizer.json with what lies beside it (see
// Tokenizer::FromJson). Errors name the file.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// What the settings ask of a session that runs `sequences` at once, on a rank that shares its host
// with others: local_ranks in all.
SessionOptions ToOptions(const Settings& settings, int threads, int64_t sequences,
                         int64_t local_ranks);

// One line on stderr for each class of tensor: its type, how it is kept and the precision it is
// multiplied at; where that is wider or slower than the type could be, the reason.
void PrintKernels(const std::vector<std::vector<Claim>>& claims_by_rank);

// What run, bench and perplexity share: a session from the settings for `sequences` at once, with a
// progress bar on a terminal and a line on stderr that says what runs where. `adjust` may change
// what the settings ask for. Collective.
Result<std::unique_ptr<Session>> OpenSession(
    const Settings& settings, Ranks ranks, int64_t sequences,
    const std::function<void(SessionOptions&)>& adjust = {});

}  // namespace trine
