"""One update: clipped rewards, scheduled rates, the policy lag, and the gradient of the loss."""

import numpy as np
import pytest
import torch

from ga3c.channels import Stop
from ga3c.config import load
from ga3c.environments import Spec
from ga3c.loss import actor_critic_loss, n_step_returns
from ga3c.metrics import Gauges, Metrics, Totals
from ga3c.model import Model
from ga3c.optimizer import RMSProp
from ga3c.packing import packing_for
from ga3c.slots import Layout
from ga3c.trainer import Batch, Trainer, schedule

SPEC = Spec((4,), "float32", 3, 4)
LAYOUT = Layout(SPEC, slots=2, t_max=5, environments=4)


class Once:
    """A collector of a single batch."""

    def __init__(self, batch):
        self.batch = batch

    def collect(self, *_):
        batch, self.batch = self.batch, None
        return batch

    def give_back(self, batch):
        self.given_back = batch


def make_batch(rewards=1.0, versions=0):
    generator = np.random.default_rng(1)
    batch = Batch(LAYOUT, packing_for(SPEC), min_batch_size=30, pinned=False)
    for array in batch.arrays.values():
        array[...] = 0
    batch.observations[...] = torch.from_numpy(generator.normal(size=batch.observations.shape))
    batch.arrays["actions"][...] = generator.integers(0, 3, batch.arrays["actions"].shape)
    batch.arrays["rewards"][...] = rewards
    batch.arrays["versions"][...] = versions
    batch.arrays["bootstrap"][...] = 0.5
    return batch


def train(batch, version=0, predictions=0, **knobs):
    config = load(None, {key.replace("__", "."): str(value) for key, value in knobs.items()})
    model = Model(SPEC, config)
    model.version = version
    metrics = Metrics(frames_per_action=4, totals=Totals(predictions=predictions))
    stop, collector = Stop(), Once(batch)
    Trainer(model, collector, metrics, config.training, config.run.frames)(stop)
    stop.close()
    assert collector.given_back is batch
    return model, metrics.sample(Gauges(0, 0, 1, 1, 1))


def test_batch_merges_rollouts_until_the_minimum_is_reached():
    sizes = {
        minimum: Batch(LAYOUT, packing_for(SPEC), minimum, pinned=False).experiences
        for minimum in (0, 1, 20, 21, 60)
    }
    assert sizes == {0: 20, 1: 20, 20: 20, 21: 40, 60: 60}


def test_policy_lag_is_counted_in_updates_between_prediction_and_learning():
    versions = np.array([[3, 3, 4, 5, 5], [5, 6, 6, 6, 7]])
    _, row = train(make_batch(versions=versions), version=9)
    assert row.lag_mean == pytest.approx(9 - versions.mean())
    assert row.lag_max == 6
    assert (row.training_batch, row.updates) == (40, 1)


def test_rewards_are_clipped_for_learning():
    clipped, _ = train(make_batch(rewards=100.0))
    one, _ = train(make_batch(rewards=1.0))
    raw, _ = train(make_batch(rewards=100.0), training__reward_clip=0)
    assert torch.equal(clipped.parameters[0], one.parameters[0])
    assert not torch.equal(raw.parameters[0], one.parameters[0])


def test_rates_are_those_of_the_frames_played():
    knobs = {"learning_rate": 4e-3, "learning_rate_end": 2e-3, "entropy_beta": 0.2, "entropy_beta_end": 0.0}
    settings = load(None, {f"training.{key}": str(value) for key, value in knobs.items()}).training
    assert schedule(settings, 0.25) == (pytest.approx(3.5e-3), pytest.approx(0.15))
    half = {f"training__{key}": value for key, value in knobs.items()}
    _, row = train(make_batch(), predictions=500, run__frames=4000, **half)
    assert row.learning_rate == pytest.approx(3e-3)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_update_applies_the_gradient_of_the_loss(reduction, monkeypatch):
    knobs = {
        "training__reduction": reduction,
        "training__max_gradient_norm": 0,
        "training__entropy_beta": 0.02,
        "training__entropy_beta_end": 0.02,
        "training__value_weight": 0.7,
        "training__discount": 0.9,
    }
    batch = make_batch()
    arrays = batch.arrays
    untouched = Model(SPEC, load(None, {}))
    logits, values = untouched.network(batch.observations)
    returns = n_step_returns(
        arrays["rewards"], arrays["terminated"], arrays["truncated"], arrays["truncation_values"],
        arrays["bootstrap"], 0.9,
    )  # fmt: skip
    actions = torch.from_numpy(arrays["actions"]).flatten()
    loss = actor_critic_loss(
        logits, values, actions, torch.from_numpy(returns).flatten(), 0.02, 0.7, 1e-6, reduction
    )
    expected = torch.autograd.grad(loss.total, list(untouched.network.parameters()))
    applied = []
    monkeypatch.setattr(RMSProp, "step", lambda _, gradients, learning_rate: applied.extend(gradients))
    _, row = train(batch, **knobs)
    torch.testing.assert_close(applied, list(expected))
    assert row.gradient_norm == pytest.approx(torch.nn.utils.get_total_norm(expected).item(), rel=1e-4)


def test_loss_that_is_not_finite_stops_the_trainer_before_the_model_changes():
    batch = make_batch(rewards=np.nan)
    config = load(None, {})
    model = Model(SPEC, config)
    before = model.parameters[0].clone()
    stop = Stop()
    with pytest.raises(FloatingPointError):
        Trainer(model, Once(batch), Metrics(1), config.training, 100)(stop)
    stop.close()
    assert torch.equal(model.parameters[0], before)
