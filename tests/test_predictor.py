"""The predictor's answers: sampled from the policy, with the probability and value that belong to them."""

import numpy as np
import pytest
import torch

from ga3c.channels import Reply, Stop, Token, TokenQueue
from ga3c.config import load
from ga3c.environments import Spec
from ga3c.metrics import Gauges, Metrics
from ga3c.model import Model
from ga3c.predictor import Predictor
from ga3c.slots import Layout

SPEC = Spec((4,), "float32", 3, 1)
LAYOUT = Layout(SPEC, slots=2, t_max=5, environments=250)


class Channel:
    """Stands for an agent: observations in, replies kept."""

    is_open, has_asked, layout = True, False, LAYOUT

    def __init__(self, stop, replies):
        self.slots = self
        self.observations = np.random.default_rng(0).normal(size=(2, 6, 250, 4)).astype(np.float32)
        self.replies, self._stop, self._most = [], stop, replies

    def reply(self, kind, slot, version, payload):
        assert kind == Reply.PREDICTION
        self.replies.append((slot, version, payload.copy()))
        if len(self.replies) == self._most:
            self._stop.set()


@pytest.fixture
def answered():
    """Run a predictor over tokens until it has answered ``replies`` of them."""

    def run(tokens, replies, model, max_batch=1000):
        queue, stop = TokenQueue(), Stop()
        channel, metrics = Channel(stop, replies), Metrics(frames_per_action=4)
        try:
            for token in tokens:
                queue.put(token)
            Predictor(model, queue, {7: channel}, metrics, LAYOUT, max_batch, seed=3)(stop)
        finally:
            queue.close()
            stop.close()
        return channel, metrics.sample(Gauges(0, 0, 1, 1, 1))

    return run


@pytest.fixture
def model():
    model = Model(SPEC, load(None, {}))
    with torch.no_grad():
        model.network.policy.weight.mul_(300)  # a policy that is not uniform
    return model


def test_actions_are_sampled_from_the_policy_and_told_with_their_probability_and_value(answered, model):
    channel, row = answered([Token(7, 0, t % 5) for t in range(200)], 200, model)
    with torch.inference_mode():
        logits, values = model.network(torch.from_numpy(channel.observations[0, :5].reshape(-1, 4)))
    policy = logits.softmax(1).reshape(5, 250, 3).numpy()
    counts = np.zeros((5, 250, 3))
    for reply, (_, _, (actions, probabilities, told)) in enumerate(channel.replies):
        chosen = actions.astype(int)
        counts[reply % 5, np.arange(250), chosen] += 1
        expected = policy[reply % 5, np.arange(250), chosen]
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        np.testing.assert_allclose(told, values.reshape(5, 250)[reply % 5], atol=1e-5)
    assert policy.std() > 0.1
    frequencies = counts.sum((0, 1)) / counts.sum()
    np.testing.assert_allclose(frequencies, policy.mean((0, 1)), atol=0.01)
    close = np.abs(counts / 40 - policy) < 5 * np.sqrt(policy * (1 - policy) / 40) + 0.03
    assert close.all()
    assert row.predictions == 200 * 250


def test_requests_that_wait_are_answered_by_one_pass_up_to_the_maximum_batch(answered, model):
    tokens = [Token(7, slot, row) for slot in (0, 1) for row in range(5)]
    _, row = answered(tokens, 10, model, max_batch=2500)
    assert row.prediction_batch == 2500
    _, row = answered(tokens, 10, model, max_batch=500)
    assert row.prediction_batch == 500
    _, row = answered(tokens, 10, model, max_batch=1)
    assert row.prediction_batch == 250, "an agent's request is never split"


def test_values_of_truncated_games_are_no_actions(answered, model):
    _, row = answered([Token(7, 0, 0), Token(7, 0, 5)], 2, model)
    assert (row.predictions, row.frames, row.prediction_batch) == (250, 1000, 500)


def test_requests_of_agents_that_are_gone_are_passed_over(answered, model):
    channel, row = answered([Token(6, 0, 0), Token(7, 0, 1)], 1, model)
    assert [slot for slot, _, _ in channel.replies] == [0]
    assert row.predictions == 250


def test_prediction_is_made_by_the_newest_version_and_says_so(answered, model):
    model.apply([torch.zeros_like(parameter) for parameter in model.parameters], learning_rate=0.1)
    channel, _ = answered([Token(7, 1, 2)], 1, model)
    assert [version for _, version, _ in channel.replies] == [1]
