#!/usr/bin/env python3
"""Speed of N ranks with one thread each beside one rank with N threads: the same cores.

    tests/bench/ranks.py MODEL [--trine build/trine] [--np 2] [--rounds 9] [-p 128] [-n 16]

Every round runs both, which is first alternates. Printed are the medians of tokens per second and
of the rounds' ratios, and how even the shares are: the mean of the ranks' weights over the largest.
Ranks wait for each other after every block, so where those are cut less evenly than the whole (FFN
channels in rotation blocks: 9 and 8 of 17) the bound is lower. Let nothing else run.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)


def evenness(options):
    plan = run(options.trine, "plan", "-m", options.model, "--np", str(options.np), "--json")
    shares = [rank["weights_bytes"] for rank in plan["ranks"]]
    return sum(shares) / (options.np * max(shares))


def speeds(options, ranks, threads):
    rows = run(options.trine, "bench", "--np", str(ranks), "-t", str(threads), "-m", options.model,
               "-p", str(options.p), "-n", str(options.n), "-r", "1", "-o", "json")
    return {row["test"]: row["tokens_per_second"] for row in rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--trine", default=ROOT / "build" / "trine")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-p", type=int, default=128)
    parser.add_argument("-n", type=int, default=16)
    options = parser.parse_args()
    kinds = [(1, options.np), (options.np, 1)]
    rounds = []
    for i in range(options.rounds):
        order = kinds if i % 2 == 0 else kinds[::-1]
        rounds.append({kind: speeds(options, *kind) for kind in order})
    print(f"shares of the weights: {evenness(options):.3f} even")
    for test in rounds[0][kinds[0]]:
        one, many = ([r[kind][test] for r in rounds] for kind in kinds)
        ratios = sorted(b / a for a, b in zip(one, many))
        print(f"{test}: 1 x {options.np} threads {statistics.median(one):.2f} t/s, {options.np} x 1 "
              f"{statistics.median(many):.2f}, ratio {statistics.median(ratios):.3f} "
              f"({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
