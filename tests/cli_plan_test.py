"""What a job would hold, from headers alone, and what it does hold."""
import json
import re

import cli
from cli import TINY

QWEN3 = TINY / "qwen3_f32.gguf"
DEMO = TINY.parent / "demo" / "demo-PTQ1_0.gguf"


class Plan(cli.VerbCase):
    BONSAI = ("plan", "--preset", "ternary-bonsai-2-27b", "--type", "ptq1_0")

    def plan(self, *options):
        return json.loads(self.good(*self.BONSAI, "--json", *options))

    def test_Bonsai27B_EveryByteOnce(self):
        """Every tensor is on the ranks once, but for what is streamed and what is replicated."""
        for np in range(1, 9):
            plan = self.plan("--np", str(np))
            ranks = plan["ranks"]
            self.assertEqual([rank["rank"] for rank in ranks], list(range(np)))
            self.assertEqual(plan["weights_bytes"], 5_935_527_936)
            self.assertEqual(plan["streamed_bytes"], 248320 * 5120 // 128 * 28)
            self.assertEqual(plan["valid_np"], list(range(1, 17)))
            held = sum(rank["weights_bytes"] for rank in ranks)
            extra = held - (plan["weights_bytes"] - plan["streamed_bytes"])
            shared = sum(rank["replicated_bytes"] for rank in ranks)
            self.assertLessEqual(extra, shared)
            self.assertGreaterEqual(np * extra, (np - 1) * shared // 2)
            self.assertEqual(sum(rank["state_bytes"] for rank in ranks), 150_994_944 + 5_898_240)
            self.assertEqual(plan["total_bytes"], sum(rank["total_bytes"] for rank in ranks))

    def test_KvBytes_AreThoseOfTheHeads(self):
        one, eight = (self.plan("--np", np, "-c", "1024")["ranks"] for np in ("1", "8"))
        self.assertEqual(one[0]["kv_bytes"], 1024 * 65536)
        self.assertEqual({rank["kv_bytes"] for rank in eight}, {1024 * 16384})
        for options, bytes_of_32 in ((["-ctk", "f32"], 128), (["-ctk", "q8_0", "-ctv", "q8_0"], 34)):
            plan = self.plan("-c", "1024", *options)
            self.assertEqual(plan["ranks"][0]["kv_bytes"], 1024 * 65536 // 64 * bytes_of_32)

    def test_TooManyRanks_SaysHowMany(self):
        outcome = cli.trine(*self.BONSAI, "--np", "17")
        self.assertEqual(outcome.code, 1)
        self.assertEqual(outcome.lines("trine: "), [
            "trine: ternary-bonsai-2-27b: attn_qkv: 16 key heads cannot be shared by 17 ranks; "
            "use 1 to 16 ranks"])

    def test_SharedKvHeads_CountOnEveryRankThatHasThem(self):
        """At three ranks the middle one shares a KV head with either neighbour."""
        shared = [rank["replicated_bytes"] for rank in self.plan("--np", "3")["ranks"]]
        kv_head = 16 * 2 * 256 * 5120 // 128 * 28  # of attn_k and attn_v in 16 layers
        self.assertEqual((shared[0], shared[1]), (shared[2], shared[0] + kv_head))

    def test_NeitherModelNorPreset_IsUsage(self):
        self.assertEqual(cli.trine("plan", "--np", "2").code, 2)

    def test_LargestContext_FitsAndNoMoreDoes(self):
        for np, memory in ((1, "9GB"), (2, "6GB"), (3, "5GB")):
            ranks = ("--np", np, "--memory", memory, "--memory-fraction", 1)
            for options in ((), ("-ctk", "q8_0"), ("--parallel", 4, "--ctx-checkpoints", 2)):
                with self.subTest(np=np, options=options):
                    most = self.plan(*ranks, *options)["max_context"]
                    self.assertGreater(most, 4096)
                    plan = self.plan(*ranks, *options, "-c", most)
                    self.assertTrue(plan["fits"])
                    for rank in plan["ranks"]:
                        self.assertLessEqual(rank["total_bytes"], rank["available_bytes"])
                    self.assertFalse(self.plan(*ranks, *options, "-c", most + 32)["fits"])

    def test_MostSequences_AreInTheCacheInFull(self):
        for np, memory in ((1, "12GB"), (2, "7GB")):
            ranks = ("--np", np, "--memory", memory, "--memory-fraction", 1)
            for options in ((), ("--kv-memory", "1GB"), ("--ctx-checkpoints", 1)):
                with self.subTest(np=np, options=options):
                    most = self.plan(*ranks, *options)["max_sequences"]
                    self.assertGreater(most, 1)
                    for sequences in (most, most + 1):
                        plan = self.plan(*ranks, *options, "--parallel", sequences)
                        self.assertTrue(plan["fits"])  # if not all at once
                        self.assertEqual(plan["kv_tokens"] == sequences * 4096, sequences == most)

    def test_WhatDoesNotFit_IsShown(self):
        text = self.good(*self.BONSAI, "--memory", "6GB", "-c", 0)
        self.assertRegex(text, r"\neach rank may take 5\.40 GB: a context of up to 0 tokens, or 0 "
                         r"sequence\(s\) of 262144\ndoes not fit: the model needs 2\d\.\d\d GB for "
                         r"a context of 262144 tokens \(17\.18 GB of KV cache, [56]\.\d\d GB beside it\) "
                         r"of the 5\.40 GB that it may take; use ranks on more hosts or a larger "
                         r"--memory-fraction\n$")
        plan = self.plan("--memory", "6GB", "--gpu-memory-utilization", 0.5)
        self.assertFalse(plan["fits"])
        self.assertEqual({rank["available_bytes"] for rank in plan["ranks"]}, {3_000_000_000})
        self.assertEqual((plan["max_context"], plan["max_sequences"]), (0, 0))


class KvCache(cli.VerbCase):
    """The cache that a run takes, as it says at its start, against the plan."""

    def run_model(self, model, *options, prompts=("x",), **how):
        """The text and the (tokens, sequences, context) of the cache."""
        given = [word for prompt in prompts for word in ("-p", prompt)]
        outcome = cli.trine("run", "-m", model, "--temp", 0, *given, *options, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        line, = outcome.lines("  KV cache: ")
        return outcome.out, [int(number) for number in re.findall(r"\d+", line)]

    def test_Run_TakesWhatThePlanSays(self):
        for options, parallel, sequences in (
                ((), (), 3), (("-c", 64), (), 3), (("-c", 64, "--kv-memory", "250KB"), (), 3),
                ((), ("--parallel", 2), 2), ((), ("--max-num-seqs", 8), 3),
                (("-ctk", "q8_0", "--kv-memory", "400KB"), ("--parallel", 2), 2)):
            for np in (1, 3):
                with self.subTest(options=options, parallel=parallel, np=np):
                    _, cache = self.run_model(QWEN3, *options, *parallel, "-n", 2, np=np,
                                              prompts=["one", "two", "three"])
                    plan = json.loads(self.good("plan", "--json", "-m", QWEN3, "--np", np, *options,
                                                "--parallel", sequences))
                    self.assertEqual(cache, [plan["kv_tokens"], sequences, plan["context"]])
                    if np == 1:
                        self.assertEqual(cache[0] < sequences * cache[2],
                                         "--kv-memory" in options)

    def test_SmallCache_SameTexts(self):
        """More text than it holds: some wait, some are computed anew."""
        prompts = [f"{i}. " + "The history of the north of the country, and of the south. " * 8
                   for i in range(4)]
        options = ("-n", 60, "-c", 512, "-ctk", "f16")
        roomy, cache = self.run_model(DEMO, *options, prompts=prompts)
        self.assertEqual(cache, [2048, 4, 512])
        alone = b"".join(self.run_model(DEMO, *options, prompts=[one])[0] for one in prompts)
        self.assertEqual(roomy, alone)
        plan = json.loads(self.good("plan", "--json", "-m", DEMO, "-c", 512))
        size = f"{plan['ranks'][0]['kv_bytes'] // 800}KB"  # a quarter more than one has
        for more in ((), ("--parallel", 2), ("--ctx-checkpoints", 2)):
            for np in (0, 2):
                with self.subTest(more=more, np=np):
                    text, cache = self.run_model(DEMO, *options, "--kv-memory", size, *more,
                                                 prompts=prompts, np=np)
                    self.assertLess(cache[0], 1500)
                    self.assertEqual(text, alone)

    def test_Perplexity_InASmallCache_SameFigures(self):
        """As many windows at once as fit: of 8 that a step could hold, two and a half."""
        page = json.loads(self.good("plan", "--json", "-m", DEMO, "-c", 32))["ranks"][0]["kv_bytes"]
        measure = ("perplexity", "-m", DEMO, "-f", DEMO.parent / "heldout.txt", "-c", 64, "-b", 512,
                   "--chunks", 12, "--json")
        found = [json.loads(self.good(*measure, *options))
                 for options in ((), ("--kv-memory", f"{5 * page // 1000 + 1}KB"))]
        self.assertEqual(found[0], found[1])


if __name__ == "__main__":
    cli.main()
