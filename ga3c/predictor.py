"""The predictor thread: all waiting requests, one forward pass, answers out (paper section 4.1).

Read after agent.py.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ga3c.channels import AgentChannel, Reply, Stop, TokenQueue
from ga3c.metrics import Metrics
from ga3c.model import Model
from ga3c.network import ActorCritic
from ga3c.slots import Layout


class Predictor:
    """Answers requests until stopped. ``channels`` maps agent numbers to agents that are alive."""

    def __init__(
        self,
        model: Model,
        queue: TokenQueue,
        channels: Mapping[int, AgentChannel],
        metrics: Metrics,
        layout: Layout,
        max_batch: int,
        seed: int,
    ) -> None:
        self._replica = model.replica()
        self._device = model.device
        self._queue, self._channels, self._metrics = queue, channels, metrics
        self._t_max, self._environments = layout.t_max, layout.environments
        self._most = max(1, max_batch // layout.environments)
        self._generator = torch.Generator(model.device).manual_seed(seed)
        self._staging: Tensor | None = None
        self._stopwatch = metrics.stopwatch("predictor")

    def __call__(self, stop: Stop) -> None:
        while tokens := self._queue.take(self._most, stop):
            self._stopwatch.lap("waiting")
            requests = []
            for token in tokens:
                channel = self._channels.get(token.agent)
                if channel is not None and channel.is_open:
                    channel.has_asked = True
                    requests.append((channel, token))
            if not requests:
                continue
            rows = [channel.slots.observations[token.slot, token.row] for channel, token in requests]
            answers, version = self._predict(rows)
            for index, (channel, token) in enumerate(requests):
                payload = answers[:, index * self._environments :][:, : self._environments]
                channel.reply(Reply.PREDICTION, token.slot, version, payload)
            chosen = sum(token.row < self._t_max for _, token in requests)
            self._metrics.add_predictions(
                actions=chosen * self._environments, observations=len(requests) * self._environments
            )
            self._stopwatch.lap("replying")

    def _predict(self, rows: list[np.ndarray]) -> tuple[np.ndarray, int]:
        """Observations of one or more agents to float32 [3, N]: actions, their probabilities, values."""
        observations = self._gather(rows)
        self._stopwatch.lap("gathering")
        version = self._replica.refresh()
        on_device = observations.to(self._device, non_blocking=True)
        answers = choose_actions(self._replica.network, on_device, self._generator).cpu().numpy()
        self._stopwatch.lap("forward")
        return answers, version

    def _gather(self, rows: list[np.ndarray]) -> Tensor:
        packing, each = self._replica.network.packing, self._environments
        count = len(rows) * each
        if self._staging is None or len(self._staging) < count:
            blank = torch.from_numpy(np.empty((count, *packing.shape), packing.dtype))
            self._staging = blank.pin_memory() if self._device.type == "cuda" else blank
        gathered = self._staging[:count]
        for index, observations in enumerate(rows):
            packing.write(observations, gathered[index * each :][:each].numpy())
        return gathered


@torch.inference_mode()
def choose_actions(network: ActorCritic, packed: Tensor, generator: torch.Generator) -> Tensor:
    """Sample an action for each observation; float32 [3, N]: actions, their probabilities, values."""
    logits, values = network(packed)
    policy = torch.softmax(logits, dim=1)
    actions = torch.multinomial(policy, 1, generator=generator)
    chosen = policy.gather(1, actions).squeeze(1)
    return torch.stack((actions.squeeze(1).float(), chosen, values))
