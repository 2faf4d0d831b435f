"""From raw measurements to medians, the bound, the efficiency and the sentence that names the limit.

Pure functions and data; everything here is a number per round, or the median and quartiles of those.
"""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

ROLES = ("agents", "predictors", "trainers")
IDLE_CORES = 0.10  # of all cores; above it, waiting is the limit
NEVER_WAITING = 0.05  # of a role's time; below it, its threads are the limit


@dataclass(frozen=True)
class Round:
    """What was measured within one round. Rates are actions per second of all cores together; costs are
    core-seconds per action on a CPU, device-seconds on a GPU."""

    emulation: float
    inference: dict[int, float]
    training: dict[int, float]
    pps: float
    tps: float
    fps: float
    prediction_batch: float
    policy_lag: float
    cores_of_agents: float
    cores_of_predictors: float
    cores_of_trainers: float
    predictor_times: dict[str, float]
    trainer_times: dict[str, float]
    peers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """The median over the rounds and the quartiles around it."""

    median: float
    low: float
    high: float


def spread(values: Iterable[float]) -> Spread:
    numbers = sorted(values)
    if len(numbers) == 1:
        return Spread(numbers[0], numbers[0], numbers[0])
    low, median, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return Spread(median, low, high)


def medians(rounds: Iterable[dict[str, float]]) -> dict[str, float]:
    """The median of each key over the rounds."""
    every = list(rounds)
    return {key: statistics.median(each[key] for each in every) for key in every[0]}


@dataclass(frozen=True)
class Benchmark:
    """All rounds, and what they were measured on. ``training_batch`` is the configured one."""

    game: str
    network: str
    device: str
    precision: str
    machine: str
    cores: int
    on_gpu: bool
    environments: int
    counts: tuple[int, int, int]
    training_batch: int
    rounds: list[Round]

    def over_rounds(self, value: Callable[[Round], float]) -> Spread:
        return spread(value(each) for each in self.rounds)

    def cost(self, part: str, batch: int) -> Spread:
        """Of "inference" or "training", in seconds per action."""
        return spread(getattr(each, part)[batch] for each in self.rounds)

    def cores_of(self, role: str) -> Spread:
        """Cores that "agents", "predictors" or "trainers" used."""
        return spread(getattr(each, f"cores_of_{role}") for each in self.rounds)

    def ratio_to(self, peer: str) -> Spread:
        return spread(each.pps / each.peers[peer] for each in self.rounds)

    def best(self, part: str) -> int:
        """The batch size at which inference, or training, costs least per action."""
        return min(getattr(self.rounds[0], part), key=lambda size: self.cost(part, size).median)

    def bound(self, each: Round) -> float:
        """Actions per second that nothing on this machine can exceed: on a CPU, cores over the sum of the
        three costs; with a GPU, the smaller of what the agents' cores and what the device can do.

        Inference counts at its best batch size, training at the configured one, which decides what is
        learned. With a GPU one core is the server's, whose Python runs on one at a time.
        """
        model = self._model_cost(each)
        if self.on_gpu:
            return min(self._emulation_beside_a_gpu(each), 1 / model)
        return self.cores / (self.cores / each.emulation + model)

    def efficiency(self, each: Round) -> float:
        return each.pps / self.bound(each)

    def idle_cores(self, each: Round) -> float:
        used = each.cores_of_agents + each.cores_of_predictors + each.cores_of_trainers
        return max(self.cores - used, 0.0)

    def bottleneck(self) -> str:
        """One sentence: what limits PPS here, and the knob that moves it."""
        if self.on_gpu and spread(map(self._device_headroom, self.rounds)).median < 1:
            return "The device is the limit: a smaller network.name or larger batches move it."
        idle = self.over_rounds(self.idle_cores).median / self.cores
        shares = {name: self.cores_of(name).median / self.cores for name in ROLES}
        for role, times in (("trainers", "trainer_times"), ("predictors", "predictor_times")):
            if spread(getattr(each, times)["waiting"] for each in self.rounds).median < NEVER_WAITING:
                return (
                    f"The {role} are the limit, they never wait: more {role}.count or larger batches move it."
                )
        busiest = max(shares, key=lambda name: shares[name])
        part = f"{shares[busiest]:.0%} of the cores"
        if idle > IDLE_CORES:
            return f"Waiting is the limit, {idle:.0%} of the cores are idle: more agents.count moves it."
        if busiest == "agents":
            return f"The emulators are the limit, {part}: only more or faster cores move it."
        if busiest == "trainers":
            best = self.best("training")
            gain = 1 - self.cost("training", best).median / self.cost("training", self.training_batch).median
            larger = f"; training.min_batch_size={best} costs {gain:.0%} less per action" if gain > 0 else ""
            return f"Training is the limit, {part}: a smaller network.name moves it{larger}."
        return f"Prediction is the limit, {part}: more agents.environments make its batches larger."

    def _model_cost(self, each: Round) -> float:
        return each.inference[self.best("inference")] + each.training[self.training_batch]

    def _emulation_beside_a_gpu(self, each: Round) -> float:
        return each.emulation * max(self.cores - 1, 1) / self.cores

    def _device_headroom(self, each: Round) -> float:
        return 1 / self._model_cost(each) / self._emulation_beside_a_gpu(each)

    def summary(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self) | {
            "pps": asdict(self.over_rounds(lambda each: each.pps)),
            "bound": asdict(self.over_rounds(self.bound)),
            "efficiency": asdict(self.over_rounds(self.efficiency)),
            "ratio_to_emulation": asdict(self.over_rounds(lambda each: each.pps / each.emulation)),
            "ratio_to": {peer: asdict(self.ratio_to(peer)) for peer in self.rounds[0].peers},
            "bottleneck": self.bottleneck(),
        }
