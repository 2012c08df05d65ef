"""What the command line tests share: starting trine on one rank, by its own --np and under mpirun,
with a deadline; a reader of GGUF headers that owes nothing to trine's; the models they use.

A test file is run as `python3 FILE [PATH OF TRINE] [unittest's arguments]`. TRINE_MODELS names the
folder of real models, as it does for the C++ tests.
"""
import atexit
import collections
import dataclasses
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

TESTS = pathlib.Path(__file__).resolve().parent
TINY = TESTS / "data" / "tiny"
MODELS = pathlib.Path(os.environ.get("TRINE_MODELS", TESTS.parent / "models"))
SMOL = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
TRINE = str(TESTS.parent / "build" / "trine")

DEADLINE_S = 10
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ALONE, SELF, MPI = "one rank", "--np 3", "mpirun -np 3"


@dataclasses.dataclass
class Outcome:
    code: int
    out: bytes
    err: str
    seconds: float

    def lines(self, prefix):
        return [line for line in self.err.splitlines() if line.startswith(prefix)]

    @property
    def errors(self):
        return [line for line in self.lines("trine: ") if not line.startswith("trine: warning: ")]


def environment(extra=None):
    """This one without its TRINE_ variables, which are options, and with root allowed."""
    ours = ("TRINE_", "OMPI_MCA_", "PRTE_MCA_")  # what the tests set is set here
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
        env[name] = env[name + "_CONFIRM"] = "1"
    env["OMPI_MCA_orte_execute_quiet"] = "1"  # mpirun's own account of a rank that failed
    env["OMPI_MCA_odls_base_sigkill_timeout"] = "0"  # its second of grace for the other ranks
    return {**env, **(extra or {})}


