"""Returns and loss against literal numbers and an independent float64 reference."""

import math

import numpy as np
import pytest
import torch

from ga3c.loss import actor_critic_loss, linear_schedule, n_step_returns


def _returns(rewards, terminated=(), truncated=(), truncation_value=0.0, bootstrap=0.0, discount=0.5):
    steps = len(rewards)
    ends = np.zeros((2, 1, steps, 1), bool)
    ends[0, 0, list(terminated)] = True
    ends[1, 0, list(truncated)] = True
    values = np.full((1, steps, 1), truncation_value)
    shaped = np.array(rewards, np.float32).reshape(1, steps, 1)
    return n_step_returns(shaped, *ends, values, np.full((1, 1), bootstrap), discount).flatten().tolist()


def test_returns_are_discounted_and_bootstrapped():
    assert _returns([1, 2, 4], bootstrap=8) == [1 + 1 + 1 + 1, 2 + 2 + 2, 4 + 4]


def test_reward_of_the_last_step_of_a_terminated_game_counts_and_nothing_after_it_does():
    assert _returns([0, 0, 1], terminated=[2], bootstrap=100) == [0.25, 0.5, 1]


def test_game_that_ends_inside_a_rollout_does_not_see_the_next_game():
    assert _returns([1, 1, 1, 1], terminated=[1], bootstrap=4) == [1.5, 1, 2.5, 3]


def test_truncated_game_is_bootstrapped_by_the_state_it_ended_in():
    assert _returns([1, 1, 1], truncated=[1], truncation_value=6, bootstrap=100) == [3, 4, 51]


def test_game_that_is_both_terminated_and_truncated_is_terminated():
    assert _returns([1, 1], terminated=[1], truncated=[1], truncation_value=6, bootstrap=100) == [1.5, 1]


def test_rollouts_and_environments_do_not_mix():
    generator = np.random.default_rng(3)
    shape = (3, 7, 4)
    rewards = generator.normal(size=shape)
    terminated, truncated = generator.random(shape) < 0.2, generator.random(shape) < 0.2
    truncation_values, bootstrap = generator.normal(size=shape), generator.normal(size=(3, 4))
    together = n_step_returns(rewards, terminated, truncated, truncation_values, bootstrap, 0.9)
    for rollout in range(3):
        for environment in range(4):
            expected, following = [], bootstrap[rollout, environment]
            for t in range(6, -1, -1):
                place = (rollout, t, environment)
                if terminated[place]:
                    following = 0.0
                elif truncated[place]:
                    following = truncation_values[place]
                following = rewards[place] + 0.9 * following
                expected.insert(0, following)
            np.testing.assert_allclose(together[rollout, :, environment], expected, rtol=1e-5)


def _reference(logits, values, actions, returns, beta, weight, epsilon):
    """Equations 1, 2 and 5 written out in float64, one experience at a time."""
    losses = []
    for row, value, action, target in zip(logits, values, actions, returns, strict=True):
        exponentials = [math.exp(x - max(row)) for x in row]
        pi = [x / sum(exponentials) for x in exponentials]
        policy = -math.log(pi[action] + epsilon) * (target - value)
        entropy = -sum(p * math.log(p + epsilon) for p in pi)
        losses.append(policy - beta * entropy + weight * (target - value) ** 2)
    return losses


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_agrees_with_an_independent_reference(reduction):
    generator = np.random.default_rng(0)
    logits, values = generator.normal(size=(32, 6)) * 3, generator.normal(size=32)
    actions, returns = generator.integers(0, 6, 32), generator.normal(size=32)
    expected = _reference(logits, values, actions, returns, beta=0.02, weight=0.5, epsilon=1e-3)
    loss = actor_critic_loss(
        torch.tensor(logits), torch.tensor(values), torch.tensor(actions), torch.tensor(returns),
        entropy_beta=0.02, value_weight=0.5, log_epsilon=1e-3, reduction=reduction,
    )  # fmt: skip
    assert loss.total.item() == pytest.approx(sum(expected) if reduction == "sum" else np.mean(expected))


def _gradients(logits, value, target, beta=0.0, weight=0.0, epsilon=1e-6):
    logits = torch.tensor([logits], requires_grad=True)
    values = torch.tensor([value], requires_grad=True)
    action, returns = torch.tensor([0]), torch.tensor([target])
    loss = actor_critic_loss(logits, values, action, returns, beta, weight, epsilon, "mean")
    return torch.autograd.grad(loss.total, (logits, values))


def test_gradients_are_finite_when_the_chosen_action_has_become_impossible():
    for gradient in _gradients([-1e4, 0.0, 0.0], value=0.0, target=1e3, beta=0.01, weight=0.5):
        assert torch.isfinite(gradient).all()


def test_a_better_return_than_expected_makes_the_action_more_probable():
    to_logits, _ = _gradients([0.0, 0.0], value=1.0, target=2.0)
    assert to_logits[0].tolist() == pytest.approx([-0.5, 0.5], abs=1e-5)


def test_policy_loss_gives_the_value_no_gradient_and_the_value_loss_does():
    assert _gradients([0.0, 0.0], value=1.0, target=3.0)[1].item() == 0.0
    assert _gradients([0.0, 0.0], value=1.0, target=3.0, weight=0.5)[1].item() == pytest.approx(-2.0)


def test_entropy_bonus_flattens_the_policy():
    to_logits, _ = _gradients([1.0, 0.0], value=0.0, target=0.0, beta=1.0)
    assert to_logits[0, 0] > 0 > to_logits[0, 1]


def test_schedule_is_linear_and_stays_at_its_end():
    assert [linear_schedule(4.0, 2.0, fraction) for fraction in (0, 0.25, 1, 7)] == [4.0, 3.5, 2.0, 2.0]
