"""The trainer thread: experiences of several agents, one update of the model (paper sections 4.1, 5.3).

Read after predictor.py. Trainers take turns to collect a training batch and compute at the same time.
"""

import math
import threading
from collections.abc import Callable, MutableMapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ga3c.channels import LAST_SLOT, AgentChannel, Reply, Stop, Token, TokenQueue
from ga3c.config import Training
from ga3c.loss import actor_critic_loss, linear_schedule, n_step_returns
from ga3c.metrics import Metrics
from ga3c.model import Model
from ga3c.packing import Packing
from ga3c.slots import Layout
from ga3c.stopwatch import Stopwatch

_TURN_SECONDS = 0.1

_COPIED = (
    "actions",
    "versions",
    "rewards",
    "terminated",
    "truncated",
    "truncation_values",
    "bootstrap",
)


class Batch:
    """A training batch: whole rollouts, copied out of their agents' slots.

    ``observations`` are packed, [experiences, *packing.shape]; ``arrays`` are those of ``slots.Slots``
    with the rollout as first dimension.
    """

    def __init__(self, layout: Layout, packing: Packing, min_batch_size: int, pinned: bool) -> None:
        self._rollout = layout.t_max * layout.environments
        self.rollouts = max(1, math.ceil(min_batch_size / self._rollout))
        self.experiences = self.rollouts * self._rollout
        self.arrays: dict[str, np.ndarray] = {}
        for name in _COPIED:
            _, (_, *shape), dtype = layout.places[name]
            self.arrays[name] = np.empty((self.rollouts, *shape), dtype)
        self._packing = packing
        observations = torch.from_numpy(np.empty((self.experiences, *packing.shape), packing.dtype))
        self.observations: Tensor = observations.pin_memory() if pinned else observations

    def copy(self, index: int, channel: AgentChannel, slot: int) -> None:
        for name, array in self.arrays.items():
            array[index] = getattr(channel.slots, name)[slot]
        played = channel.slots.observations[slot, : channel.layout.t_max]
        place = self.observations[index * self._rollout :][: self._rollout]
        self._packing.write(played.reshape(self._rollout, *played.shape[2:]), place.numpy())


class Collector:
    """Merges rollouts into training batches; one trainer collects at a time.

    ``channels`` is also the register of agents with experiences still to come: a dead agent is
    removed from it here, when the last of its tokens has been seen.
    """

    def __init__(
        self,
        queue: TokenQueue,
        channels: MutableMapping[int, AgentChannel],
        metrics: Metrics,
        new_batch: Callable[[], Batch],
    ) -> None:
        self._queue, self._channels, self._metrics = queue, channels, metrics
        self._new_batch = new_batch
        self._turn = threading.Lock()
        self._spare: list[Batch] = []
        self._batch, self._filled = new_batch(), 0

    def collect(self, stop: Stop, stopwatch: Stopwatch) -> Batch | None:
        """Wait until the batch is full; None once stopped. What was gathered waits for the next caller."""
        while not self._turn.acquire(timeout=_TURN_SECONDS):
            if stop.is_set():
                return None
        try:
            while self._filled < self._batch.rollouts:
                tokens = self._queue.take(self._batch.rollouts - self._filled, stop)
                stopwatch.lap("waiting")
                if not tokens:
                    return None
                for token in tokens:
                    self._accept(token)
                stopwatch.lap("gathering")
            full, self._filled = self._batch, 0
            self._batch = self._spare.pop() if self._spare else self._new_batch()
            return full
        finally:
            self._turn.release()

    def give_back(self, batch: Batch) -> None:
        """Let the memory of a batch be filled again."""
        self._spare.append(batch)

    def _accept(self, token: Token) -> None:
        if token.slot == LAST_SLOT:
            del self._channels[token.agent]
        elif token.agent in self._channels:  # else it was given up for dead, and was not
            self._gather(self._channels[token.agent], token.slot)

    def _gather(self, channel: AgentChannel, slot: int) -> None:
        self._batch.copy(self._filled, channel, slot)
        scores = channel.slots.scores[slot]
        for place in zip(*np.nonzero(~np.isnan(scores)), strict=True):
            self._metrics.add_game(float(scores[place]), int(channel.slots.lengths[slot][place]))
        channel.reply(Reply.SLOT_IS_FREE, slot)
        self._filled += 1


class Schedule(NamedTuple):
    learning_rate: float
    entropy_beta: float


def schedule(settings: Training, fraction: float) -> Schedule:
    """eta and beta when ``fraction`` of the run's frames have been played."""
    return Schedule(
        linear_schedule(settings.learning_rate, settings.learning_rate_end, fraction),
        linear_schedule(settings.entropy_beta, settings.entropy_beta_end, fraction),
    )


class Trainer:
    """Updates the model, batch after batch, until stopped. Raises FloatingPointError on a loss or
    gradient that is not finite, before the model is touched."""

    def __init__(
        self, model: Model, collector: Collector, metrics: Metrics, settings: Training, run_frames: int
    ) -> None:
        self._model, self._collector, self._metrics = model, collector, metrics
        self._settings, self._run_frames = settings, run_frames
        self._replica = model.replica()
        self._stopwatch = metrics.stopwatch("trainer")

    def __call__(self, stop: Stop) -> None:
        while (batch := self._collector.collect(stop, self._stopwatch)) is not None:
            self.update(batch)
            self._collector.give_back(batch)

    def update(self, batch: Batch) -> None:
        """One update of the model from one training batch."""
        settings, arrays, device = self._settings, batch.arrays, self._model.device
        now = schedule(settings, self._metrics.frames / self._run_frames)
        rewards = arrays["rewards"]
        if settings.reward_clip:
            rewards = np.clip(rewards, -settings.reward_clip, settings.reward_clip)
        returns = n_step_returns(
            rewards,
            arrays["terminated"],
            arrays["truncated"],
            arrays["truncation_values"],
            arrays["bootstrap"],
            settings.discount,
        )
        self._replica.refresh()
        logits, values = self._replica.network(batch.observations.to(device, non_blocking=True))
        loss = actor_critic_loss(
            logits,
            values,
            torch.from_numpy(arrays["actions"]).flatten().to(device),
            torch.from_numpy(returns).flatten().to(device),
            now.entropy_beta,
            settings.value_weight,
            settings.log_epsilon,
            settings.reduction,
        )
        self._stopwatch.lap("forward")
        gradients = torch.autograd.grad(loss.total, self._replica.parameters)
        self._stopwatch.lap("backward")
        norm, version = self._model.apply(gradients, now.learning_rate)
        policy_loss, value_loss, entropy = torch.stack((loss.policy, loss.value, loss.entropy)).tolist()
        lag = version - arrays["versions"]
        self._metrics.add_update(
            experiences=batch.experiences,
            lag_mean=float(lag.mean()),
            lag_max=int(lag.max()),
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            gradient_norm=norm,
            learning_rate=now.learning_rate,
        )
        self._stopwatch.lap("optimiser")
