"""The optimisers against their published equations, written out."""

import dataclasses

import pytest
import torch

from ga3c import optimizer
from ga3c.config import Training
from ga3c.optimizer import Adam, RMSProp

GRADIENTS = ([0.5, -1.0], [0.2, 3.0])


def test_two_rmsprop_steps_agree_with_equation_3():
    theta = torch.tensor([1.0, -2.0])
    rmsprop = RMSProp([theta], decay=0.9, epsilon=0.01)
    g, expected = [1.0, 1.0], [1.0, -2.0]
    for gradient in GRADIENTS:
        rmsprop.step([torch.tensor(gradient)], learning_rate=0.1)
        for i in range(2):
            g[i] = 0.9 * g[i] + 0.1 * gradient[i] ** 2
            expected[i] -= 0.1 * gradient[i] / (g[i] + 0.01) ** 0.5
    assert theta.tolist() == pytest.approx(expected)


def test_two_adam_steps_agree_with_kingma_and_ba():
    theta = torch.tensor([1.0, -2.0], requires_grad=True)
    adam = Adam([theta], epsilon=0.01)
    m, v, expected = [0.0, 0.0], [0.0, 0.0], [1.0, -2.0]
    for t, (gradient, rate) in enumerate(zip(GRADIENTS, (0.1, 0.3), strict=True), start=1):
        adam.step([torch.tensor(gradient)], learning_rate=rate)
        for i in range(2):
            m[i] = 0.9 * m[i] + 0.1 * gradient[i]
            v[i] = 0.999 * v[i] + 0.001 * gradient[i] ** 2
            root = (v[i] / (1 - 0.999**t)) ** 0.5
            expected[i] -= rate * m[i] / (1 - 0.9**t) / (root + 0.01)
    assert theta.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_state_carries_the_statistics(name):
    settings = dataclasses.replace(Training(), optimizer=name)

    def stepped(theta, made, times):
        for _ in range(times):
            made.step([torch.ones(3)], learning_rate=0.1)
        return theta

    straight, first = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    stepped(straight, optimizer.build([straight], settings), 4)
    before = optimizer.build([first], settings)
    stepped(first, before, 2)
    after = optimizer.build([first], settings)
    after.load_state(before.state())
    stepped(first, after, 2)
    assert torch.equal(first, straight)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("optimizer", "adam"), ("rmsprop_decay", 0.5), ("rmsprop_epsilon", 1.0)],
)
def test_knobs_reach_the_optimiser(knob, value):
    def moved(settings):
        theta = torch.zeros(1, requires_grad=True)
        made = optimizer.build([theta], settings)
        made.step([torch.full((1,), 0.1)], learning_rate=0.1)
        return theta.item()

    assert moved(Training()) != moved(dataclasses.replace(Training(), **{knob: value}))
