"""The optimisers, each one step from gradients that the trainer computed.

torch has no RMSProp with epsilon inside the root. Ours is no ``torch.optim.Optimizer``, because the first
of these imports torch's compiler, which takes more than a second.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ga3c.config import Training


class Optimizer(Protocol):
    """Updates the parameters that it was made for; its state can be saved and continued from."""

    def step(self, gradients: list[Tensor], learning_rate: float) -> None: ...

    def state(self) -> dict[int, dict[str, Any]]:
        """The statistics of each parameter, by its position."""

    def load_state(self, state: dict[int, dict[str, Any]]) -> None: ...


class RMSProp:
    """Non-centred RMSProp with epsilon inside the root (Tieleman & Hinton, 2012; paper equation 3).

    g = alpha g + (1 - alpha) d^2 and theta = theta - eta d / sqrt(g + epsilon) for each gradient d.
    g begins at 1: from 0 the first steps would be ten times eta for every weight, enough to silence a
    whole layer of rectifiers for good.
    """

    def __init__(self, parameters: Sequence[Tensor], decay: float, epsilon: float) -> None:
        self._parameters, self._decay, self._epsilon = list(parameters), decay, epsilon
        self._averages = [torch.ones_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        torch._foreach_mul_(self._averages, self._decay)
        torch._foreach_addcmul_(self._averages, gradients, gradients, 1 - self._decay)
        roots = torch._foreach_add(self._averages, self._epsilon)
        torch._foreach_sqrt_(roots)
        torch._foreach_addcdiv_(self._parameters, gradients, roots, -learning_rate)

    def state(self) -> dict[int, dict[str, Any]]:
        return {index: {"square_average": average} for index, average in enumerate(self._averages)}

    def load_state(self, state: dict[int, dict[str, Any]]) -> None:
        torch._foreach_copy_(
            self._averages, [state[index]["square_average"] for index in range(len(self._averages))]
        )


class Adam:
    """torch's Adam (Kingma & Ba, 2015)."""

    def __init__(self, parameters: Sequence[Tensor], epsilon: float) -> None:
        self._adam = torch.optim.Adam(parameters, eps=epsilon)

    def step(self, gradients: list[Tensor], learning_rate: float) -> None:
        (group,) = self._adam.param_groups
        group["lr"] = learning_rate
        for parameter, gradient in zip(group["params"], gradients, strict=True):
            parameter.grad = gradient
        self._adam.step()

    def state(self) -> dict[int, dict[str, Any]]:
        return self._adam.state_dict()["state"]

    def load_state(self, state: dict[int, dict[str, Any]]) -> None:
        groups = self._adam.state_dict()["param_groups"]
        self._adam.load_state_dict({"state": state, "param_groups": groups})


def build(parameters: Sequence[Tensor], settings: Training) -> Optimizer:
    """The configured optimiser of a network's parameters."""
    if settings.optimizer == "adam":
        return Adam(parameters, settings.adam_epsilon)
    return RMSProp(parameters, settings.rmsprop_decay, settings.rmsprop_epsilon)
