"""The paper's RMSProp against equation 3 written out."""

import dataclasses

import pytest
import torch
from torch import nn

from ga3c import optimizer
from ga3c.config import Training
from ga3c.optimizer import RMSProp


def test_two_steps_agree_with_equation_3():
    theta = torch.tensor([1.0, -2.0], requires_grad=True)
    rmsprop = RMSProp([theta], lr=0.1, decay=0.9, epsilon=0.01)
    g, expected = [1.0, 1.0], [1.0, -2.0]
    for gradient in ([0.5, -1.0], [0.2, 3.0]):
        theta.grad = torch.tensor(gradient)
        rmsprop.step()
        for i in range(2):
            g[i] = 0.9 * g[i] + 0.1 * gradient[i] ** 2
            expected[i] -= 0.1 * gradient[i] / (g[i] + 0.01) ** 0.5
    assert theta.tolist() == pytest.approx(expected)


def test_state_dict_carries_statistics_and_knobs():
    def stepped(theta, rmsprop, times):
        for _ in range(times):
            theta.grad = torch.ones(3)
            rmsprop.step()
        return theta

    straight = torch.zeros(3, requires_grad=True)
    stepped(straight, RMSProp([straight], 0.1, 0.9, 0.01), 4)
    first = torch.zeros(3, requires_grad=True)
    before = RMSProp([first], 0.1, 0.9, 0.01)
    stepped(first, before, 2)
    after = RMSProp([first], 0.7, 0.5, 0.1)
    after.load_state_dict(before.state_dict())
    stepped(first, after, 2)
    assert torch.equal(first, straight)


def test_configured_optimiser_is_built():
    network = nn.Linear(2, 2)
    rmsprop = optimizer.build(network, Training(learning_rate=3e-4, rmsprop_decay=0.95, rmsprop_epsilon=0.1))
    assert rmsprop.defaults == {"lr": 3e-4, "decay": 0.95, "epsilon": 0.1}
    adam = optimizer.build(network, dataclasses.replace(Training(), optimizer="adam", adam_epsilon=1e-4))
    assert isinstance(adam, torch.optim.Adam)
    assert adam.defaults["eps"] == 1e-4
