"""Counters in, rates out: predictors and trainers count here, metrics.csv and the console read from it.

Every metrics interval the server turns what was counted since the last one into a Row.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


class _Interval:
    """Sums since the last row."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.predictions = self.observations = self.passes = self.updates = 0
        self.lag_max = 0
        self.learning_rate = nan
        # experiences, lag_mean, policy_loss, value_loss, entropy, gradient_norm
        self.sums: tuple[float, ...] = (0.0,) * 6


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
        self._predictions, self._updates, self._games = before.predictions, before.updates, before.games
        self._scores: deque[float] = deque(recent_scores, maxlen=SCORE_WINDOW)
        self._finished: list[Game] = []
        self._interval = _Interval(start)
        self._stopwatches: dict[str, WeakSet[Stopwatch]] = {"predictor": WeakSet(), "trainer": WeakSet()}

    def stopwatch(self, role: Literal["predictor", "trainer"]) -> Stopwatch:
        """A new stopwatch, for one thread of this role."""
        stopwatch = Stopwatch(PREDICTOR_PHASES if role == "predictor" else TRAINER_PHASES)
        self._stopwatches[role].add(stopwatch)
        return stopwatch

    def add_predictions(self, actions: int, observations: int) -> None:
        """Count one forward pass over ``observations``, which chose ``actions`` actions."""
        with self._lock:
            self._predictions += int(actions)
            self._interval.predictions += int(actions)
            self._interval.observations += observations
            self._interval.passes += 1

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
        values = (experiences, lag_mean, policy_loss, value_loss, entropy, gradient_norm)
        with self._lock:
            self._updates += 1
            interval = self._interval
            interval.updates += 1
            interval.lag_max = max(interval.lag_max, lag_max)
            interval.learning_rate = learning_rate
            interval.sums = tuple(total + value for total, value in zip(interval.sums, values, strict=True))

    def add_game(self, score: float, length: int) -> None:
        """Count one finished game of ``length`` actions."""
        with self._lock:
            self._games += 1
            self._scores.append(float(score))
            self._finished.append(Game(self._seconds(), self._frames(), float(score), int(length)))

    @property
    def totals(self) -> Totals:
        with self._lock:
            return Totals(self._seconds(), self._predictions, self._updates, self._games)

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

    def sample(self, gauges: Gauges) -> Row:
        """Close the interval since the last sample and describe it."""
        with self._lock:
            now = self._clock()
            last, self._interval = self._interval, _Interval(now)
            seconds, frames, scores = now - self._epoch, self._frames(), list(self._scores)
            predictions, updates, games = self._predictions, self._updates, self._games
        pps = _ratio(last.predictions, now - last.start)
        means = [_ratio(total, last.updates) for total in last.sums]
        training_batch, lag_mean, policy_loss, value_loss, entropy, gradient_norm = means
        return Row(
            time=seconds,
            frames=frames,
            predictions=predictions,
            updates=updates,
            pps=pps,
            tps=_ratio(last.updates, now - last.start),
            fps=pps * self._frames_per_action,
            games=games,
            score_mean=_ratio(sum(scores), len(scores)),
            score_min=min(scores, default=nan),
            score_max=max(scores, default=nan),
            prediction_batch=_ratio(last.observations, last.passes),
            training_batch=training_batch,
            lag_mean=lag_mean,
            lag_max=last.lag_max if last.updates else nan,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            gradient_norm=gradient_norm,
            learning_rate=last.learning_rate,
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

    def _frames(self) -> int:
        return self._predictions * self._frames_per_action


def _ratio(total: float, count: float) -> float:
    return total / count if count else nan
