"""The one model on one device, and the replicas from which predictors and trainers compute.

Parameters and optimiser are float32. Each predictor and trainer thread owns a replica in the compute
precision and brings it up to date, under the model's lock, before it uses it: nobody ever computes
with half an update, and nobody waits while another thread computes.
"""

import copy
import math
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ga3c import network, optimizer
from ga3c.config import Config, ConfigError
from ga3c.environments.interface import Spec


def choose_device(name: str) -> torch.device:
    """``auto`` is CUDA when there, else CPU. Raises ConfigError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError([f"device = {name!r}: expected auto, cpu, cuda, or cuda:<number>"]) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ConfigError([f"device = {name!r}: torch finds {found} CUDA devices; expected auto or cpu"])
    return device


def choose_precision(name: str, device: torch.device, spec: Spec) -> torch.dtype:
    """``auto`` is bfloat16 for images on a CPU that computes it natively, else float32."""
    if name == "auto":
        abilities: dict[str, Any] = getattr(
            torch.cpu, "get_capabilities", dict
        )()  # torch 2.9 does not have it
        native = any(abilities.get(ability) for ability in ("avx512_bf16", "amx_bf16", "bf16"))
        name = "bfloat16" if native and device.type == "cpu" and spec.is_image else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


class Model:
    """Parameters, optimiser and version (the number of updates applied so far)."""

    def __init__(self, spec: Spec, config: Config) -> None:
        self.device = choose_device(config.device)
        self.precision = choose_precision(config.precision, self.device, spec)
        self.version = 0
        self.lock = threading.Lock()
        self._optimizer_name = config.training.optimizer
        self._max_gradient_norm = config.training.max_gradient_norm
        torch.manual_seed(config.seed)
        self.network = network.build(spec, config.network).to(self.device)
        self.parameters: list[Tensor] = list(self.network.parameters())
        self.optimizer = optimizer.build(self.parameters, config.training)

    def replica(self) -> "Replica":
        with self.lock:
            return Replica(self, copy.deepcopy(self.network))

    def apply(self, gradients: Sequence[Tensor], learning_rate: float) -> tuple[float, int]:
        """Update the parameters with gradients of their shapes, of any float dtype.

        Returns the gradients' global norm before clipping and the version that was updated. Raises
        FloatingPointError, and leaves the model as it was, when the norm is not finite.
        """
        gradients = [gradient.float() for gradient in gradients]
        total_norm = torch.nn.utils.get_total_norm(gradients)
        norm = float(total_norm)
        if not math.isfinite(norm):
            raise FloatingPointError(f"the gradient's norm is {norm} at update {self.version}")
        if self._max_gradient_norm and norm > self._max_gradient_norm:
            gradients = [gradient * (self._max_gradient_norm / norm) for gradient in gradients]
        with self.lock:
            self.optimizer.step(gradients, learning_rate)
            updated = self.version
            self.version += 1
        return norm, updated

    def state(self) -> dict[str, Any]:
        """Everything a checkpoint needs to continue, copied: nothing in it changes afterwards."""
        with self.lock:
            return {
                "version": self.version,
                "network": _copied(self.network.state_dict()),
                "optimizer": _copied(self.optimizer.state()),
                "optimizer_name": self._optimizer_name,
            }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned; the optimiser's knobs are those of this configuration.

        Raises ConfigError when the state is that of another optimiser.
        """
        if state["optimizer_name"] != self._optimizer_name:
            was = f"the run was trained with {state['optimizer_name']!r}"
            raise ConfigError(
                [f"training.optimizer = {self._optimizer_name!r}: {was}; keep it, or start a new run"]
            )
        with self.lock:
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state(state["optimizer"])
            self.version = state["version"]


class Replica:
    """One thread's copy of the model in the compute precision."""

    def __init__(self, model: Model, own: network.ActorCritic) -> None:
        self._model = model
        self.network = own.to(model.device, model.precision)
        self.parameters: list[Tensor] = list(self.network.parameters())
        self.version = -1

    def refresh(self) -> int:
        """Bring the copy up to date; returns its version."""
        if self.version != self._model.version:
            with self._model.lock, torch.no_grad():
                torch._foreach_copy_(self.parameters, self._model.parameters)
                self.version = self._model.version
        return self.version


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