def start(command, extra=None, stdin=subprocess.DEVNULL, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([str(word) for word in command], env=environment(extra), stdin=stdin,
                            start_new_session=True, **options)


def describe(parent):
    """A line for a process and for each of its children: what it is and where it waits."""
    lines = ""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text().rsplit(")", 1)
            state, above = fields.split()[:2]
            if parent in (int(above), int(folder.name)):
                lines += f"{name}) {state} {(folder / 'wchan').read_text()}\n"
        except OSError:
            continue  # it has just ended
    return lines


def end(process):
    """mpirun ends its ranks if it is asked politely."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def execute(command, extra=None, text=None, deadline=DEADLINE_S, **options):
    """Runs to the end; a command that has not ended by then is a failure of the test."""
    begin = time.monotonic()
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    process = start(command, extra, stdin, **options)
    try:
        out, err = process.communicate(text, timeout=deadline)
    except subprocess.TimeoutExpired:
        state = describe(process.pid)
        end(process)
        _, err = process.communicate()
        raise AssertionError(f"no end after {deadline} s: {' '.join(map(str, command))}\n{state}"
                             f"{(err or b'').decode(errors='replace')}") from None
    return Outcome(process.returncode, out or b"", (err or b"").decode(errors="replace"),
                   time.monotonic() - begin)


def trine(*arguments, np=0, mpirun=0, extra=None, **options):
    """np: trine's own --np; mpirun: ranks under a plain mpirun; neither: one rank."""
    verb, rest = arguments[0], arguments[1:]
    if mpirun > 0:
        command = [*MPIRUN, "-np", mpirun, TRINE, verb, *rest]
    else:
        command = [TRINE, verb, *(["--np", np] if np > 0 else []), *rest]
    return execute(command, extra, **options)


def launch(launcher, *arguments, **options):
    ranks = {ALONE: {}, SELF: {"np": 3}, MPI: {"mpirun": 3}}[launcher]
    return trine(*arguments, **ranks, **options)


def in_parallel(function, items, workers=12):
    """Starting MPI is mostly waiting, so several jobs at once. Results in the order of items."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def caught(function, *arguments, **options):
    """The result, or the AssertionError, to be raised where a subTest names the case."""
    try:
        return function(*arguments, **options)
    except AssertionError as error:
        return error


# ---- GGUF

# id: (name, values per block, bytes per block)
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 2: ("Q4_0", 32, 18),
         3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
         14: ("Q6_K", 256, 210), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
         41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18), 142: ("PQ2_0", 128, 34),
         143: ("PTQ1_0", 128, 28)}
VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
          12: "d"}
STRING, ARRAY = 8, 9

Tensor = collections.namedtuple("Tensor", "name shape type begin bytes name_at type_at")


class Gguf:
    """The header of one file: keys {name: value}, key_at {name: place of its name}, value_at,
    tensors {name: Tensor}, header_bytes. Places are bytes from the start of the file."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = self.path.read_bytes()
        self.at = 0
        self.keys, self.key_at, self.value_at = {}, {}, {}
        assert self._take("4s") == b"GGUF"
        self.version = self._take("I")
        tensors, keys = self._take("Q"), self._take("Q")
        for _ in range(keys):
            key_at = self.at
            key = self._string()
            kind = self._take("I")
            self.key_at[key], self.value_at[key] = key_at + 8, self.at
            self.keys[key] = self._value(kind)
        found = [self._tensor() for _ in range(tensors)]
        self.header_bytes = self.at
        alignment = self.keys.get("general.alignment", 32)
        base = -(-self.at // alignment) * alignment
        self.tensors = {t.name: t._replace(begin=base + t.begin) for t in found}
        self.arch = self.keys.get("general.architecture")

    def __getitem__(self, key):
        return self.keys[key if key in self.keys else f"{self.arch}.{key}"]

    def _take(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def _string(self):
        return self._take(f"{self._take('Q')}s").decode(errors="surrogateescape")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._take(VALUES[kind])
        inner, count = self._take("I"), self._take("Q")
        return [self._value(inner) for _ in range(count)]

    def _tensor(self):
        name_at = self.at + 8
        name = self._string()
        shape = [self._take("Q") for _ in range(self._take("I"))]
        type_at = self.at
        kind, block, width = TYPES[self._take("I")]
        count = 1
        for size in shape:
            count *= size
        return Tensor(name, shape, kind, self._take("Q"), count // block * width, name_at, type_at)


def row_bytes(kind, cols):
    block, width = next((b, w) for name, b, w in TYPES.values() if name == kind)
    assert cols % block == 0, f"{cols} values are not whole blocks of {kind}"
    return cols // block * width


def units():
    """The values of TRINE_CPU that this processor has."""
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":", 1)[1].split())
            break
    found = ["generic"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
        found.append("avx512")
    return found


needs_smol = unittest.skipUnless(SMOL.exists(),
                                 f"{SMOL} is absent; launcher/quickstart.sh brings it")


class VerbCase(unittest.TestCase):
    def good(self, *arguments, **how):
        """What a run without an error prints."""
        outcome = trine(*arguments, **how)
        self.assertEqual((outcome.code, outcome.errors), (0, []), outcome.err)
        return outcome.out.decode()


def keep_session_folder():
    """Open MPI makes one folder for all jobs of a user and removes it when it is empty, so that jobs
    side by side trip over it. A folder inside keeps it; the last test program to end removes both."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"ompi.{socket.gethostname()}.{os.getuid()}"
    kept = folder / f"trine-tests-{os.getpid()}"
    kept.mkdir(parents=True, exist_ok=True)

    def remove():
        kept.rmdir()
        try:
            folder.rmdir()
        except OSError:
            pass  # others are at work

    atexit.register(remove)


def main():
    """unittest.main, after the path of trine, if that is the first argument."""
    global TRINE
    if len(sys.argv) > 1 and os.access(sys.argv[1], os.X_OK):
        TRINE = os.path.abspath(sys.argv.pop(1))
    keep_session_folder()
    unittest.main(verbosity=2)
