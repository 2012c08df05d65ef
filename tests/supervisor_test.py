"""The process in front of a job: exit codes, signals, and a service that comes back.

The service is a stand-in, stub_service.cc. It is killed 20 times at random moments;
TRINE_KILLS=200 for more.
"""
import contextlib
import fcntl
import os
import pathlib
import pty
import random
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import uuid

import cli

DEMO = cli.TESTS / "data" / "demo" / "demo-PTQ1_0.gguf"
KILLS = int(os.environ.get("TRINE_KILLS", 20))
BODY = b'{"error":{"code":503,"message":"%s","type":"unavailable_error"}}'
LOADING, ENDING = BODY % b"Loading model", BODY % b"Shutting down"


def stub():
    return str(pathlib.Path(cli.TRINE).parent / "tests" / "stub_service")


def matching(mark):
    return subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True).stdout.split()


def children(pid):
    try:
        return [int(child) for child in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_mpirun(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"mpirun")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)
    return value


def answer_of(client):
    """All that comes until the other side closes."""
    received = b""
    while part := client.recv(4096):
        received += part
    return received


def ask(port, request=b"GET / HTTP/1.1\r\n\r\n", timeout=5):
    """The code and the body; (0, reason) where a connection was lost, which a kill may do."""
    with socket.create_connection(("127.0.0.1", port), timeout) as client:  # refused: an error
        try:
            client.sendall(request)
            received = answer_of(client)
        except (ConnectionResetError, BrokenPipeError) as error:
            return 0, str(error)
    head, _, body = received.partition(b"\r\n\r\n")
    return (int(head.split()[1]), body) if head else (0, "nothing came")


