"""The whole system, measured in windows between which nobody answers its agents, so that they wait."""

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Self

from ga3c.config import Config
from ga3c.environments import Spec
from ga3c.metrics import Row
from ga3c.model import Model
from ga3c.system import System

_START_SECONDS = 600.0
_WARM_UP_SECONDS = 2.0
_SETTLE_SECONDS = 0.3
_TICK_SECONDS = 0.1
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Window(NamedTuple):
    """One window: the metrics, and how many cores the agents and each role of threads used."""

    row: Row
    agents: float
    predictors: float
    trainers: float


class Whole:
    """A training system of this configuration that stands still except while it is measured.

    Raises RuntimeError when an agent dies or does not start, and supervisor.RunFailed.
    """

    def __init__(self, config: Config, spec: Spec, model: Model, say: Callable[[str], None]) -> None:
        self._config = config
        self._system = System(config, spec, model, say)
        self._supervisor = self._system.supervisor

    def __enter__(self) -> Self:
        try:
            self._system.set_counts(self._config.counts)
            deadline = time.monotonic() + _START_SECONDS
            while not all(channel.has_asked for channel in self._supervisor.channels.values()):
                self._supervisor.watch(_TICK_SECONDS)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the agents have not started within {_START_SECONDS:.0f} s")
            self._run(_WARM_UP_SECONDS)
            self._halt()
        except BaseException:
            self._supervisor.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()

    def measure(self, seconds: float) -> Window:
        """Let the agents go on for ``seconds``, and a moment before; longer, until there was an update."""
        self._supervisor.set_predictors(self._config.predictors.count)
        self._run(_SETTLE_SECONDS)
        self._system.sample()
        updates = self._system.metrics.totals.updates
        pids = self._supervisor.agent_pids
        start, before = time.perf_counter(), self._cpu_seconds(pids)
        self._run(seconds)
        deadline = time.monotonic() + _START_SECONDS
        while self._system.metrics.totals.updates == updates:
            self._run(_TICK_SECONDS)
            if time.monotonic() > deadline:
                raise RuntimeError(f"there was no update within {_START_SECONDS:.0f} s")
        if self._supervisor.agent_pids != pids:
            raise RuntimeError("an agent was replaced while it was measured")
        row, after = self._system.sample(), self._cpu_seconds(pids)
        passed = time.perf_counter() - start
        self._halt()
        return Window(row, *((now - then) / passed for now, then in zip(after, before, strict=True)))

    def _halt(self) -> None:
        """Answer no more requests, and wait until everybody waits."""
        self._supervisor.set_predictors(0)
        self._run(_SETTLE_SECONDS)

    def _run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._supervisor.watch(min(left, _TICK_SECONDS))

    def _cpu_seconds(self, pids: list[int]) -> tuple[float, float, float]:
        roles = {"predictor": 0.0, "trainer": 0.0}
        for thread in self._supervisor.threads:
            if thread.ident is not None and thread.is_alive():
                clock = time.pthread_getcpuclockid(thread.ident)
                roles[thread.name.partition("-")[0]] += time.clock_gettime(clock)
        return sum(map(_cpu_seconds_of, pids)), roles["predictor"], roles["trainer"]


def _cpu_seconds_of(pid: int) -> float:
    """User and system time of a process (Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError as error:
        raise RuntimeError(f"agent process {pid} ended while it was measured") from error
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
