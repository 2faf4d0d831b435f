"""Which N_A, N_P and N_T to try next, and whether to keep them (paper section 4.3).

As in the paper, one of the three counts is changed by a small step, the training rate is measured, and
the new setting is kept or taken back. The paper compares two numbers, each noisy; here all measurements
together decide, through the regression of regression.py.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ga3c.annealing.regression import Measured, believe, octaves
from ga3c.config import Counts

_MEMORY = 200  # measurements
_TRIES = 3  # measurements of one proposal
_PRICE = 0.02  # part of the rate that twice as many of anything has to bring: it costs memory and policy lag
_AHEAD = 1.5  # a direction is judged by what is believed this factor away
_PATIENCE = 20  # proposals in a row that did not help, before the search rests
_LAGS = 3  # measurements whose mean is the policy lag of a setting
_LONGEST_REST = 8  # measurements between two proposals


class Verdict(NamedTuple):
    """On ``tried``, which was proposed in place of ``stood``; ``stands`` is what stands now.

    That is one of the two, or, when nothing has helped for long, the best setting of all.
    """

    stood: Counts
    tried: Counts
    stands: Counts
    reason: str

    @property
    def kept(self) -> bool:
        return self.stands == self.tried


class Search:
    """From ``start``, with at most ``most`` of each, in settings whose policy lag is at most ``max_lag``.

    Measure ``next``, then tell ``learn``, again and again. ``current`` is what was kept last; ``best`` is
    what a run should stay with.
    """

    def __init__(self, start: Counts, most: Counts, max_lag: float, random: np.random.Generator) -> None:
        self.current = self.next = start
        self._most, self._max_lag, self._random = most, max_lag, random
        self._measured: deque[Measured] = deque(maxlen=_MEMORY)
        self._lags: dict[Counts, deque[float]] = {}
        self._unfit: set[Counts] = set()
        self._stood = {start}
        self._tries = self._fruitless = self._rest = 0
        self._trial: Counts | None = None

    def learn(self, rate: float, lag: float) -> Verdict | None:
        """``next`` trained ``rate`` > 0 experiences per second at this mean policy lag.

        Returns the verdict on a proposal, or None where there was none or it is not yet clear.
        """
        time = self._measured[-1].time + 1 if self._measured else 0.0
        self._measured.append(Measured(self.next, time, rate))
        self._lags.setdefault(self.next, deque(maxlen=_LAGS)).append(lag)
        verdict = self._judge(self._trial) if self._trial else None
        if verdict or not self._trial:
            self._choose_next()
        return verdict

    def give_up(self, reason: str) -> Verdict | None:
        """``next`` cannot be measured: a proposal is taken back, and not made again."""
        trial = self._trial
        if trial is None:
            return None
        self._unfit.add(trial)
        verdict = self._decide(trial, False, reason)
        self._choose_next()
        return verdict

    def best(self) -> Counts | None:
        """Of the settings that were measured, the one believed to be the fastest for its price.

        None when there is no measurement, or none with a policy lag that is allowed.
        """
        known = (each.counts for each in self._measured if each.counts in self._lags)
        seen = list(dict.fromkeys(counts for counts in known if self._is_fit(counts)))
        if not seen:
            return None
        mean = believe(self._measured, seen).mean - _price(seen)
        return seen[int(np.argmax(mean))]

    def _judge(self, trial: Counts) -> Verdict | None:
        """Take the trial or the current setting; None, after choosing which of them to measure once more."""
        stood = self.current
        before, lag = self._lag(stood), self._lag(trial)
        if max(before, lag) > self._max_lag:
            reason = f"policy lag {before:.1f} -> {lag:.1f}, at most {self._max_lag:g} allowed"
            return self._decide(trial, lag < before, reason)
        both = [stood, trial]
        mean, covariance = believe(self._measured, both)
        change, price = mean[1] - mean[0], _price(both)[1] - _price(both)[0]
        spread = math.sqrt(max(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1], 0.0))
        self._tries += 1
        if abs(change - price) < spread and self._tries < _TRIES:
            self.next = stood if self.next == trial else trial
            return None
        reason = f"{_percent(change)} ± {spread:.1%} experiences per second ({_percent(price)} needed)"
        return self._decide(trial, bool(change > price), reason)

    def _decide(self, trial: Counts, kept: bool, reason: str) -> Verdict:
        """End the proposal. To keep a setting that has stood before is no progress: they are equally good."""
        stood, self._trial, self._tries = self.current, None, 0
        is_progress = kept and trial not in self._stood
        self._fruitless = 0 if is_progress else self._fruitless + 1
        if kept:
            self.current = trial
            self._stood.add(trial)
        if self._fruitless >= _PATIENCE:
            self.current = self.best() or self.current
            self._rest = min(2 ** (self._fruitless - _PATIENCE), _LONGEST_REST)
            if self.current not in (stood, trial):
                reason += f"; back to the best, {self.current}"
        return Verdict(stood, trial, self.current, reason)

    def _choose_next(self) -> None:
        """One step from the current setting, or, while the search rests, that setting again.

        The step is drawn by Thompson sampling: of what is believed of each neighbour, uncertain as it is,
        one rate is drawn, and the highest is tried. So a direction that has just helped is tried again,
        what may help is tried sometimes, and what is known to be worse is not.
        """
        options, ahead = self._neighbours()
        if not options and self._lag(self.current) > self._max_lag:
            self._lags = {self.current: self._lags[self.current]}  # somewhere it must go
            options, ahead = self._neighbours()
        if self._rest or not options:
            self._rest = max(0, self._rest - 1)
            self.next = self.current
            return
        mean, covariance = believe(self._measured, ahead)
        drawn = self._random.multivariate_normal(mean - _price(ahead), covariance, method="eigh")
        self.next = self._trial = options[int(np.argmax(drawn))]

    def _lag(self, counts: Counts) -> float:
        """The mean of the last few measurements; 0 where there is none."""
        lags = self._lags.get(counts)
        return sum(lags) / len(lags) if lags else 0.0

    def _is_fit(self, counts: Counts) -> bool:
        return counts not in self._unfit and self._lag(counts) <= self._max_lag

    def _neighbours(self) -> tuple[list[Counts], list[tuple[float, ...]]]:
        """Every single step from the current setting, and for each a place further in its direction."""
        steps, ahead = [], []
        for place, now in enumerate(self.current):
            size = agent_step(now) if place == 0 else 1
            for change, factor in ((size, _AHEAD), (-size, 1 / _AHEAD)):
                count = min(max(now + change, 1), self._most[place])
                step = self.current._replace(**{Counts._fields[place]: count})
                if step != self.current and self._is_fit(step):
                    further = max(count, now * factor) if change > 0 else min(count, now * factor)
                    steps.append(step)
                    ahead.append(_replaced(self.current, place, further))
        return steps, ahead


def agent_step(agents: int) -> int:
    """By how many agents N_A changes at a time: about a tenth."""
    return max(1, round(agents / 10))


def _replaced(counts: Counts, place: int, value: float) -> tuple[float, ...]:
    return (*counts[:place], value, *counts[place + 1 :])


def _percent(change: float) -> str:
    return f"{math.expm1(change):+.1%}"


def _price(counts: Sequence[tuple[float, ...]]) -> np.ndarray:
    return _PRICE * octaves(counts).sum(axis=1)
