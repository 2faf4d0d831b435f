"""The annealing controller: changes N_A, N_P and N_T while a run trains, to train more per second.

A small machine that the server's loop asks, a few times a second, whether there is news: it waits until
the system has settled, measures for the rest of the interval, and lets search.py decide.
"""

import math
import resource
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ga3c.annealing.search import Search, Verdict, agent_step
from ga3c.config import Config, Counts, available_cores
from ga3c.metrics import Counted
from ga3c.system import System

_LOADING_SECONDS = 120.0  # for new agents, and to settle
_DESCRIPTORS_PER_AGENT, _OTHER_DESCRIPTORS = 8, 100
_WINDOWS = 8  # parts of a measurement, for its spread


class Outcome(NamedTuple):
    """What a measurement found; spreads are standard errors of the means."""

    rate: float
    """Experiences trained per second."""
    tps: float
    tps_spread: float
    pps: float
    pps_spread: float
    lag: float


NOTHING = Outcome(*[math.nan] * 6)


class Trial(NamedTuple):
    """One line of annealing.csv: a proposal, what was last measured of it, and what became of it.

    ``time`` is in seconds of training; the counts are those that stood, were tried, and stand now.
    """

    time: float
    frames: int
    old_agents: int
    old_predictors: int
    old_trainers: int
    agents: int
    predictors: int
    trainers: int
    new_agents: int
    new_predictors: int
    new_trainers: int
    tps: float
    tps_spread: float
    pps: float
    pps_spread: float
    lag: float
    kept: int
    reason: str

    def __str__(self) -> str:
        old = Counts(self.old_agents, self.old_predictors, self.old_trainers)
        tried = Counts(self.agents, self.predictors, self.trainers)
        decision = "kept" if self.kept else "taken back"
        return (
            f"N_A/N_P/N_T {old} -> {tried}: {self.reason}: {decision} "
            f"(TPS {self.tps:.1f} ± {self.tps_spread:.1f}, lag {self.lag:.1f})"
        )


class Controller:
    """Call ``step`` often, from the server's main thread; it never waits."""

    def __init__(self, config: Config, system: System, clock: Callable[[], float] = time.monotonic) -> None:
        settings = config.annealing
        agents = most_agents() if settings.max_agents == "auto" else settings.max_agents
        start = system.counts
        limits = Counts(agents, settings.max_predictors, settings.max_trainers)
        most = Counts(*(max(pair) for pair in zip(start, limits, strict=True)))
        self._settings, self._system, self._clock = settings, system, clock
        self._search = Search(
            start,
            most,
            settings.max_policy_lag,
            np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(1,))),
        )
        self._settled_by: float | None = None
        self._readings: list[Counted] = []
        self._settling = settings.initial_wait_seconds
        self._begun = clock()
        self._outcome = NOTHING

    @property
    def best(self) -> Counts | None:
        """The best setting of those measured; None when there is none that is allowed."""
        return self._search.best()

    def step(self) -> list[Trial]:
        """Measure on; at the end of an interval, set the next counts. Returns trials that were decided."""
        now = self._clock()
        patience = self._settling + 2 * self._settings.interval_seconds + _LOADING_SECONDS
        if now - self._begun > patience:
            return self._give_up(f"not measured within {patience:.0f} s")
        if not self._system.supervisor.is_settled:
            self._settled_by, self._readings = None, []
            return []
        if self._settled_by is None:
            self._settled_by = now + self._settling
        if now < self._settled_by:
            return []
        self._readings.append(self._system.metrics.counted())
        seconds = self._settings.interval_seconds - self._settings.settling_seconds
        first, last = self._readings[0], self._readings[-1]
        if last.time - first.time < seconds or last.updates == first.updates:
            return []
        outcome = measure(self._readings)
        if self._search.next != self._search.current:
            self._outcome = outcome
        return self._go_on(self._search.learn(outcome.rate, outcome.lag))

    def _give_up(self, reason: str) -> list[Trial]:
        self._outcome = NOTHING
        return self._go_on(self._search.give_up(reason))

    def _go_on(self, verdict: Verdict | None) -> list[Trial]:
        """Set the counts that are to be measured next, after this verdict."""
        trials = [self._trial(verdict)] if verdict else []
        self._settling = self._settings.settling_seconds
        self._settled_by, self._readings, self._begun = None, [], self._clock()
        current, following = self._search.current, self._search.next
        reserve = current.agents + agent_step(current.agents)
        try:
            self._system.set_counts(following, max(0, reserve - following.agents))
        except (OSError, MemoryError) as error:  # more than this machine has
            self._system.set_counts(current)
            trials += self._give_up(f"cannot be started: {error}")
        return trials

    def _trial(self, verdict: Verdict) -> Trial:
        metrics = self._system.metrics
        return Trial(
            metrics.totals.seconds,
            metrics.frames,
            *verdict.stood,
            *verdict.tried,
            *verdict.stands,
            *self._outcome[1:],
            kept=int(verdict.kept),
            reason=verdict.reason,
        )


def most_agents() -> int:
    """Eight for each core, but not more than there are file descriptors for."""
    most = 8 * available_cores()
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, (descriptors - _OTHER_DESCRIPTORS) // _DESCRIPTORS_PER_AGENT))


def standing(trials: Mapping[str, np.ndarray]) -> Counts | None:
    """The counts that stood after the last of the trials in these columns; None without any."""
    if not len(trials.get("kept", ())):
        return None
    return Counts(*(int(trials[f"new_{name}"][-1]) for name in Counts._fields))


def measure(readings: list[Counted]) -> Outcome:
    """Rates between the first and the last reading, with their spread over up to eight parts between."""
    places = np.unique(np.linspace(0, len(readings) - 1, _WINDOWS + 1).astype(int))
    parts = [readings[b].since(readings[a]) for a, b in pairwise(places)]
    whole = readings[-1].since(readings[0])
    tps, pps = ([getattr(part, name) / part.time for part in parts] for name in ("updates", "actions"))
    return Outcome(
        rate=whole.experiences / whole.time,
        tps=whole.updates / whole.time,
        tps_spread=_standard_error(tps),
        pps=whole.actions / whole.time,
        pps_spread=_standard_error(pps),
        lag=whole.lag / whole.updates,
    )


def _standard_error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
