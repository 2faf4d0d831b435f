"""What every test stands on: nothing is left behind, waits end, and the real program can be started."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TypeVar

import hypothesis
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
_GRACE_SECONDS = 5.0
_T = TypeVar("_T")

# A child of the fork server runs the main module's file again. Where that is the pytest script, every
# agent would import pytest; without a file it runs nothing.
vars(sys.modules["__main__"]).pop("__file__", None)

# Where the tests run under nohup, the programs they start would rightly outlive a SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A shell's background job ignores Ctrl-C, and so would the programs that the tests start in it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread for the small tensors of tests: no contention on shared machines. Read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is no reason for an example to fail.
hypothesis.settings.register_profile("ga3c", deadline=None)
hypothesis.settings.load_profile("ga3c")


def wait_for(condition: Callable[[], _T], seconds: float = 10.0) -> _T:
    """Ask every 10 ms until the condition holds; return its value, or fail with the last one seen."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"still {value!r} after {seconds} s")
        time.sleep(0.01)
    return value


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """Fail a test that leaves processes, threads, file descriptors or shared memory behind."""
    before = _possessions()
    yield
    deadline = time.monotonic() + _GRACE_SECONDS
    while leftovers := _possessions() - before:
        if time.monotonic() > deadline:
            listing = sorted(f"  {kind}: {_describe(possession)}" for kind, possession in leftovers)
            pytest.fail("left behind:\n" + "\n".join(listing))
        gc.collect()  # a caught exception's traceback may still hold what has been let go
        time.sleep(0.01)


def _possessions() -> set[tuple[str, str | psutil.Process]]:
    return {
        *(("process", child) for child in _children()),
        *(("thread", f"{thread.name} ({thread.ident})") for thread in threading.enumerate()),
        *(("file descriptor", opened) for opened in _file_descriptors()),
        *(("shared memory", entry) for entry in _entries(Path("/dev/shm"))),
    }


def _children() -> list[psutil.Process]:
    # multiprocessing starts these two once and keeps them as long as the test process lives.
    helpers = {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}
    return [child for child in psutil.Process().children(recursive=True) if child.pid not in helpers]


def _describe(possession: str | psutil.Process) -> str:
    if isinstance(possession, str):
        return possession
    try:
        return f"{possession.pid} ({' '.join(possession.cmdline()) or possession.name()})"
    except psutil.NoSuchProcess:
        return f"{possession.pid} (ended)"


def _file_descriptors() -> list[str]:
    # The ends of the pipes that keep multiprocessing's two helpers alive.
    helpers = {forkserver._forkserver._forkserver_alive_fd, resource_tracker._resource_tracker._fd}
    found = []
    for number in _entries(Path("/proc/self/fd")):
        if int(number) in helpers:
            continue
        try:
            found.append(f"{number} -> {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            continue  # the one that listed the folder
    return found


def _entries(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


@dataclass
class Program:
    """A running ``python main.py`` in a session of its own."""

    popen: subprocess.Popen[bytes]
    output_path: Path

    def wait(self, timeout: float = 60.0) -> int:
        """The exit code (negative: the signal that ended it); fails with the output when it takes longer."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s; its output:\n{self.output()}")

    def output(self) -> str:
        """Everything printed until now, standard output and standard error together."""
        return self.output_path.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Every process of the session that runs: the server, the fork server, the agents, and others."""
        found = []
        for process in psutil.process_iter():
            try:
                in_session = os.getsid(process.pid) == self.popen.pid
                if in_session and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found


@pytest.fixture
def run_main(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start ``python main.py`` in the test's own folder: ``program = run_main("--game", "Pong")``.

    Keywords but ``cwd`` are environment variables. At the end of the test everything is killed; processes
    that outlive a server which has ended fail the test.
    """
    programs: list[Program] = []

    def run(*arguments: object, cwd: Path = tmp_path, **environment: str) -> Program:
        output_path = tmp_path / f"output-{len(programs)}.txt"
        inherited = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        with output_path.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, str(ROOT / "main.py"), *map(str, arguments)],
                cwd=cwd,
                env=inherited | {"PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        programs.append(Program(popen, output_path))
        return programs[-1]

    yield run
    orphans: list[str] = []
    for program in programs:
        orphans += _end(program)
    assert not orphans, f"outlived their server: {orphans}"


def _end(program: Program) -> list[str]:
    """End a program's session; returns what still ran some seconds after the server had ended."""
    orphans: list[psutil.Process] = []
    if program.popen.poll() is not None:
        deadline = time.monotonic() + _GRACE_SECONDS
        while (orphans := program.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
    described = [_describe(orphan) for orphan in orphans]
    if program.processes():
        os.killpg(program.popen.pid, signal.SIGKILL)
    program.popen.wait()
    return described
