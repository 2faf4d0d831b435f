"""Counters in, rates out: predictors and trainers count here, metrics.csv and the console read from it.

Every metrics interval the server turns what was counted since the last one into a Row.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Literal, NamedTuple
from weakref import WeakSet

from ga3c.stopwatch import PREDICTOR_PHASES, TRAINER_PHASES, Stopwatch

SCORE_WINDOW = 100  # games in the mean score


class Row(NamedTuple):
    """One line of metrics.csv; nan where nothing happened in the interval.

    ``time`` is in seconds of training, ``fps`` in frames per second, lengths of queues in their
    entries; batch sizes, losses and the policy lag are means over the interval. The last columns say in
    which parts the time of the predictors, and of the trainers, was spent: each role's sum to 1.
    """

    time: float
    frames: int
    predictions: int
    updates: int
    pps: float
    tps: float
    fps: float
    games: int
    score_mean: float
    score_min: float
    score_max: float
    prediction_queue: int
    training_queue: int
    prediction_batch: float
    training_batch: float
    lag_mean: float
    lag_max: float
    agents: int
    predictors: int
    trainers: int
    policy_loss: float
    value_loss: float
    entropy: float
    gradient_norm: float
    learning_rate: float
    predictor_waiting: float
    predictor_gathering: float
    predictor_forward: float
    predictor_replying: float
    trainer_waiting: float
    trainer_gathering: float
    trainer_forward: float
    trainer_backward: float
    trainer_optimiser: float


class Game(NamedTuple):
    """One line of games.csv: when a game ended, its score and its length in actions."""

    time: float
    frames: int
    score: float
    length: int


class Gauges(NamedTuple):
    """What is read off the running server: lengths of the queues, and N_A, N_P, N_T."""

    prediction_queue: int
    training_queue: int
    agents: int
    predictors: int
    trainers: int


@dataclass
class Totals:
    """What a run has done since its first start; a checkpoint keeps it."""

    seconds: float = 0.0
    predictions: int = 0
    updates: int = 0
    games: int = 0


class Counted(NamedTuple):
    """Sums since the start of the program; the difference of two tells what happened between them.

    ``time`` is in seconds of the metrics' clock. ``lag`` and all after it are sums over the updates.
    """

    time: float
    actions: float = 0.0
    observations: float = 0.0
    passes: float = 0.0
    updates: float = 0.0
    experiences: float = 0.0
    lag: float = 0.0
    policy_loss: float = 0.0
    value_loss: float = 0.0
    entropy: float = 0.0
    gradient_norm: float = 0.0

    def plus(self, **amounts: float) -> "Counted":
        return self._replace(**{name: getattr(self, name) + amount for name, amount in amounts.items()})

    def since(self, before: "Counted") -> "Counted":
        return Counted(*(now - then for now, then in zip(self, before, strict=True)))


class Metrics:
    """Counts what happens, from any thread. A resumed run goes on from the totals it is given."""

    def __init__(
        self,
        frames_per_action: int,
        totals: Totals | None = None,
        recent_scores: Sequence[float] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        before = totals or Totals()
        start = clock()
        self._frames_per_action = frames_per_action
        self._clock = clock
        self._lock = threading.Lock()
        self._epoch = start - before.seconds
        self._before, self._games = replace(before), before.games
        self._scores: deque[float] = deque(recent_scores, maxlen=SCORE_WINDOW)
        self._finished: list[Game] = []
        self._counted = self._sampled = Counted(start)
        self._lag_max, self._learning_rate = nan, nan
        self._stopwatches: dict[str, WeakSet[Stopwatch]] = {"predictor": WeakSet(), "trainer": WeakSet()}

    def stopwatch(self, role: Literal["predictor", "trainer"]) -> Stopwatch:
        """A new stopwatch, for one thread of this role."""
        stopwatch = Stopwatch(PREDICTOR_PHASES if role == "predictor" else TRAINER_PHASES)
        self._stopwatches[role].add(stopwatch)
        return stopwatch

    def add_predictions(self, actions: int, observations: int) -> None:
        """Count one forward pass over ``observations``, which chose ``actions`` actions."""
        with self._lock:
            self._counted = self._counted.plus(actions=actions, observations=observations, passes=1)

    def add_update(
        self,
        experiences: int,
        lag_mean: float,
        lag_max: int,
        policy_loss: float,
        value_loss: float,
        entropy: float,
        gradient_norm: float,
        learning_rate: float,
    ) -> None:
        """Count one model update, with the policy lag of its experiences in model updates."""
        with self._lock:
            self._lag_max = max(lag_max, self._lag_max)  # in this order, as nan is no maximum
            self._learning_rate = learning_rate
            self._counted = self._counted.plus(
                updates=1,
                experiences=experiences,
                lag=lag_mean,
                policy_loss=policy_loss,
                value_loss=value_loss,
                entropy=entropy,
                gradient_norm=gradient_norm,
            )

    def add_game(self, score: float, length: int) -> None:
        """Count one finished game of ``length`` actions."""
        with self._lock:
            self._games += 1
            self._scores.append(float(score))
            self._finished.append(Game(self._seconds(), self._frames(), float(score), int(length)))

    @property
    def totals(self) -> Totals:
        with self._lock:
            return Totals(self._seconds(), self._predictions(), self._updates(), self._games)

    @property
    def frames(self) -> int:
        with self._lock:
            return self._frames()

    @property
    def score_mean(self) -> float:
        """Mean score of the last 100 games; nan before the first."""
        scores = self.recent_scores
        return sum(scores) / len(scores) if scores else nan

    @property
    def recent_scores(self) -> list[float]:
        """Scores of the last 100 games, oldest first."""
        with self._lock:
            return list(self._scores)

    def counted(self) -> Counted:
        """What happened until now."""
        with self._lock:
            return self._counted._replace(time=self._clock())

    def sample(self, gauges: Gauges) -> Row:
        """Close the interval since the last sample and describe it."""
        with self._lock:
            counted = self._counted._replace(time=self._clock())
            last, self._sampled = counted.since(self._sampled), counted
            seconds, frames, scores = counted.time - self._epoch, self._frames(), list(self._scores)
            predictions, updates, games = self._predictions(), self._updates(), self._games
            lag_max, self._lag_max = self._lag_max, nan
            learning_rate, self._learning_rate = self._learning_rate, nan
        pps = _ratio(last.actions, last.time)
        return Row(
            time=seconds,
            frames=frames,
            predictions=predictions,
            updates=updates,
            pps=pps,
            tps=_ratio(last.updates, last.time),
            fps=pps * self._frames_per_action,
            games=games,
            score_mean=_ratio(sum(scores), len(scores)),
            score_min=min(scores, default=nan),
            score_max=max(scores, default=nan),
            prediction_batch=_ratio(last.observations, last.passes),
            training_batch=_ratio(last.experiences, last.updates),
            lag_mean=_ratio(last.lag, last.updates),
            lag_max=lag_max,
            policy_loss=_ratio(last.policy_loss, last.updates),
            value_loss=_ratio(last.value_loss, last.updates),
            entropy=_ratio(last.entropy, last.updates),
            gradient_norm=_ratio(last.gradient_norm, last.updates),
            learning_rate=learning_rate,
            **self._times("predictor", PREDICTOR_PHASES),
            **self._times("trainer", TRAINER_PHASES),
            **gauges._asdict(),
        )

    def take_games(self) -> list[Game]:
        """The games finished since the last call."""
        with self._lock:
            taken, self._finished = self._finished, []
        return taken

    def _times(self, role: str, phases: tuple[str, ...]) -> dict[str, Any]:
        taken = [stopwatch.take() for stopwatch in self._stopwatches[role]]
        total = sum(sum(seconds.values()) for seconds in taken)
        return {f"{role}_{phase}": _ratio(sum(each[phase] for each in taken), total) for phase in phases}

    def _seconds(self) -> float:
        return self._clock() - self._epoch

    def _predictions(self) -> int:
        return self._before.predictions + int(self._counted.actions)

    def _updates(self) -> int:
        return self._before.updates + int(self._counted.updates)

    def _frames(self) -> int:
        return self._predictions() * self._frames_per_action


def _ratio(total: float, count: float) -> float:
    return total / count if count else nan
