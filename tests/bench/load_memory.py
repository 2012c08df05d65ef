#!/usr/bin/env python3
"""Load time against a plain read of the same files, and memory against the plan, of a real model.

    tests/bench/load_memory.py MODEL [--np 1 2] [--runs 3] [--trine build/trine]

Alternated, medians. Plain read: the whole file in reads of 4 MiB by two threads, its pages dropped
from the cache before, as before each load; once into one buffer, once into memory that is kept, as a
loader has to. Load: what trine says ("loaded ... in ... s": headers,
tokenizer, weights). Memory: the peak of anonymous and shared memory of all ranks while 192 tokens
of a context of 256 are prefilled and some generated, less that of a rank with a tiny model, against
the total of `trine plan`.
"""
import argparse
import json
import mmap
import os
import re
import statistics
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/data/tiny/qwen35_a_rot_pq2_0.gguf"
CHUNK = 4 << 20
OPTIONS = ["-p", "192", "-n", "8", "-r", "1", "-c", "256"]


def files_of(model):
    return sorted(model.glob("*.safetensors")) if model.is_dir() else [model]


def size_of(model):
    return sum(path.stat().st_size for path in files_of(model))


def drop(model):
    for path in files_of(model):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(model, keep):
    drop(model)
    return sum(read_file(path, keep) for path in files_of(model))


def read_file(path, keep):
    size, threads = path.stat().st_size, 2
    kept = mmap.mmap(-1, size if keep else threads * CHUNK)
    kept.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(kept)

    def part(index):
        with open(path, "rb", buffering=0) as file:
            at, end = size * index // threads, size * (index + 1) // threads
            file.seek(at)
            while at < end:
                begin = at if keep else index * CHUNK
                at += file.readinto(view[begin:begin + min(CHUNK, end - at)])

    start = time.monotonic()
    parts = [threading.Thread(target=part, args=(i,)) for i in range(threads)]
    for thread in parts:
        thread.start()
    for thread in parts:
        thread.join()
    return time.monotonic() - start


def memory(pid):
    """Anonymous and shared bytes of a process, each shared page counted by its share."""
    try:
        fields = dict(re.findall(r"^(\w+): +(\d+) kB$",
                                 Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return 1024 * (int(fields["Pss_Anon"]) + int(fields["Pss_Shmem"]))


def ranks_of(job, trine):
    """The job itself and what it started, as far as they are ranks."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            same = os.path.samefile(f"/proc/{name}/exe", trine)
        except (OSError, IndexError):
            continue
        if same and (int(name) == job.pid or int(stat[1]) == job.pid):
            found.append(int(name))
    return found


def run(trine, model, np):
    """(seconds to load, peak bytes of all ranks, prefill and decode tokens per second)"""
    command = [trine, "bench", "-m", model, "--np", str(np), "-o", "json", *OPTIONS]
    job = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    peak, done = 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, sum(memory(pid) for pid in ranks_of(job, trine)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = job.communicate()
    done.set()
    watcher.join()
    if job.returncode != 0:
        raise SystemExit(err)
    loaded = float(re.search(r"loaded .* MB in ([\d.]+) s", err)[1])
    return loaded, peak, [row["tokens_per_second"] for row in json.loads(out)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--np", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trine", type=Path, default=ROOT / "build/trine")
    args = parser.parse_args()
    print(f"{args.model.name}, {size_of(args.model) / 1e6:.1f} MB")
    for np in args.np:
        plan = json.loads(subprocess.run(
            [args.trine, "plan", "-m", args.model, "--np", str(np), "-c", "256", "--json"],
            capture_output=True, text=True, check=True).stdout)
        base = run(args.trine, TINY, np)[1]
        reads, kept, loads, peaks, speeds = [], [], [], [], []
        for _ in range(args.runs):
            reads.append(plain_read(args.model, keep=False))
            kept.append(plain_read(args.model, keep=True))
            drop(args.model)
            load, peak, speed = run(args.trine, args.model, np)
            loads.append(load)
            peaks.append(peak - base)
            speeds.append(speed)
        read, load = statistics.median(reads), statistics.median(loads)
        keep = statistics.median(kept)
        peak, planned = statistics.median(peaks), plan["total_bytes"]
        prefill, decode = (statistics.median(column) for column in zip(*speeds))
        print(f"np={np}: read {read:.2f} s, read and kept {keep:.2f} s, load {load:.2f} s, ratios "
              f"{load / read:.2f} and {load / keep:.2f}; "
              f"plan {planned / 1e6:.0f} MB, grown by {peak / 1e6:.0f} MB, "
              f"ratio {peak / planned:.3f}; prefill {prefill:.2f} t/s, decode {decode:.2f} t/s")
        for name, seconds in (("read", reads), ("kept", kept), ("load", loads)):
            print(f"  {name}", " ".join(f"{s:.2f}" for s in seconds))


if __name__ == "__main__":
    main()
