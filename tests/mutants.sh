#!/usr/bin/env bash
# Deliberate mistakes in a copy of the tree: each must make its test fail.
#   tests/mutants.sh [FOLDER [MUTANT...]]      FOLDER (build/mutants) keeps the copy and its build
# Takes minutes: label `slow`. A mutant that its test does not see is an error here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/mutants}
wanted=("${@:2}")
tree=$folder/tree
build=$folder/build

f32=All/TinyModel.F32_MatchesTransformers
bits=All/TinyModel.RankCounts_SameBits
chunks=All/TinyModel.ChunkedPrefill_SameBits

# name | file | sed script | program | its test | what is wrong
mutants=(
  "sign|src/weights/rotation.cc|s/: it->second;/: [\&] { auto v = it->second; v[7] *= -1; return v; }();/|model_test|$f32/qwen35_a_rot_pq2_0|one sign of every vector flipped"
  "permutation|src/models/gated_delta_net.cc|s/order = ValueHeadOrder::kGrouped;/order = ValueHeadOrder::kTiled;/|model_test|$f32/qwen35_a_rot_pq2_0|ssm_out's columns taken as tiled"
  "order|kernels/cpu/rotation.h|s/out\[i\] = forward ? x\[i\] \* signs\[i\] : x\[i\];/out[i] = x[i];/;s/forward ? scale : scale \* signs/scale * signs/|delta_test|Rotate.Vectors_AreMet|rotation before signs"
  "order-model|kernels/cpu/rotation.h|s/out\[i\] = forward ? x\[i\] \* signs\[i\] : x\[i\];/out[i] = x[i];/;s/forward ? scale : scale \* signs/scale * signs/|model_test|$f32/qwen35_a_rot_pq2_0|the same, seen by the model"
  "heads|kernels/cpu/delta_net.h|s/head \* layout.key_heads \/ layout.value_heads/head % layout.key_heads/|delta_test|DeltaNet.Recurrence_MatchesDouble|value head v uses key head v % K"
  "heads-model|kernels/cpu/delta_net.h|s/head \* layout.key_heads \/ layout.value_heads/head % layout.key_heads/|model_test|$f32/qwen35_a_plain_f16|the same, seen by the model"
  "ffn_down|src/models/layers.cc|/inner_.InPlace(context, gate);/d|model_test|$f32/qwen35_a_rot_pq2_0|input of ffn_down not rotated"
  "embedding|src/models/layers.cc|/Rotation::kInverse);/d|model_test|$f32/qwen35_a_rot_pq2_0|embedding not rotated back"
  "neighbour|src/models/layers.cc|s/Columns(whole, used_), words/Columns(whole, {used_.begin - (used_.begin > 0 ? 128 : 0), used_.end - (used_.begin > 0 ? 128 : 0)}), words/|model_test|$bits/qwen35_a_rot_pq2_0|a rank reads its neighbour's columns"
  "conv-state|kernels/cpu/delta_net.h|s/window\[j\] = fresh ? Zero() : .*;/window[j] = Zero();/|model_test|$chunks/qwen35_a_plain_pq2_0|conv state not carried over a border of chunks"
  "delta-reset|kernels/cpu/delta_net.h|s/if (task.slot.fresh) {/if (false) {/|delta_test|DeltaNet.Neighbours_DoNotTouchEachOther|delta state not reset at position 0"
  "delta-reset-model|kernels/cpu/delta_net.h|s/if (task.slot.fresh) {/if (false) {/|model_test|Qwen35.SlotUsedAgain_SameBits|the same, seen by the model"
  "conv-reset-model|kernels/cpu/delta_net.h|s/fresh ? Zero() : LoadPart/LoadPart/|model_test|Qwen35.SlotUsedAgain_SameBits|conv state not reset at position 0"
  "granule|src/models/model.cc|s/plan.config.ffn_granule = .*;/plan.config.ffn_granule = plan.dims.ffn_granule \/ (ranks > 1 ? 2 : 1);/|model_test|$bits/llama_f32|granule depends on the rank count"
  "float-sums|kernels/cpu/matmul.h|s/block.begins = k == start/block.begins = true/|backend_test|Linear.FloatTypes_AreSequentialSums|sums lost between blocks of columns"
  "coded-sums|kernels/cpu/matmul.h|s/block.begins = k == start/block.begins = true/|backend_test|Linear.UnitsTokensThreads_SameBits|the same, of codes"
  "coded-bias|kernels/cpu/coded_matmul.h|s/start\[t\] = sums\[t\] \* -w.code_bias/start[t] = 0/|backend_test|Linear.EveryType_WithinBoundOfDoubleSum|the bias of the codes stays in"
  "base-three|kernels/cpu/lanes_avx512.h|s/i \/ 9 % 3 << 4/i \/ 9 % 3 << 2/|backend_test|Linear.UnitsTokensThreads_SameBits|a digit of base three lost (needs VBMI)"
  "base-three-tail|kernels/cpu/panels.cc|s/unit.code(124 + i) << 2/unit.code(120 + i) << 2/|backend_test|Linear.UnitsTokensThreads_SameBits|four columns of base three twice (needs VBMI)"
  "q8-scale|kernels/cpu/attention.h|s/value_scales + d \/ kGroup/value_scales + 0/|attention_test|PagedAttention.Q8_0_IsAttentionOverRoundedValues|one scale for all values of a head"
  "q8-lanes|kernels/cpu/lanes_avx2.h|s/_mm_srli_si128(bytes, 8)/bytes/|attention_test|PagedAttention.Q8_0_IsAttentionOverRoundedValues|eight codes twice"
  "q8-rounding|kernels/formats/encode.h|s/code < 0 ? -0.5f : 0.5f/0.0f/|attention_test|PagedAttention.Q8_0_IsAttentionOverRoundedValues|codes are cut off"
  "q8-slot|kernels/cpu/cpu_backend.cc|s/KvHeadElements(head_dim)) + slot;/KvHeadElements(head_dim));/|attention_test|PagedAttention.TogetherAndAlone_SameBits|tokens of a page share their scales"
  "q8-slot-model|kernels/cpu/cpu_backend.cc|s/KvHeadElements(head_dim)) + slot;/KvHeadElements(head_dim));/|model_test|All/TinyModel.Q8Cache_SameBits/llama_f32|the same, seen by the model"
  "q8-finite|kernels/cpu/cpu_backend.cc|s/{FloatToF16(NAN), {}}/{0, {}}/|attention_test|PagedAttention.Q8_0ValueNotFinite_IsNotHidden|a group with NaN becomes zeros"
  "q8-bytes|kernels/cpu/cpu_kernels.h|s/2 \* KvScales(head_dim) \* 2/4 * KvScales(head_dim) * 2/|attention_test|KvPageBytes.EveryType_Exact|scales of four bytes"
  "export-rotation|src/convert/row_converter.cc|s/!tensor.unrotate.empty()/false/|convert_test|ConvertTest.UnrotatedExport_SameLogits|an export stays rotated"
  "export-heads|src/convert/conversion.cc|s/grouped ? ValueHeadOrder::kGrouped : from/from/|convert_test|ConvertTest.UnrotatedExport_SameLogits|ssm_out's columns taken as tiled"
  "import-rows|src/weights/conventions.h|s/2 \* (row % pairs) + row \/ pairs/row/|convert_test|ConvertTest.BothContainers_SameLogits|llama's rows of q and k keep Hugging Face's order"
  "import-gates|src/convert/conversion.cc|s/order = ValueHeads(from, 0, 1);/order = {};/|convert_test|ConvertTest.BothContainers_SameLogits|gates of value heads keep their order"
  "norms|src/weights/hf_names.cc|s/rule.norm \&\& architecture == \"qwen35\"/false/|convert_test|ConvertTest.BothContainers_SameLogits|norm weights without their 1"
  "shortest|src/weights/conventions.cc|s/int bits = 22/int bits = 0/|convert_test|Conventions.StoredValues_AreShortAndComeBack|log(-v) with digits it did not have"
  "scales|src/weights/row_codec.cc|s/units\[i\].scale == scale/units[i].scale >= 0/|convert_test|RowCodec.ScalesOfZeros_DoNotCount|two scales become one"
  "window-first|src/engine/window_steps.h|s/return length \/ 2;/return length \/ 2 + 1;/|window_test|TextWindows.ScoredAreTheLaterHalf_AndBosReplacesTheFirst|scoring begins one token late"
  "window-target|src/engine/window_steps.h|s/ + position + 1)/ + position)/|window_test|TextWindows.ScoredAreTheLaterHalf_AndBosReplacesTheFirst|a token is scored by its own logits"
  "window-slot|src/engine/window_steps.cc|s/window_ % limits_.slots/0/|window_test|WindowSteps.AnyLimits_GiveEveryWindowItsTokens|windows of a step share a slot"
  "window-slot-job|src/engine/window_steps.cc|s/window_ % limits_.slots/0/|window_test|Job.WindowsInAnySteps_GiveTheBitsOfEachAlone|the same, seen by the logits"
  "window-rows|src/engine/window_steps.cc|s/limits_.rows - .*;/limits_.rows;/|window_test|WindowSteps.AnyLimits_GiveEveryWindowItsTokens|more rows of logits than the step holds"
  "row-fault|src/engine/rank_loop.cc|s/rows\[row++\].fault = fault/rows[row++].fault = false/|window_test|Job.FaultyToken_MarksTheRowsFromItOn|rows of a faulty sequence are given out"
  "logit-bytes|src/engine/job_plan.cc|s/logit_bytes \/ row_bytes/logit_bytes * 8 \/ row_bytes/|window_test|PlanJob.LogitBytes_BoundTheRows|eight times the logits in a step"
  "divergence|src/eval/token_score.cc|s/terms.values\[i\] \*= /terms.values[i] *= 1 + /|eval_test|ScoreToken.AsInLongDouble|KL divergence plus one"
  "block-sum|kernels/log_sum_exp.cc|s/return {largest, terms.Sum()}/return {values[0], terms.Sum()}/|eval_test|ScoreToken.AsInLongDouble|a block's sum scaled by another maximum"
  "exp|kernels/log_sum_exp.cc|s/1.0 \/ 720;/1.0 \/ 721;/|eval_test|ExpBelowOne.AsTheLibrary|a coefficient of exp"
  "top|src/eval/token_score.cc|s/blocks.back().largest > largest)/blocks.back().largest >= largest)/|eval_test|ScoreToken.SameTop_IsTheFirstOfTheLargest|the last of equal tokens is the top"
  "finite|src/eval/token_score.cc|s/kExponent ? 1u : 0u/kExponent ? 0u : 0u/|eval_test|ScoreToken.NotFinite_IsSeenInEitherRow|NaN passes"
  "covariance|src/eval/perplexity_stats.cc|s/return s.nll - s.reference_nll;/return s.nll;/|eval_test|Compare.RatioKnowsTheCovariance|the ratio forgets the reference"
  "error|src/eval/perplexity_stats.cc|s/squares \/ n \/ (n - 1)/squares \/ n \/ n/|eval_test|Perplexity.MeanAndError|the error divides by n"
  "collectives|src/engine/timed_communicator.cc|s/std::max(last, rank\[i\].entry)/last/|bench_test|SplitCollectives.WaitingEndsWhenTheLastEnters|waiting ends when rank 0 enters"
  "op-class|src/engine/timed_backend.cc|s/OpClass::kDelta/OpClass::kNorm/|bench_test|TimedBackend.SameLogits_TimesOfWhatTheModelDoes|the delta rule is timed as a norm"
  "recompute|src/engine/scheduler.cc|s/first.computed = std::ssize/first.computed += std::ssize/|scheduler_test|Scheduler.Scenarios_GoAsWritten|a preempted sequence goes on without its pages"
  "cached-tokens|src/engine/prefix_cache.cc|s/hash \& (buckets_.size() - 1)/0/;s/std::ranges::equal(tokens, TokensOf(index))/true/|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|tokens are not compared"
  "snapshot-pin|src/engine/prefix_cache.cc|s/  ++last.waiting;//;s/  --node(.*waiting;//|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|a snapshot is overwritten before it is used"
  "restore|src/engine/rank_loop.cc|s/first_snapshot_ + step.restore, step.slot/step.slot, step.slot/|engine_test|Job.CachedBeginnings_SameBits|a state is not restored"
  "slot-leak|src/engine/scheduler.cc|s/free_slots_.push_back(sequence.slot);/if (sequence.id != 1) free_slots_.push_back(sequence.slot);/|scheduler_test|Scheduler.Scenarios_GoAsWritten|slots are not given back"
  "promise|src/engine/scheduler.cc|s/promised > cache_.available()/false/|scheduler_test|Scheduler.Scenarios_GoAsWritten|admitted without pages for its prompt"
  "draft-state|kernels/cpu/delta_net.h|s/const int64_t last_certain = .*;/const int64_t last_certain = task.qkv.rows - 1;/|delta_test|DeltaNet.DraftsInAnySteps_SameBitsAsTokensOneByOne|the state has the drafts in it"
  "draft-state-job|kernels/cpu/delta_net.h|s/const int64_t last_certain = .*;/const int64_t last_certain = task.qkv.rows - 1;/|draft_test|Drafts.RightAndWrongOnes_SameBitsAsOneByOne|the same, seen by the logits"
  "draft-window|kernels/cpu/delta_net.h|s/const int64_t i = accepted + j;/const int64_t i = j;/|delta_test|DeltaNet.DraftsInAnySteps_SameBitsAsTokensOneByOne|accepted drafts do not move the window"
  "draft-log|kernels/cpu/cpu_backend.cc|s/Copy(decay.Rows(certain, drafts), log.decay);//|delta_test|DeltaNet.DraftsInAnySteps_SameBitsAsTokensOneByOne|the log keeps old gates"
  "draft-accept|src/engine/rank_loop.cc|s/accepted_.push_back(step.accepted)/accepted_.push_back(0)/|draft_test|Drafts.RightAndWrongOnes_SameBitsAsOneByOne|accepted drafts are forgotten"
  "draft-snapshot|src/engine/rank_loop.cc|s/  SaveStates(command);/  /;s/  RestoreStates(command);/  RestoreStates(command);\n  SaveStates(command);/|draft_test|Drafts.SnapshotAmongThem_IsOfTheTokensBefore|a snapshot is made before its step"
  "draft-fault|src/engine/rank_loop.cc|s/if (token < certain) slot.fault = fault/slot.fault = fault/|draft_test|Drafts.FaultyOne_CountsOnceAccepted|a wrong draft spoils its sequence"
  "draft-fault-late|src/engine/rank_loop.cc|s/step.accepted > slot.sound_drafts/false/|draft_test|Drafts.FaultyOne_CountsOnceAccepted|an accepted draft's fault is forgotten"
  "draft-rows|src/engine/job_plan.cc|s/fitting, DecodedTokens(plan.limits)/fitting, plan.limits.sequences/|draft_test|Drafts.Plan_HasRoomForThem|no logits for the drafts"
  "limit-step|src/engine/scheduler.h|s/limits_.step_tokens = tokens;/static_cast<void>(tokens);/|scheduler_test|Scheduler.Scenarios_GoAsWritten|steps keep their length"
  "snapshot-own|src/engine/scheduler.cc|s/if (!cache_.has_free_snapshot() \&\& /if (false \&\& /|scheduler_test|Scheduler.Scenarios_GoAsWritten|a prompt keeps its first states"
  "seal-check|kernels/cpu/checksums.h|s/if (found == static_cast<uint64_t>(seal)) return;/return;/|seals_test|SealPart.AnyFlippedBit_OtherSealOrPlace_IsSeen|a wrong checksum is not seen"
  "seal-place|kernels/cpu/checksums.h|s/static_cast<uint64_t>(i) \* 0x9E3779B97F4A7C16u + 1/1/|seals_test|SealPart.AnyFlippedBit_OtherSealOrPlace_IsSeen|values may change places"
  "seal-next|comm/seals.h|s/void Next() { ++collective_; }/void Next() {}/|seals_test|Seals.AllRanksKnowAll_AndNoTwoAreEqual|the same seals for every collective"
  "guess-kept|src/engine/scheduler.cc|s/if (!right) tokens.resize(static_cast<size_t>(size));//|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|wrong guesses stay in the text"
  "guess-told|src/engine/scheduler.cc|s/std::exchange(sequence.accepted, 0)/0/|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|the ranks do not learn which guesses were right"
  "guess-page|src/engine/scheduler.cc|s/kPageTokens - 1 - in_page/kPageTokens - in_page/|scheduler_test|Scheduler.Scenarios_GoAsWritten|no state at the end of a page"
  "guess-limit|src/engine/scheduler.cc|s/std::min({most, room, useful/std::min({most, room, room/|scheduler_test|Scheduler.Scenarios_GoAsWritten|guesses of tokens that will not follow"
  "reading|src/engine/scheduler.cc|s/return alike > 0 .*/return false;/|scheduler_test|Scheduler.Scenarios_GoAsWritten|nobody waits for a prompt that is being read"
  "eviction|src/engine/prefix_cache.cc|s/  left.newer = -1;/  left.newer = -1; if (oldest_ >= 0) { node(index).older = -1; left.newer = oldest_; node(oldest_).older = index; oldest_ = index; ++idle_; return; }/|scheduler_test|Scheduler.Scenarios_GoAsWritten|what was used last goes first"
  "window-alloc|src/engine/scheduler.cc|s/  sequence.saved.clear();/  sequence.saved = {};/|steady_test|Steady.DecodeSteps_DoNotAllocate|a decode step takes memory"
  "stop-border|src/text/stop_strings.cc|s/= pattern.borders\[matched\];/= 0;/|text_test|StopStrings.RandomTextsCutInAllWays_AsAPlainSearch|a stop string that overlaps itself is missed"
  "stop-outer|src/text/stop_strings.cc|s/stop_ >= 0 \&\& certain_ >= stop_/stop_ >= 0/|text_test|StopStrings.OuterOneCounts_IfItComes|the stop string that ends first counts"
  "stop-moves|src/text/stop_strings.cc|s/2 \* unused_ > held_.size()/true/|text_test|StopStrings.LongOnesByteByByte_TakeLinearTime|held text moves at every byte"
  "cgroup-above|src/core/memory.cc|s/group.erase(.*/group.clear();/|memory_test|HostMemoryTest.Version2_LeastOfTheGroupsAbove|limits of the groups between are not seen"
  "pages-least|src/engine/fit_pages.cc|s/ranges::min_element/ranges::max_element/|memory_test|FitPages.TightestRankDecides|the roomiest rank decides"
  "pages-needed|src/engine/fit_pages.cc|s/return std::min(pages, plan.limits.pages);/return pages;/|memory_test|FitPages.TightestRankDecides|pages that nobody can use"
  "pages-agreed|src/engine/session.cc|s/control_.AllGather(mine)/std::vector<Bytes>{mine}/|memory_test|JobMemory.DifferentLimits_SamePages|each rank has the pages that fit there"
  "pages-kept|src/engine/session.cc|s/plan_.limits.pages, FitPages/[[maybe_unused]] const int64_t pages, FitPages/|memory_test|JobMemory.RanksHoldWhatThePlanSays|all pages are taken, fit or not"
  "most-sequences|src/engine/fit_pages.cc|s/options.snapshots \/ options.sequences \* n;/options.snapshots;/|memory_test|JobMemory.MostContextAndSequences_AreTheMost|more sequences have no more snapshots"
  "shard-tie|src/engine/candidate_exchange.cc|s/CandidateBefore(\*list.next, \*best->next)/list.next->key >= best->next->key/|sampler_test|Sampler.AnyShards_GiveWhatAPlainSamplerGives|the higher of two equal ids"
  "shard-sums|src/engine/candidate_exchange.cc|s/of_rank + skipped \* blocks/of_rank/|sampler_test|Sampler.AnyShards_GiveWhatAPlainSamplerGives|the sums of another row"
  "second-round|src/engine/sampler.cc|s/== result.candidates.size();/== result.candidates.size() + 1;/|sampler_test|Sampler.AnyShards_GiveWhatAPlainSamplerGives|a wide filter stops at the candidates"
  "second-round-job|src/engine/sampler.cc|s/== result.candidates.size();/== result.candidates.size() + 1;/|engine_test|Job.WideTopP_TakesTheSecondRound|the same, seen by the rows"
  "top-p-total|src/engine/sampler.cc|s/whole ? result.sum.sum :/whole ? SumOdds(kept) :/|sampler_test|Sampler.AnyShards_GiveWhatAPlainSamplerGives|top-p of the candidates, not of all tokens"
  "typical-side|src/engine/sampler.cc|s/(begin > 0 \&\& entropy/(begin > 0 or entropy/|sampler_test|Sampler.Filters_KeepExactlyTheirSet|likelier tokens before nearer ones"
  "min-tokens|src/engine/sampler.cc|s/text.prompt < params.min_tokens/text.prompt <= params.min_tokens/|sampler_test|Sampler.Changes_AreOneEntryAToken|one token too many before the end"
  "choice|kernels/gumbel.cc|s/static_cast<uint32_t>(choice)/static_cast<uint32_t>(choice * 0)/|sampler_test|Sampler.Draws_FollowTheSoftmaxAndAreIndependent|all choices draw the same"
  "choice-job|kernels/gumbel.cc|s/static_cast<uint32_t>(choice)/static_cast<uint32_t>(choice * 0)/|engine_test|Job.Choices_DrawOnTheirOwn|the same, seen by texts"
  "raw-logits|kernels/cpu/candidates.cc|s/best.Add({id, logits\[i\], key})/best.Add({id, 0 * logits[i] + values[i], key})/|engine_test|Job.Logprobs_AreTheLogSoftmaxOfTheLogits|log-probabilities know of bias and penalties"
  "padding-sum|kernels/cpu/candidates.cc|s/allowed\[begin + i\] != 0 ? logits\[begin + i\] : -INFINITY/logits[begin + i]/|sampler_test|Sampler.AnyShards_GiveWhatAPlainSamplerGives|padding counts in the sums"
  "prompt-cached|src/engine/scheduler.cc|s/end = all_scored ?/end = true ?/|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|tokens that are to be scored come from the cache"
  "prompt-rows|src/engine/scheduler.cc|s/limits_.logit_rows - std::ssize/limits_.logit_rows + std::ssize/|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|more rows than a step holds"
  "prompt-position|src/engine/scheduler.cc|s/sequence.guessed - (sequence.scored - 1)/sequence.guessed - sequence.scored/|scheduler_test|Scheduler.RandomRequests_AllEndAndGiveAllBack|a token is scored by its own logits"
  "prompt-kept|src/engine/scheduler.cc|s/      sequence.ended = events_.back().finish;/& if (sequence.ended == FinishReason::kNone) Keep(sequence);/|engine_test|Job.FaultyPrompt_IsNotKept|a good row vouches for tokens behind it"
  "supervisor-code|launcher/supervisor.cc|s/128 + WTERMSIG/WTERMSIG/|supervisor_test.py|Supervisor.test_ExitCode_IsTheJobs|the signal that killed a job as a plain exit code"
  "supervisor-terminal|launcher/supervisor.cc|s/setpgid(0, 0);//|supervisor_test.py|Supervisor.test_CtrlC_EndsARun_AndDrainsAService|the terminal ends a service"
  "supervisor-group|launcher/supervisor.cc|s/if (is_service()) {/if (true) {/|supervisor_test.py|Supervisor.test_JobOfTheForeground_HasStandardInputAndItsGroup|every job is cut off from the terminal"
  "supervisor-drain|launcher/supervisor.cc|/if (offer_.is_taken()) return Enter/d|supervisor_test.py|Supervisor.test_OneSignal_DrainsAService|no drain"
  "supervisor-once|launcher/supervisor.cc|s/kOneRequest{200}/kOneRequest{0}/|supervisor_test.py|Supervisor.test_OneSignal_DrainsAService|a signal that comes twice ends the drain"
  "supervisor-hole|comm/handover.cc|s/if (n == 0 .*) TakeBack();//|supervisor_test.py|Supervisor.test_OneSignal_DrainsAService|nobody answers once rank 0 has given the socket back"
  "supervisor-deadline|launcher/supervisor.cc|s/deadline_ = Clock::now() + patience;/static_cast<void>(patience);/|supervisor_test.py|Supervisor.test_SecondSignalOrTimeout_EndsTheDrain|a drain without an end"
  "supervisor-loading|launcher/supervisor.cc|s/if (offer_.is_taken()) return Enter/if (is_service()) return Enter/|supervisor_test.py|Supervisor.test_SignalWhileLoading_EndsAtOnce|a job that loads is to drain"
  "supervisor-kill|launcher/supervisor.cc|s/Stage::kKilling, SIGKILL/Stage::kKilling, SIGTERM/|supervisor_test.py|Supervisor.test_ThirdSignal_KillsAJobThatDoesNothing|never SIGKILL"
  "supervisor-death|launcher/supervisor.cc|/prctl(PR_SET_PDEATHSIG/d|supervisor_test.py|Supervisor.test_KilledSupervisor_LeavesNothing|mpirun outlives its supervisor"
  "supervisor-janitor|launcher/supervisor.cc|/StartJanitorOf(job_);/d|supervisor_test.py|Supervisor.test_KilledSupervisor_LeavesNothing|the folder of an mpirun that was killed early stays"
  "supervisor-usage|launcher/supervisor.cc|s/code != 0 \&\& code != kUsageCode/code != 0/|supervisor_test.py|Supervisor.test_NoRestart_WhenNotAskedForOrNotAFailure|a usage error is tried again"
  "supervisor-double|launcher/supervisor.cc|s/std::min(2 \* pause_, /std::min(pause_, /|supervisor_test.py|Supervisor.test_Pauses_Double|the same pause for ever"
  "supervisor-most|launcher/supervisor.cc|s/std::min(2 \* pause_, .*);/2 * pause_;/|supervisor_test.py|Supervisor.test_Pauses_HaveAMost_AndBeginAnewAfterALongJob|pauses without a most"
  "supervisor-settled|launcher/supervisor.cc|s/if (now - started_ >= plan_.settled) .*;//|supervisor_test.py|Supervisor.test_Pauses_HaveAMost_AndBeginAnewAfterALongJob|a long job does not count"
  "supervisor-both|launcher/supervisor.h|s/return !offer_.is_taken();/return true;/|supervisor_test.py|Supervisor.test_ServiceThatIsUp_AnswersAlone|503 from a service that is up"
  "supervisor-nobody|launcher/supervisor.cc|s/  offer_.TakeBack();//;s/stand_in_.Work(plan_.listener.fd(), stands_in()/stand_in_.Work(plan_.listener.fd(), false/|supervisor_test.py|Supervisor.test_KilledService_ComesBack|nobody answers while there is no job"
  "supervisor-leak|launcher/stand_in.cc|s/  if (n == 0) return false;/  if (n == 0) return true;/;s/if (Clock::now() >= client.deadline) return false;//|supervisor_test.py|Supervisor.test_KilledService_ComesBack|clients that have gone are kept"
  "supervisor-linger|launcher/stand_in.cc|s/return sent == .*;/return sent < 0;/|supervisor_test.py|Supervisor.test_SlowClients_HinderNobody|closed before the client has the answer"
  "supervisor-head|launcher/stand_in.cc|s/kHeadTimeout{5}/kHeadTimeout{50}/|supervisor_test.py|Supervisor.test_SlowClients_HinderNobody|a silent client is kept"
  "supervisor-fields|launcher/stand_in.cc|s/Retry-After: 1/Retry-After: x/|supervisor_test.py|Supervisor.test_HeadOfTheAnswer|a malformed Retry-After"
  "fabric-rounds|comm/fabric_check.cc|s/if (vote.element < 0) Compare/if (round == 0) Compare/|fabric_test|FabricCheck.WrongOnceInTheLastRound_IsSeen|the first round alone is compared"
  "fabric-vote|comm/fabric_check.cc|s/control.AllGather(\(.*\));/{control.AllGather(\1)[0]};/|fabric_test|FabricCheck.ResultWrongOnOneRank_AllRanksNameIt|only rank 0 has a vote"
  "fabric-stale|comm/fabric_check.cc|s/static_cast<uint64_t>(collective) << 16/static_cast<uint64_t>(collective * 0) << 16/|fabric_test|FabricCheck.StaleContribution_IsSeen|every collective has the same data"
  "fabric-end|comm/fabric_check.cc|s/expected, static_cast<size_t>(expected_bytes_)) == 0/expected, static_cast<size_t>(expected_bytes_) \/ 2) == 0/|fabric_test|FabricCheck.EndsOfTheData_AreCompared|half of the data is compared"
  "fabric-order|comm/fabric_check.cc|s/kFractions = 0x807FFFFF'807FFFFFu/kFractions = 0x80400000'80400000u/|fabric_test|FabricCheck.Float32_HasAllBitsAndTheOrderOfRanks|sums of floats are exact in any order"
  "fabric-slow|comm/fabric_check.cc|s/if (fastest > Limit/if (test->microseconds > Limit/|fabric_test|FabricCheck.SlowOnce_IsNotSlow|slow by its median"
  "fabric-worst|comm/fabric_check.cc|s/fastest = std::max(fastest, votes\[rank\].fastest)/fastest = votes[0].fastest/|fabric_test|FabricCheck.SlowOnOneRank_IsSlowWithItsTime|slow by rank 0 alone"
  "fabric-containers|comm/shared_memory.cc|s/file_system != ranks\[0\].file_system/file_system == 1/|fabric_test|SharedMemory.WhatSpeaksAgainstIt_IsNamedWithItsRemedy|containers of their own are not seen"
)

