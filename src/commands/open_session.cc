#include <chrono>
#include <cstdio>

#include "src/commands/commands.h"
#include "src/core/cores.h"
#include "src/core/memory.h"

namespace trine {
namespace {

constexpr double kMegabyte = 1e6;

void Describe(const Session& session, const Ranks& ranks, double seconds) {
  int64_t loaded = 0;
  std::fprintf(stderr, "%s: %s, %d %s, %s, comm %.*s\n", session.store().name().c_str(),
               session.config().architecture.c_str(), ranks.world.size,
               ranks.world.size == 1 ? "rank" : "ranks", session.backend().Describe().c_str(),
               static_cast<int>(ranks.comm.name().size()), ranks.comm.name().data());
  PrintKernels(session.plan().claims);
  for (int i = 0; i < session.config().ignored_blocks; ++i) {
    std::fprintf(stderr, "  blk.%d.* left out: multi-token prediction\n",
                 session.config().layers + i);
  }
  for (int rank = 0; rank < session.plan().ranks(); ++rank) {
    const RankShare& share = session.plan().shards.share(rank);
    const int64_t bytes = LoadedBytes(session.plan().claims[static_cast<size_t>(rank)]);
    std::fprintf(
        stderr,
        "  rank %d: %lld query heads, %lld KV heads, %lld FFN channels, "
        "%lld vocabulary rows, %.1f MB of weights\n",
        rank, static_cast<long long>(share.q_heads.size()),
        static_cast<long long>(share.kv_heads.size()), static_cast<long long>(share.ffn.size()),
        static_cast<long long>(share.vocab.size()), static_cast<double>(bytes) / kMegabyte);
    loaded += bytes;
  }
  const SchedulerLimits& limits = session.scheduler_limits();
  std::fprintf(
      stderr, "  KV cache: %lld tokens, %lld %s of at most %lld\n",
      static_cast<long long>(limits.pages * kPageTokens), static_cast<long long>(limits.sequences),
      limits.sequences == 1 ? "sequence" : "sequences", static_cast<long long>(limits.context));
  std::fprintf(stderr, "  loaded %.1f MB in %.2f s\n", static_cast<double>(loaded) / kMegabyte,
               seconds);
}

}  // namespace

SessionOptions ToOptions(const Settings& settings, int threads, int64_t sequences,
                         int64_t local_ranks) {
  SessionOptions options;
  options.model = settings.model;
  options.threads = threads;
  options.compute = settings.compute == "f32" ? Compute::kF32 : Compute::kInteger;
  options.kv_type = settings.cache_type == "f32"    ? KvType::kF32
                    : settings.cache_type == "q8_0" ? KvType::kQ8_0
                                                    : KvType::kF16;
  options.context = settings.context;
  options.sequences = sequences;
  options.step_tokens = settings.batch;
  options.snapshots = settings.ctx_checkpoints * sequences;
  options.drafts = settings.draft_max;
  const int64_t memory =
      settings.plan_memory > 0 ? settings.plan_memory : HostMemory() / local_ranks;
  options.memory = static_cast<int64_t>(settings.memory_fraction * static_cast<double>(memory));
  options.kv_memory = settings.kv_memory;
  options.split = settings.split;
  return options;
}

Result<std::unique_ptr<Session>> OpenSession(const Settings& settings, Ranks ranks,
                                             int64_t sequences,
                                             const std::function<void(SessionOptions&)>& adjust) {
  const CoreCount cores = CountCores();
  const int threads =
      settings.threads > 0 ? settings.threads : DefaultThreads(cores, ranks.world.local_size);
  const bool first = ranks.world.rank == 0;
  const std::string warning = BindingWarning(cores, ranks.world.local_size, threads);
  if (first && !warning.empty()) std::fprintf(stderr, "trine: warning: %s\n", warning.c_str());

  std::function<void(int64_t, int64_t)> progress;
  if (first) progress = TerminalProgress("loading");
  const auto start = std::chrono::steady_clock::now();
  SessionOptions options = ToOptions(settings, threads, sequences, ranks.world.local_size);
  if (adjust) adjust(options);
  TRINE_ASSIGN(std::unique_ptr<Session> session,
               Session::Open(options, ranks.control, ranks.comm, progress));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (first) Describe(*session, ranks, seconds.count());
  return session;
}

Status RunSession(Ranks ranks, Session& session, const std::function<Status()>& lead) {
  Status status;
  if (ranks.world.rank == 0) {
    status = lead();
    session.Stop();
  } else {
    session.Work();
  }
  return ranks.control.Agree(status);
}

}  // namespace trine
