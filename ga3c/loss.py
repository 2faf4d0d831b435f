"""The mathematics of learning: n-step returns and the epsilon-stabilised actor-critic loss.

Pure functions. Equation numbers are those of Babaeizadeh et al. (2017).
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor


def n_step_returns(
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    truncation_values: np.ndarray,
    bootstrap: np.ndarray,
    discount: float,
) -> np.ndarray:
    """R_t of equation 1, for rollouts in which any number of games may end.

    ``rewards``, ``terminated``, ``truncated`` and ``truncation_values`` are [rollouts, t_max,
    environments], ``bootstrap`` (the value of the state after the last action) is [rollouts,
    environments]. The reward of the last action always counts. After it, a terminated game is worth
    nothing, and a truncated one ``truncation_values``. Returns float32 of the shape of ``rewards``.
    """
    returns = np.empty(rewards.shape, np.float32)
    following = bootstrap
    for t in reversed(range(rewards.shape[1])):
        following = np.where(truncated[:, t], truncation_values[:, t], following)
        following = np.where(terminated[:, t], 0.0, following)
        following = rewards[:, t] + discount * following
        returns[:, t] = following
    return returns


class Loss(NamedTuple):
    """The total to minimise, and its parts as means over the batch (for the metrics)."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor


def actor_critic_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    returns: Tensor,
    entropy_beta: float,
    value_weight: float,
    log_epsilon: float,
    reduction: Literal["mean", "sum"],
) -> Loss:
    """Equations 1, 2 and 5 with their sign turned, so that it is minimised.

    ``logits`` are [N, actions] float, ``values`` and ``returns`` [N] float, ``actions`` [N] int64.
    The policy's term is -log(pi(a) + epsilon) (R - V), in which V gives no gradient; the entropy is
    -sum(pi log(pi + epsilon)); the value's is (R - V)^2. Gradients are finite for pi(a) = 0.
    """
    policy = torch.softmax(logits, dim=1)
    chosen = policy.gather(1, actions.unsqueeze(1)).squeeze(1)
    advantages = returns - values
    policy_loss = -(torch.log(chosen + log_epsilon) * advantages.detach())
    entropy = -(policy * torch.log(policy + log_epsilon)).sum(1)
    value_loss = advantages.square()
    each = policy_loss - entropy_beta * entropy + value_weight * value_loss
    total = each.mean() if reduction == "mean" else each.sum()
    return Loss(total, policy_loss.detach().mean(), value_loss.detach().mean(), entropy.detach().mean())


def linear_schedule(start: float, end: float, fraction: float) -> float:
    """``start`` at fraction 0, ``end`` from fraction 1 on, linear in between."""
    return start + (end - start) * min(max(fraction, 0.0), 1.0)