is_wanted() { ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $1 "* ]]; }

# Whether the program's test FAILS as a test, or is stopped by a TRINE_CHECK; another crash or a test
# that does not exist is neither.
fails() {
  local log=$folder/test.log
  if [[ $1 == *.py ]]; then
    ! python3 "$tree/tests/$1" "$build/trine" "$2" >"$log" 2>&1 || return 1
    grep -q '^FAILED (' "$log" && return 0
    tail -n 20 "$log" >&2
    exit 1
  fi
  "$build/tests/$1" --gtest_filter="$2" >"$log" 2>&1 || true
  grep -qF "[  PASSED  ] 1 test." "$log" && return 1
  grep -qF "[  FAILED  ] $2" "$log" && return 0
  grep -qE '^\.\./tree/[^ ]+:[0-9]+: ' "$log" && return 0
  tail -n 20 "$log" >&2
  echo "mutants: $1 neither passed nor failed $2" >&2
  exit 1
}

# A test in Python runs programs.
compile() {
  local targets=("$1")
  [[ $1 != *.py ]] || targets=(trine stub_service)
  cmake --build "$build" --target "${targets[@]}" >"$folder/build.log" 2>&1
}

mkdir -p "$tree"
# Written as of now: what was built of an earlier run's mistakes is older.
git ls-files -z | tar --null -T - -cf - | tar -xmf - -C "$tree"
options=(-DTRINE_WERROR=OFF)
! command -v ccache >/dev/null || options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S "$tree" -B "$build" -G Ninja "${options[@]}" >"$folder/build.log"

survived=0
printf '%-18s %-8s %-68s %s\n' mutant result test mistake
for entry in "${mutants[@]}"; do
  IFS='|' read -r name file script program test mistake <<<"$entry"
  is_wanted "$name" || continue
  compile "$program"
  ! fails "$program" "$test" || { echo "mutants: $test fails without a mistake" >&2; exit 1; }
  sed -i "$script" "$tree/$file"
  ! cmp -s "$file" "$tree/$file" || { echo "mutants: $name changes nothing" >&2; exit 1; }
  if ! compile "$program"; then
    tail -n 20 "$folder/build.log" >&2
    exit 1
  fi
  if fails "$program" "$test"; then result=caught; else result=SURVIVED survived=1; fi
  cp "$file" "$tree/$file" # younger than what was built of the mistake
  printf '%-18s %-8s %-68s %s\n' "$name" "$result" "$test" "$mistake"
done
exit "$survived"
