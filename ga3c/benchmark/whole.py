"""The whole system, measured in windows between which its agents are halted."""

import os
import time
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
    """A training system of this configuration, halted except while it is measured."""

    def __init__(self, config: Config, spec: Spec, model: Model) -> None:
        self._system = System(config, spec, model, warn=print)
        self._supervisor = self._system.supervisor

    def __enter__(self) -> Self:
        try:
            self._system.start()
            deadline = time.monotonic() + _START_SECONDS
            while not all(channel.has_asked for channel in self._supervisor.channels.values()):
                self._supervisor.watch(_TICK_SECONDS)
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the agents have not started within {_START_SECONDS:.0f} s")
            self._run(_WARM_UP_SECONDS)
            self._supervisor.halt_agents()
        except BaseException:
            self._supervisor.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.continue_agents()
        self._supervisor.stop()

    def measure(self, seconds: float) -> Window:
        """Let the agents go on for ``seconds``, and a moment before."""
        self._supervisor.continue_agents()
        self._run(_SETTLE_SECONDS)
        self._system.sample()
        start, before = time.perf_counter(), self._cpu_seconds()
        self._run(seconds)
        row, after = self._system.sample(), self._cpu_seconds()
        passed = time.perf_counter() - start
        self._supervisor.halt_agents()
        self._run(_SETTLE_SECONDS)
        return Window(row, *((now - then) / passed for now, then in zip(after, before, strict=True)))

    def _run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._supervisor.watch(min(left, _TICK_SECONDS))

    def _cpu_seconds(self) -> tuple[float, float, float]:
        agents = sum(_cpu_seconds_of(pid) for pid in self._supervisor.agent_pids)
        roles = {"predictor": 0.0, "trainer": 0.0}
        for thread in self._supervisor.threads:
            if thread.ident is not None:
                clock = time.pthread_getcpuclockid(thread.ident)
                roles[thread.name.partition("-")[0]] += time.clock_gettime(clock)
        return agents, roles["predictor"], roles["trainer"]


def _cpu_seconds_of(pid: int) -> float:
    """User and system time of a process (Linux)."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
