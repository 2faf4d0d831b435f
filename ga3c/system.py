"""One model, two queues, agents, predictors and trainers, wired together (paper figure 1b):

agents ──▶ prediction queue ──▶ predictors ──▶ replies to the agents
agents ──▶ training queue ────▶ trainers ────▶ one model, one device
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ga3c.config import Config, Counts
from ga3c.environments import Spec
from ga3c.memory import keep_freed_memory
from ga3c.metrics import Gauges, Metrics, Row, Totals
from ga3c.model import Model
from ga3c.predictor import Predictor
from ga3c.slots import Layout
from ga3c.supervisor import Supervisor
from ga3c.trainer import Batch, Collector, Trainer


class System:
    """What trains, from ``set_counts`` until ``supervisor.stop``, while somebody calls ``supervisor.watch``.

    ``counters`` is what another system's ``counters`` returned, to count on from there; ``warn`` is told
    of agents that had to be replaced.
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        model: Model,
        warn: Callable[[str], None],
        counters: dict[str, Any] | None = None,
    ) -> None:
        torch.set_num_threads(1)  # N_P and N_T say how many cores compute
        keep_freed_memory()
        self._config, self._model = config, model
        before = counters or {"totals": {}, "scores": [], "next_agent": 0, "next_predictor": 0}
        self.metrics = Metrics(spec.frames_per_action, Totals(**before["totals"]), before["scores"])
        self._next_predictor: int = before["next_predictor"]
        self._layout = Layout(spec, config.agents.slots, config.training.t_max, config.agents.environments)
        self.supervisor = Supervisor(
            config, self._layout, before["next_agent"], self._new_predictor, self._new_trainer, warn
        )
        self.collector = Collector(
            self.supervisor.trainings, self.supervisor.channels, self.metrics, self.new_batch
        )

    @property
    def counts(self) -> Counts:
        supervisor = self.supervisor
        return Counts(supervisor.agents, supervisor.predictors, supervisor.trainers)

    def set_counts(self, counts: Counts, spare_agents: int = 0) -> None:
        """Change N_A, N_P and N_T, and how many more agents are kept ready to play."""
        self.supervisor.set_trainers(counts.trainers)
        self.supervisor.set_predictors(counts.predictors)
        self.supervisor.set_agents(counts.agents)
        self.supervisor.set_spare_agents(spare_agents)

    def sample(self) -> Row:
        """What happened since the last call, and what there is now."""
        supervisor = self.supervisor
        return self.metrics.sample(
            Gauges(
                prediction_queue=len(supervisor.predictions),
                training_queue=len(supervisor.trainings),
                **self.counts._asdict(),
            )
        )

    def counters(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the model."""
        return {
            "totals": asdict(self.metrics.totals),
            "scores": self.metrics.recent_scores,
            "next_agent": self.supervisor.next_agent,
            "next_predictor": self._next_predictor,
        }

    def new_batch(self) -> Batch:
        pinned = self._model.device.type == "cuda"
        packing = self._model.network.packing
        return Batch(self._layout, packing, self._config.training.min_batch_size, pinned)

    def _new_predictor(self) -> Predictor:
        number, self._next_predictor = self._next_predictor, self._next_predictor + 1
        seed = np.random.SeedSequence(self._config.seed, spawn_key=(0, number))
        return Predictor(
            self._model,
            self.supervisor.predictions,
            self.supervisor.channels,
            self.metrics,
            self._layout,
            self._config.predictors.max_batch,
            int(seed.generate_state(1)[0]),
        )

    def _new_trainer(self) -> Trainer:
        config = self._config
        return Trainer(self._model, self.collector, self.metrics, config.training, config.run.frames)
