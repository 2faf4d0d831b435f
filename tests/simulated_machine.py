"""Machines that are functions from N_A, N_P and N_T to TPS, to compare ways of searching in seconds.

    python -m tests.simulated_machine --seeds 200

prints how often the search of ga3c.annealing, and the paper's plain walk, end at a setting with at least
95 % of the best TPS: after 60 proposals where at most 24 agents are best, after 120 where about 128 are.
As the search measures a proposal up to three times, the walk is also given 2.7 times as many proposals.
"""

import argparse
from typing import NamedTuple

import numpy as np

from ga3c.annealing.search import Search
from ga3c.config import Counts

KINDS = ("peak", "ridge", "bottleneck", "plateau")
_TOP = 50.0  # TPS
_NOISE = 0.1
_ENOUGH = 0.95


class Task(NamedTuple):
    most: Counts
    proposals: int


NEAR, FAR = Task(Counts(64, 8, 8), 60), Task(Counts(256, 8, 8), 120)


class Machine:
    """TPS over all counts, drawn from ``random``; a measurement has 10 % of noise and drifts by 5 to 15 %.

    ``peak`` falls off on every side; on a ``ridge`` the best N_A depends on N_P and N_T; a ``bottleneck``
    is as fast as its scarcest role, less what the others cost; a ``plateau`` hardly falls beyond its best.
    The best is at 2 to 24 agents, or at 115 to 141, with 1 to 4 predictors and trainers. Machines are drawn
    again until every setting that no single step improves has at least 95 % of the best: one peak.
    """

    def __init__(self, kind: str, task: Task, random: np.random.Generator) -> None:
        self._random = random
        self._measurements = 0
        self._phase, self._period = random.uniform(0, 2 * np.pi), random.uniform(50, 200)
        self._drift = random.uniform(0.05, 0.15)
        counts = np.indices(task.most).transpose(1, 2, 3, 0) + 1.0
        while True:
            far = random.uniform(80, 180) if kind == "bottleneck" else 128
            agents = far if task is FAR else np.exp(random.uniform(np.log(2), np.log(24)))
            best = np.array([agents, random.integers(1, 5), random.integers(1, 5)])
            self._tps = _TOP * _speed(kind, counts / best, random)
            top = Counts(*(int(place) + 1 for place in np.unravel_index(self._tps.argmax(), task.most)))
            near = 115 <= top.agents <= 141 if task is FAR else 2 <= top.agents <= 24
            if near and max(top.predictors, top.trainers) <= 4 and self._has_one_peak():
                break

    def quality(self, counts: Counts) -> float:
        """TPS at these counts, as a part of the best."""
        return float(self._tps[tuple(count - 1 for count in counts)] / self._tps.max())

    def measure(self, counts: Counts) -> float:
        self._measurements += 1
        drift = 1 + self._drift * np.sin(2 * np.pi * self._measurements / self._period + self._phase)
        noise = np.exp(self._random.normal(0, _NOISE))
        return float(self._tps[tuple(count - 1 for count in counts)] * drift * noise)

    def _has_one_peak(self) -> bool:
        tps = self._tps
        stuck = np.ones(tps.shape, bool)
        for axis in (1, 2):
            rises = np.diff(tps, axis=axis) > 0
            edge = np.zeros_like(np.take(rises, [0], axis))
            stuck &= ~np.concatenate((rises, edge), axis) & ~np.concatenate((edge, ~rises), axis)
        agents = np.arange(1, len(tps) + 1)
        step = np.maximum(1, np.round(agents / 10).astype(int))
        for neighbour in (np.minimum(agents + step, len(tps)), np.maximum(agents - step, 1)):
            stuck &= tps[neighbour - 1] <= tps
        return bool((tps[stuck] >= _ENOUGH * tps.max()).all())


def _speed(kind: str, ratio: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Speed where each count is ``ratio`` [..., 3] of its best."""
    width, price = random.uniform(0.15, 0.5, 3), random.uniform(0.1, 0.4, 3)
    away = np.log(ratio)
    match kind:
        case "peak":
            return np.exp(-(away**2) @ width)
        case "ridge":
            away[..., 0] -= random.uniform(0.3, 0.7) * (away[..., 1] + away[..., 2])
            return np.exp(-(away**2) @ (width * (2, 1, 1)))
        case "bottleneck":
            sharpness = random.uniform(3, 8)
            return (ratio**-sharpness).sum(-1) ** (-1 / sharpness) / (1 + ratio**2 @ price)
        case "plateau":
            rise = np.prod(np.minimum(ratio, 1) ** (0.9, 0.4, 0.4), axis=-1)
            return rise / (1 + np.maximum(ratio - 1.5, 0) @ price)
    raise ValueError(f"no such machine: {kind}")


def search(machine: Machine, task: Task, random: np.random.Generator) -> tuple[Counts, int]:
    """Where the search of ga3c.annealing ends, and after how many measurements."""
    searching = Search(Counts(1, 1, 1), task.most, np.inf, random)
    verdicts = measurements = 0
    while verdicts < task.proposals:
        measurements += 1
        verdicts += searching.learn(machine.measure(searching.next), 0.0) is not None
    return searching.best() or searching.current, measurements


def walk(machine: Machine, task: Task, random: np.random.Generator) -> tuple[Counts, int]:
    """The paper's: one count by one up or down, kept when its one measurement is not below the last kept."""
    return _walk(machine, task, random, task.proposals)


def long_walk(machine: Machine, task: Task, random: np.random.Generator) -> tuple[Counts, int]:
    """The same with 2.7 times as many proposals: the search measures each of its own 2 to 3.4 times."""
    return _walk(machine, task, random, round(2.7 * task.proposals))


def _walk(machine: Machine, task: Task, random: np.random.Generator, proposals: int) -> tuple[Counts, int]:
    current, best = Counts(1, 1, 1), machine.measure(Counts(1, 1, 1))
    for _ in range(proposals):
        while True:
            place = random.integers(3)
            changed = list(current)
            changed[place] += random.choice((-1, 1))
            if 1 <= changed[place] <= task.most[place]:
                break
        measured = machine.measure(Counts(*changed))
        if measured >= best:
            current, best = Counts(*changed), measured
    return current, proposals + 1


def qualities(method, kind: str, task: Task, seeds: int) -> tuple[np.ndarray, float]:
    """Quality of the end, for each seed, and the mean number of measurements."""
    ends, measurements = [], []
    for seed in range(seeds):
        machine = Machine(kind, task, np.random.default_rng([seed, 0]))
        end, count = method(machine, task, np.random.default_rng([seed, 1]))
        ends.append(machine.quality(end))
        measurements.append(count)
    return np.array(ends), float(np.mean(measurements))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    print("| best N_A | proposals | machine | method | at least 95 % | median | worst | measurements |")
    print("|---|---|---|---|---|---|---|---|")
    for task in (NEAR, FAR):
        for kind in KINDS:
            for name, method in (("ours", search), ("plain walk", walk), ("plain walk, longer", long_walk)):
                ends, measurements = qualities(method, kind, task, seeds)
                print(
                    f"| {'2 to 24' if task is NEAR else 'about 128'} | {task.proposals} | {kind} "
                    f"| {name} | {np.mean(ends >= _ENOUGH):.1%} "
                    f"| {np.median(ends):.3f} | {ends.min():.3f} | {measurements:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
