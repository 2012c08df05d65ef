"""Who may include whom: checks the tree, or the copy of it that is named. With --bites: checks
that every rule, broken on a copy, is seen to be broken."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

OURS = ("kernels", "comm", "src", "launcher", "tests")

# Files under -> what of ours they may include. The longest match counts; no match is an error.
ALLOWED = {
    "kernels/": ["kernels/"],
    "comm/": ["comm/"],
    "src/core/": ["src/core/", "comm/status.h"],
    "src/text/": ["src/text/", "src/core/"],
    "src/weights/": ["src/weights/", "src/core/", "kernels/backend.h", "kernels/tensor.h",
                     "kernels/formats.h", "kernels/formats/"],
    "src/models/": ["src/models/", "src/core/", "src/weights/", "kernels/backend.h",
                    "kernels/tensor.h", "comm/communicator.h", "comm/seals.h"],
    "src/engine/": ["src/engine/", "src/core/", "src/text/", "src/weights/", "src/models/",
                    "kernels/backend.h", "kernels/tensor.h", "kernels/gumbel.h",
                    "kernels/log_sum_exp.h",
                    "comm/communicator.h", "comm/control.h", "comm/world.h", "comm/status.h",
                    "comm/progress.h", "comm/sealed_gather.h"],
    "src/eval/": ["src/eval/", "src/core/", "kernels/log_sum_exp.h"],
    "src/synth/": ["src/synth/", "src/core/", "src/text/", "src/weights/", "kernels/tensor.h",
                   "kernels/formats.h", "kernels/formats/"],
    "src/convert/": ["src/convert/", "src/core/", "src/text/", "src/weights/", "src/models/",
                     "kernels/backend.h", "kernels/tensor.h"],
    "src/commands/": ["src/", "comm/communicator.h", "comm/control.h", "comm/fabric_check.h",
                      "comm/world.h"],
    "launcher/": ["launcher/", "src/", "comm/"],
    "tests/": ["tests/", "launcher/", "src/", "kernels/", "comm/"],
}

# Headers of others -> the only files that may include them.
EXTERNAL = {
    r"mpi(-ext)?\.h$": ["comm/mpi.cc", "comm/shm.cc", "launcher/"],
    r"(cuda|cu(blas|rand|sparse|fft)|nv(ml|rtc|toolsext|tx3)|nccl|cub/|thrust/|"
    r"cooperative_groups|device_launch_parameters|mma\.h)": ["kernels/cuda/", "comm/nccl.cc",
                                                             "comm/peer_memory.cu"],
}

# One forbidden include a rule: in a file under the first, the second.
BREAKS = """
kernels/       "src/core/result.h"          kernels/       "comm/status.h"
kernels/cpu/   <cuda_runtime.h>             comm/          "kernels/half.h"
comm/          "src/core/check.h"           comm/threads   <mpi.h>
comm/mpi.cc    <nccl.h>                     src/core/      "comm/world.h"
src/core/      "kernels/tensor.h"           src/text/      "kernels/tensor.h"
src/text/      "src/weights/weight_store.h" src/weights/   "kernels/half.h"
src/weights/   "src/models/model.h"         src/weights/   "comm/communicator.h"
src/models/    "kernels/formats.h"          src/models/    "comm/control.h"
src/models/    "src/engine/session.h"       src/models/    "tests/job.h"
src/engine/    "kernels/cpu/panels.h"       src/engine/    "comm/mpi.h"
src/engine/    "src/commands/commands.h"    src/engine/    <mpi.h>
src/engine/    "../../comm/mpi.h"           src/commands/  "kernels/backend.h"
src/commands/  "launcher/cli.h"             src/new_part/  "src/core/result.h"
src/convert/   "src/engine/session.h"       src/convert/   "kernels/formats.h"
src/synth/     "src/models/model.h"         src/weights/   "src/synth/preset.h"
launcher/      "kernels/backend.h"          launcher/      "tests/job.h"
launcher/      <cuda.h>                     tests/         <mpi.h>
src/eval/      "src/engine/session.h"       src/engine/    "src/eval/token_score.h"
""".split()


def sources(root):
    for top in OURS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".cu", ".cuh", ".cpp")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def permitted(root, path, include):
    name = include[1:-1]
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if include[0] == '"' and os.path.exists(os.path.join(root, beside)):
        name = beside
    if name.startswith(tuple(top + "/" for top in OURS)):
        rows = [row for row in ALLOWED if path.startswith(row)]
        return bool(rows) and name.startswith(tuple(ALLOWED[max(rows, key=len)]))
    return all(path.startswith(tuple(users)) for header, users in EXTERNAL.items()
               if re.match(header, name, re.IGNORECASE))


def check(root):
    errors = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                found = re.match(r'\s*#\s*include\s*(<.+?>|".+?")', line)
                if found and not permitted(root, path, found[1]):
                    errors.append(f"{path}:{number}: must not include {found[1]}")
    return errors


def bites(root):
    """Every break alone, on a copy, must be found by this script run as a program."""
    missed = 0
    with tempfile.TemporaryDirectory() as copy:
        for top in OURS:
            shutil.copytree(os.path.join(root, top), os.path.join(copy, top),
                            ignore=shutil.ignore_patterns("data", "__pycache__"))
        for place, include in zip(BREAKS[::2], BREAKS[1::2]):
            path = next((p for p in sources(copy) if p.startswith(place)), place + "new.cc")
            full = os.path.join(copy, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "a+", encoding="utf-8") as file:
                size = file.tell()
                file.write(f"\n#include {include}\n")
                file.flush()
                run = subprocess.run([sys.executable, __file__, copy], capture_output=True,
                                     text=True, check=False)
                file.truncate(size)
            if run.returncode != 1 or f"must not include {include}\n" not in run.stdout:
                print(f"{path} may include {include}")
                missed += 1
    print(f"{len(BREAKS) // 2 - missed} of {len(BREAKS) // 2} forbidden includes found")
    return missed


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.argv[1:] == ["--bites"]:
        return 1 if bites(root) else 0
    errors = check(sys.argv[1] if len(sys.argv) > 1 else root)
    print("\n".join(errors) or "includes are right")
    return 1 if errors else 0


sys.exit(main())
