#!/usr/bin/env python3
"""Tokens per second of trine and of llama.cpp on the CPU: the same files, in the same minutes.

    tests/bench/against_llama_cpp.py [--llama-bench PATH] [--trine build/trine] [--rounds 9]
                                     [--threads 1 2] [--only WORD ...] [-p 512] [-n 32]

Every round runs both programs on each file at each number of threads, one right after the other;
which is first alternates. Each loads the model and runs each test once to warm up and once for the
clock: prefill of one batch (pp), decode from an empty context (tg). Trine's times include the
choice of the token, those of llama-bench do not. Printed are medians of the rounds and of their
ratios; the latter bear a busy machine better, yet let nothing else run.

Files are made once, in the folder TRINE_MODELS or models/, 1.8 GB: SmolLM2-135M from PyPI, and
random ternary weights in the exact shape of Bonsai 1.7B and of 8 of the 36 layers of Bonsai 8B.

llama-bench is found in PATH, or built from the source package of llama-cpp-python:

    pip download --no-binary :all: --no-deps llama-cpp-python && tar xzf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B llama -DCMAKE_BUILD_TYPE=Release \\
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \\
      -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF
    cmake --build llama --target llama-bench         # llama/bin/llama-bench
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / os.environ.get("TRINE_MODELS", "models")
SMOL = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Case(NamedTuple):
    file: str
    make: list  # arguments of trine before the file's name; none: fetched
    prefill: bool


def synth(preset, name, kind, prefill, *options):
    return Case(f"synth-{name}-{kind}.gguf",
                ["synth", "--preset", preset, "--type", kind, *options, "-o"], prefill)


CASES = {
    "Bonsai 1.7B TQ2_0": synth("ternary-bonsai-1.7b", "1.7b", "tq2_0", True),
    "Bonsai 1.7B TQ1_0": synth("ternary-bonsai-1.7b", "1.7b", "tq1_0", False),
    "Bonsai 8B, 8 layers, TQ2_0": synth("ternary-bonsai-8b", "8b-8", "tq2_0", False,
                                        "--layers", "8"),
    "SmolLM2-135M Q4_1": Case(SMOL.name, [], True),
    "SmolLM2-135M Q8_0": Case("SmolLM2-135M-Instruct.Q8_0.gguf",
                              ["convert", "--type", "q8_0", SMOL], True),
}


def call(*command):
    """What a command says on stdout. trine's options come from the command line alone."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("TRINE_")}
    done = subprocess.run([str(word) for word in command], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(str(word) for word in command)}\n{done.stderr}")
    return done.stdout


def provide(cases, trine):
    """Files of the cases that are not there yet. trine writes none that is incomplete."""
    if any("SmolLM2" in name for name in cases):
        subprocess.run(["bash", "-c", "source launcher/setup.sh && fetch_model"], cwd=ROOT,
                       stdout=sys.stderr, check=True)
    for case in cases.values():
        if not (MODELS / case.file).exists():
            call(trine, *case.make, MODELS / case.file)


def lengths(case, options):
    return ["-p", options.prompt if case.prefill else 0, "-n", options.generate, "-r", 1]


def run_trine(case, threads, options):
    """Test -> tokens per second."""
    rows = json.loads(call(options.trine, "bench", "-m", MODELS / case.file, "-t", threads,
                           *lengths(case, options), "-o", "json"))
    return {row["test"]: row["tokens_per_second"] for row in rows}


def run_llama(case, threads, options):
    rows = json.loads(call(options.llama_bench, "-m", MODELS / case.file, "-t", threads,
                           *lengths(case, options), "-o", "json", "-ngl", 0))
    return {f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}": row["avg_ts"]
            for row in rows}


def measure(cases, options):
    """(case, test, threads) -> [(trine, llama.cpp)], one pair a round."""
    found = {}
    for i in range(options.rounds):
        for name, case in cases.items():
            for threads in options.threads:
                programs = [run_trine, run_llama]
                speeds = {run: run(case, threads, options)
                          for run in (programs if i % 2 == 0 else programs[::-1])}
                for test, speed in speeds[run_trine].items():
                    pair = speed, speeds[run_llama][test]
                    found.setdefault((name, test, threads), []).append(pair)
        print(f"round {i + 1} of {options.rounds}", file=sys.stderr)
    return found


def print_versions(case, options):
    commit = call("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    print(f"{call(options.trine, '--version').strip()}, sources at {commit}")
    row, = json.loads(call(options.llama_bench, "-m", MODELS / case.file, "-p", 1, "-n", 0, "-r", 1,
                           "-o", "json"))
    print(f"llama.cpp: build {row['build_number']} ({row['build_commit']}), {row['backends']}")
    print(f"{row['cpu_info']}, {os.cpu_count()} cores; "
          f"{os.getloadavg()[0]:.1f} processes ran in the minute before")


def print_table(found):
    print("\n| file | test | threads | trine t/s | llama.cpp t/s | ratio | ratios |")
    print("|---|---|---|---|---|---|---|")
    for (name, test, threads), pairs in found.items():
        trine, llama = (statistics.median(speeds) for speeds in zip(*pairs))
        ratios = sorted(a / b for a, b in pairs)
        print(f"| {name} | {test} | {threads} | {trine:.2f} | {llama:.2f} "
              f"| {statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", default="llama-bench")
    parser.add_argument("--trine", type=Path, default=ROOT / "build/trine")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[""], help="files with a word in the name")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of prefill")
    parser.add_argument("-n", "--generate", type=int, default=32, help="tokens of decode")
    options = parser.parse_args()
    for program in (options.trine, options.llama_bench):
        if shutil.which(program) is None:
            parser.error(f"{program} is no program; how to build llama-bench: --help")
    cases = {name: case for name, case in CASES.items()
             if any(word in name for word in options.only)}
    if not cases:
        parser.error(f"no file has {' or '.join(options.only)} in its name: {', '.join(CASES)}")
    provide(cases, options.trine)
    print_versions(next(iter(cases.values())), options)
    print_table(measure(cases, options))


if __name__ == "__main__":
    main()
