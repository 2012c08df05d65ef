// A whole job in one process: ranks as threads over a real model file. For the model and engine
// tests; the same code as under mpirun, from reading the file to gathering the logits.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "src/engine/session.h"
#include "tests/fixtures.h"

namespace trine {

// Of a model of tests/data/tiny: four sequences, and steps that cut most prompts.
inline SessionOptions TinyOptions(const std::string& name) {
  SessionOptions options;
  options.model = DataPath("tiny/" + name + ".gguf");
  options.sequences = 4;
  options.step_tokens = 16;
  return options;
}

// Runs `body` on rank 0 of `ranks` ranks with the session open everywhere. The status of opening.
inline Status RunJob(int ranks, const SessionOptions& options,
                     const std::function<void(Session&)>& body) {
  std::vector<ThreadRank> job = MakeThreadRanks(ranks);
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < job.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto session = Session::Open(options, *job[rank].control, *job[rank].comm, {});
      statuses[rank] = session.status();
      if (!session.ok()) return;
      if (rank != 0) return (*session)->Work();
      body(**session);
      (*session)->Stop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    if (status.message() != statuses[0].message()) return BadInput("the ranks disagree");
  }
  return statuses[0];
}

// The bytes of a GGUF file, row 50 of whose embedding begins with a value that is not a number.
inline std::string WithoutRow50(const std::string& path) {
  std::string bytes = ReadFile(path);
  const auto store = OpenWeights(path);
  TRINE_CHECK(store.ok(), store.status().message().c_str());
  const TensorInfo& table = *(*store)->Find("token_embd.weight");
  const float value = NAN;
  const int64_t row = table.offset + 50 * RowBytes(table.type, table.cols());
  std::memcpy(&bytes[static_cast<size_t>(row)], &value, sizeof value);
  return bytes;
}

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;  // [tokens, vocabulary]

// The logits of every token of every sequence: the sequences side by side in each step, `chunk`
// tokens of each at a time.
inline std::vector<Logits> Evaluate(Session& session, const std::vector<Tokens>& sequences,
                                    int64_t chunk) {
  std::vector<Logits> logits(sequences.size());
  PageAllocator pages(session.scheduler_limits().pages);
  std::vector<int64_t> owned(sequences.size(), 0);
  size_t longest = 0;
  for (const Tokens& tokens : sequences) longest = std::max(longest, tokens.size());
  for (size_t first = 0; first < longest; first += static_cast<size_t>(chunk)) {
    StepCommand command;
    command.gather_logits = true;
    std::vector<size_t> counts;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const size_t size = sequences[s].size();
      const size_t count = first >= size ? 0 : std::min(static_cast<size_t>(chunk), size - first);
      counts.push_back(count);
      if (count == 0) continue;
      SequenceStep step{static_cast<int32_t>(s), static_cast<int32_t>(first),
                        static_cast<int32_t>(count), 0, first == 0 ? 1 : 0};
      for (; owned[s] < PagesFor(static_cast<int64_t>(first + count)); ++owned[s]) {
        command.new_pages.push_back(pages.Take());
        ++step.new_pages;
      }
      for (size_t i = 0; i < count; ++i) {
        LogitRow row;
        row.row = static_cast<int32_t>(command.tokens.size());
        command.rows.push_back(row);
        command.tokens.push_back(sequences[s][first + i]);
      }
      command.sequences.push_back(step);
    }
    const StepResult& result = session.Execute(command);
    const auto vocab = static_cast<size_t>(session.config().vocab);
    const float* row = result.logits.data();
    for (size_t s = 0; s < sequences.size(); ++s) {
      logits[s].insert(logits[s].end(), row, row + counts[s] * vocab);
      row += counts[s] * vocab;
    }
  }
  return logits;
}

}  // namespace trine
