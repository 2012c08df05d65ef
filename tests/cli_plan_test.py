"""What a job would hold, from headers alone."""
import json

import cli


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


if __name__ == "__main__":
    cli.main()
