"""Inference and training alone, on one thread (CPU) or on the device that nobody else uses (GPU)."""

import time
from collections.abc import Callable

import numpy as np
import torch

from ga3c.config import Config
from ga3c.environments import Spec
from ga3c.metrics import Metrics
from ga3c.model import Model
from ga3c.predictor import choose_actions
from ga3c.slots import Layout
from ga3c.trainer import Batch, Collector, Trainer


class Compute:
    """A model of its own, like that of the run, fed with random observations.

    On a GPU, the times are those of one call at a time, from handing it out until its result is there.
    """

    def __init__(self, config: Config, spec: Spec) -> None:
        torch.set_num_threads(1)
        self._config, self._spec = config, spec
        self._layout = Layout(spec, 1, config.training.t_max, config.agents.environments)
        self._model = Model(spec, config)
        self._random = np.random.default_rng(config.seed)
        self._replica = self._model.replica()
        self._replica.refresh()
        self._generator = torch.Generator(self._model.device).manual_seed(config.seed)

    def batch(self, experiences: int) -> Batch:
        """Blank, of whole rollouts: of one at least, and of as many experiences at least."""
        model = self._model
        return Batch(self._layout, model.network.packing, experiences, model.device.type == "cuda")

    def inference(self, batch: int, seconds: float) -> float:
        """Seconds per action, for passes of ``batch`` observations that are in memory already."""
        observations = self._observations(batch)
        device = self._model.device

        def predict() -> None:
            on_device = observations.to(device, non_blocking=True)
            choose_actions(self._replica.network, on_device, self._generator).cpu()

        return _seconds_per_call(predict, seconds) / batch

    def training(self, experiences: int, seconds: float) -> float:
        """Seconds per action, for updates from batches of ``experiences`` that are in memory already."""
        model, settings = self._model, self._config.training
        batch = self.batch(experiences)
        for array in batch.arrays.values():
            array[...] = 0
        batch.arrays["actions"][...] = self._random.integers(
            self._spec.actions, size=batch.arrays["actions"].shape
        )
        batch.observations.copy_(self._observations(batch.experiences))
        metrics = Metrics(self._spec.frames_per_action)
        trainer = Trainer(model, _NoCollector(), metrics, settings, self._config.run.frames)
        return _seconds_per_call(lambda: trainer.update(batch), seconds) / batch.experiences

    def _observations(self, count: int) -> torch.Tensor:
        shape = (count, *self._spec.observation_shape)
        if self._spec.is_image:
            observations = self._random.integers(0, 256, shape, np.uint8)
        else:
            observations = self._random.normal(size=shape).astype(self._spec.observation_dtype)
        return self._model.network.packing.pack(observations)


class _NoCollector(Collector):
    def __init__(self) -> None:
        """Batches are given to the trainer by hand."""


def _seconds_per_call(call: Callable[[], None], seconds: float) -> float:
    """Mean over at least ``seconds`` and two calls, after one that does not count."""
    call()
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds or calls < 2:
        call()
        calls += 1
    return passed / calls