class Prober(threading.Thread):
    """Asks again and again, and keeps (code, body) of all answers. An error ends it."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.answers, self.error, self.stop = port, [], None, False

    def run(self):
        try:
            while not self.stop:
                self.answers.append(ask(self.port))
                time.sleep(0.02)
        except OSError as error:
            self.error = error


class Supervisor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.mark = uuid.uuid4().hex
        self.extra = {"TMPDIR": self.folder.name,
                      "OMPI_MCA_btl_vader_backing_directory": self.folder.name}

    def tearDown(self):
        for pid in matching(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.folder.cleanup()

    def files(self):
        return [name for _, _, names in os.walk(self.folder.name) for name in names]

    def left(self):
        return matching(self.mark), self.files()

    def assert_nothing_is_left(self):
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not any(self.left()), 3)
        self.assertEqual(self.left(), ([], []))

    def service_command(self, load_ms=0, drain_ms=0, **options):
        words = [f"{name}={value}" for name, value in {"port": 0, **options}.items()]
        return [stub(), "supervise", *words, "--", *cli.MPIRUN, "-np", 2, stub(), "serve",
                load_ms, drain_ms, self.mark]

    def run_command(self):
        return [cli.TRINE, "run", "--np", 3, "-m", DEMO, "-t", 1, "-n", 4000, "--temp", 0,
                "--ignore-eos", "-p", self.mark]

    @contextlib.contextmanager
    def service(self, **options):
        """A process and its port."""
        process = cli.start(self.service_command(**options), self.extra)
        try:
            yield process, int(process.stdout.readline().split()[1])
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def wait_for_service(self, port):
        return wait_until(lambda: (got := ask(port))[0] == 200 and got[1])

    def supervised(self, *command, **options):
        words = [f"{name}={value}" for name, value in options.items()]
        return cli.execute([stub(), "supervise", *words, "--", *command], self.extra)

    def test_ExitCode_IsTheJobs(self):
        for script, code in (("exit 0", 0), ("exit 1", 1), ("exit 2", 2), ("exit 77", 77),
                             ("kill -9 $$", 137), ("kill -15 $$", 143)):
            with self.subTest(script=script):
                self.assertEqual(self.supervised("sh", "-c", script).code, code)
        outcome = self.supervised("/nowhere/mpirun")
        self.assertEqual(outcome.code, 1)
        self.assertIn("cannot start /nowhere/mpirun: No such file or directory", outcome.err)

    def test_JobOfTheForeground_HasStandardInputAndItsGroup(self):
        command = [stub(), "supervise", "--", "sh", "-c", "cat; ps -o pgid= -p $$ -p $PPID"]
        outcome = cli.execute(command, self.extra, text=b"typed\n")
        typed, *groups = outcome.out.split()
        self.assertEqual((typed, len(groups), len(set(groups))), (b"typed", 2, 1))

    def test_SignalToARun_EndsItAtOnce(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                process = cli.start(self.run_command(), self.extra)
                wait_until(lambda: len(matching(self.mark)) > 4)
                begin = time.monotonic()
                process.send_signal(number)
                process.communicate(timeout=5)
                self.assertLess(time.monotonic() - begin, 2)
                self.assertNotIn(process.returncode, (0, None))
                self.assert_nothing_is_left()

    def at_a_terminal(self, command, is_up):
        """Ctrl-C once it is up; the exit code, and the seconds that it took."""
        master, slave = pty.openpty()
        process = cli.start(command, self.extra, stdin=slave, stdout=slave, stderr=slave,
                            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        shown = b""
        while not is_up(shown):
            shown += os.read(master, 4096)
        begin = time.monotonic()
        os.write(master, b"\x03")
        threading.Thread(target=self.read_all, args=(master,), daemon=True).start()
        code = process.wait(10)
        return code, time.monotonic() - begin

    @staticmethod
    def read_all(descriptor):
        with contextlib.suppress(OSError):
            while os.read(descriptor, 4096):
                pass

    def test_CtrlC_EndsARun_AndDrainsAService(self):
        code, seconds = self.at_a_terminal(self.run_command(), lambda shown: len(shown) > 100)
        self.assertNotEqual(code, 0)
        self.assertLess(seconds, 2)

        def serves(shown):
            self.wait_for_service(int(shown.split()[1])) if b"\n" in shown else None
            return b"\n" in shown

        code, seconds = self.at_a_terminal(self.service_command(drain_ms=700), serves)
        self.assertEqual(code, 0)
        self.assertGreater(seconds, 0.7)
        self.assert_nothing_is_left()

    def test_OneSignal_DrainsAService(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(number=number), self.service(drain_ms=1500) as (process, port):
                self.wait_for_service(port)
                process.send_signal(number)
                time.sleep(0.05)
                process.send_signal(number)  # so soon it is no other one
                time.sleep(0.25)
                self.assertEqual(ask(port, timeout=0.6), (503, ENDING))
                self.assertEqual(process.wait(5), 0)
                self.assert_nothing_is_left()

    def test_SecondSignalOrTimeout_EndsTheDrain(self):
        for second, timeout in ((True, 30000), (False, 500)):
            with (self.subTest(second=second),
                  self.service(drain_ms=20000, drain_timeout=timeout) as (process, port)):
                self.wait_for_service(port)
                begin = time.monotonic()
                process.terminate()
                time.sleep(0.4)
                self.assertIsNone(process.poll())
                if second:
                    process.terminate()
                self.assertNotEqual(process.wait(5), 0)
                self.assertLess(time.monotonic() - begin, 3)
                self.assert_nothing_is_left()

    def test_SignalWhileLoading_EndsAtOnce(self):
        with self.service(load_ms=20000) as (process, port):
            wait_until(lambda: len(matching(self.mark)) > 4)
            self.assertEqual(ask(port), (503, LOADING))
            begin = time.monotonic()
            process.terminate()
            self.assertNotEqual(process.wait(5), 0)
            self.assertLess(time.monotonic() - begin, 3)
            self.assert_nothing_is_left()

    def test_ThirdSignal_KillsAJobThatDoesNothing(self):
        with self.service() as (process, port):
            self.wait_for_service(port)
            launcher, = filter(is_mpirun, children(process.pid))
            os.kill(launcher, signal.SIGSTOP)
            for _ in range(3):
                self.assertIsNone(process.poll())
                process.terminate()
                time.sleep(0.4)
            self.assertEqual(process.wait(5), 137)
            self.assert_nothing_is_left()

    def test_KilledSupervisor_LeavesNothing(self):
        dice = random.Random(1)
        # None: once there is a file, and no rank yet.
        moments = [None, None] + [dice.uniform(0, 1.5) for _ in range(6)]
        for moment in moments:
            for command in (self.run_command(), self.service_command(restart=1)):
                with self.subTest(moment=moment, command=command[1]):
                    process = cli.start(command, self.extra, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
                    if moment is None:
                        while not self.files():
                            pass
                    else:
                        time.sleep(moment)
                    process.kill()
                    process.wait()
                    self.assert_nothing_is_left()

    def test_NoRestart_WhenNotAskedForOrNotAFailure(self):
        for code, restart in ((0, 1), (2, 1), (1, 0)):
            with self.subTest(code=code):
                outcome = self.supervised("sh", "-c", f"exit {code}", restart=restart)
                self.assertEqual((outcome.code, outcome.errors), (code, []))

    def starts(self, seconds, script, **options):
        """When a job that fails was started, and what the supervisor said of it."""
        words = [f"{name}={value}" for name, value in {"restart": 1, **options}.items()]
        process = cli.start([stub(), "supervise", *words, "--", "sh", "-c",
                             f"date +%s.%N; {script}"], self.extra)
        time.sleep(seconds)
        process.terminate()
        out, err = process.communicate(timeout=5)
        self.assertNotEqual(process.returncode, 0)
        times = [float(line) for line in out.split()]
        return [b - a for a, b in zip(times, times[1:])], err.decode().splitlines()

    def assert_near(self, gaps, pauses):
        """No shorter, and longer by what a busy machine takes to start a shell."""
        self.assertEqual(len(gaps), len(pauses))
        for gap, pause in zip(gaps, pauses):
            self.assertGreaterEqual(gap, pause)
            self.assertLess(gap, pause + 0.3)

    def test_Pauses_Double(self):
        gaps, lines = self.starts(4.5, "exit 3")
        print("starts after", ", ".join(f"{gap:.2f} s" for gap in gaps))
        self.assert_near(gaps, (0.5, 1, 2))
        self.assertEqual(lines, [
            f"trine: the job ended with status 3; it starts again in {pause} s"
            for pause in ("0.5", "1.0", "2.0", "4.0")])

    def test_Pauses_HaveAMost_AndBeginAnewAfterALongJob(self):
        gaps, _ = self.starts(3, "exit 1", first_pause=100, longest_pause=300)
        self.assert_near(gaps[:5], (0.1, 0.2, 0.3, 0.3, 0.3))
        _, lines = self.starts(2, "sleep 0.3; exit 1", first_pause=100, settled=250)
        self.assertGreater(len(lines), 3)
        self.assertEqual(lines, lines[:1] * len(lines))

    def test_SlowClients_HinderNobody(self):
        with self.service(load_ms=9000) as (_, port):
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
            for client in silent[:15]:
                client.sendall(b"POST / HTTP/1.1\r\n")
            begin = time.monotonic()
            self.assertEqual(ask(port), (503, LOADING))
            self.assertLess(time.monotonic() - begin, 1)
            # A body that nobody wants is read all the same, or its sender would see an error.
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\n")
                for _ in range(3):
                    time.sleep(0.1)
                    client.sendall(b"x" * 100000)
                self.assertTrue(answer_of(client).endswith(LOADING))
            self.assertEqual(ask(port, b"x" * 20000)[0], 503)  # a head without an end
            for client in silent:
                client.settimeout(8)
                self.assertEqual(client.recv(1), b"")
                client.close()

    def test_ServiceThatIsUp_AnswersAlone(self):
        with self.service() as (_, port):
            pid = self.wait_for_service(port)
            self.assertEqual({ask(port) for _ in range(100)}, {(200, pid)})

    def test_HeadOfTheAnswer(self):
        with self.service(load_ms=9000) as (_, port):
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(b"GET / HTTP/1.1\r\n")
                time.sleep(0.2)
                client.sendall(b"Host: x\r\n\r\n")
                head, body = answer_of(client).split(b"\r\n\r\n")
        first, *fields = head.decode().split("\r\n")
        self.assertEqual(first, "HTTP/1.1 503 Service Unavailable")
        self.assertEqual(set(fields), {"Content-Type: application/json", "Retry-After: 1",
                                       "Connection: close", f"Content-Length: {len(body)}"})

    def test_PortInUse_SaysSo(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            outcome = self.supervised("true", port=port)
        self.assertEqual(outcome.code, 1)
        self.assertIn(f"cannot listen on 127.0.0.1:{port}: Address already in use", outcome.err)

    def victims(self, supervisor):
        """mpirun and its ranks, but not the janitor, whose death nobody would see."""
        launchers = [child for child in children(supervisor) if is_mpirun(child)]
        return launchers + [rank for launcher in launchers for rank in children(launcher)]

    def kill_someone(self, dice, supervisor):
        time.sleep(dice.uniform(0, 0.7))
        victim = dice.choice(wait_until(lambda: self.victims(supervisor)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)

    def test_KilledService_ComesBack(self):
        seed = int.from_bytes(os.urandom(4), "little")
        dice = random.Random(seed)
        print("seed", seed, file=sys.stderr)
        with self.service(load_ms=200, restart=1, first_pause=100, longest_pause=200) as (
                process, port):
            last = self.wait_for_service(port)
            # The first start leaves nothing that a later one does not.
            before = descriptors(process.pid), len(matching(self.mark)), len(self.files())
            prober = Prober(port)
            prober.start()
            for kill in range(KILLS):
                with self.subTest(kill=kill):
                    at = len(prober.answers)
                    for _ in range(dice.choice((1, 1, 2))):  # the second one, while it starts
                        self.kill_someone(dice, process.pid)
                    wait_until(lambda: prober.error or (200, last) != prober.answers[-1] and
                               prober.answers[-1][0] == 200)
                    self.assertIsNone(prober.error)
                    last = prober.answers[-1][1]
                    self.assertIn((503, LOADING), prober.answers[at:])
            prober.stop = True
            prober.join()
            codes = [code for code, _ in prober.answers]
            print("answers:", {code: codes.count(code) for code in sorted(set(codes))},
                  file=sys.stderr)

            def now():
                return descriptors(process.pid), len(matching(self.mark)), len(self.files())

            with contextlib.suppress(AssertionError):
                wait_until(lambda: now() == before, 5)
            self.assertEqual(now(), before)
            process.terminate()
            self.assertEqual(process.wait(5), 0)
            self.assert_nothing_is_left()


class Options(unittest.TestCase):
    def test_RestartOfAVerbThatEnds_IsAUsageError(self):
        for verb in ("run", "bench", "perplexity"):
            outcome = cli.trine(verb, "-m", DEMO, "--restart", "on-failure")
            self.assertEqual(outcome.code, 2)
            self.assertEqual(outcome.errors, [f"trine: --restart on-failure is for serve; {verb} "
                                              "ends with its failure, so leave it out"])


if __name__ == "__main__":
    cli.main()
