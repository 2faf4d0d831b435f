"""The paper's optimiser, which torch does not have: its RMSprop adds epsilon outside the root."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ga3c.config import Training


class RMSProp(torch.optim.Optimizer):
    """Non-centred RMSProp with epsilon inside the root (Tieleman & Hinton, 2012; paper equation 3).

    g = alpha g + (1 - alpha) d^2 and theta = theta - eta d / sqrt(g + epsilon) for each gradient d.
    g begins at 1, as in the original implementation's library: from 0 the first steps would be ten
    times eta for every weight, enough to silence a whole layer of rectifiers for good.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, decay: float, epsilon: float) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update from the parameters' ``grad``; every parameter must have one."""
        for group in self.param_groups:
            parameters = group["params"]
            gradients = [parameter.grad for parameter in parameters]
            averages = []
            for parameter in parameters:
                state = self.state[parameter]
                if not state:
                    state["square_average"] = torch.ones_like(parameter)
                averages.append(state["square_average"])
            torch._foreach_mul_(averages, group["decay"])
            torch._foreach_addcmul_(averages, gradients, gradients, 1 - group["decay"])
            roots = torch._foreach_add(averages, group["epsilon"])
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(parameters, gradients, roots, -group["lr"])


def build(network: nn.Module, settings: Training) -> torch.optim.Optimizer:
    """The configured optimiser of a network's parameters."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), settings.learning_rate, eps=settings.adam_epsilon)
    return RMSProp(
        network.parameters(), settings.learning_rate, settings.rmsprop_decay, settings.rmsprop_epsilon
    )
