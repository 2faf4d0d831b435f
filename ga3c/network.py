"""Actor-critic networks: observations in, policy logits and a state value out (paper section 3.2, 5.1)."""

import math

import torch
from torch import Tensor, nn

from ga3c.config import ConfigError, Network
from ga3c.environments.interface import Spec
from ga3c.packing import Packing, packing_for

_MLP_WIDTH = 64


class ActorCritic(nn.Module):
    """A body shared by a policy head and a value head.

    ``forward`` takes observations as ``packing`` makes them, [N, *packing.shape] on the parameters'
    device, computes in the parameters' dtype, and returns logits [N, actions] and values [N], both
    float32. Pixels count from -1 to 1, as in the original implementation: where all are positive, the
    first updates move a rectifier's inputs together, and most filters never fire again.
    """

    def __init__(self, packing: Packing, body: nn.Sequential, features: int, actions: int) -> None:
        super().__init__()
        self.packing = packing
        self.body = body
        self.policy = nn.Linear(features, actions)
        self.value = nn.Linear(features, 1)

    def forward(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        inputs = packed.to(self.value.weight.dtype)
        if self.packing.block:
            inputs = inputs.flatten(3).permute(0, 3, 1, 2)
        features = self.body(inputs)
        return self.policy(features).float(), self.value(features).squeeze(1).float()


class _PixelConv2d(nn.Conv2d):
    """A convolution of pixels from -128 to 127, read as -1 to 1."""

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.conv2d(pixels, self.weight * (1 / 128), self.bias, self.stride)


class _FlattenChannelsLast(nn.Module):
    """[N, channels, height, width] to [N, height * width * channels]; no copy when channels lie last."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


def name_for(spec: Spec, settings: Network) -> str:
    """The configured network, with ``auto`` resolved by what the game shows.

    Raises ConfigError for a convolutional network on vectors, and the other way round.
    """
    if settings.name == "auto":
        return "small" if spec.is_image else "mlp"
    if (settings.name == "mlp") == spec.is_image:
        shown = "images" if spec.is_image else "vectors"
        raise ConfigError([f"network.name = {settings.name!r} does not take {shown}; expected auto"])
    return settings.name


def build(spec: Spec, settings: Network) -> ActorCritic:
    """A new network with initial weights from torch's global generator."""
    name = name_for(spec, settings)
    network = _mlp(spec) if name == "mlp" else _convolutional(spec, name)
    if settings.initialisation == "orthogonal":
        _initialise_orthogonally(network)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _mlp(spec: Spec) -> ActorCritic:
    (length,) = spec.observation_shape
    body = nn.Sequential(
        nn.Linear(length, _MLP_WIDTH), nn.Tanh(), nn.Linear(_MLP_WIDTH, _MLP_WIDTH), nn.Tanh()
    )
    return ActorCritic(packing_for(spec), body, _MLP_WIDTH, spec.actions)


def _convolutional(spec: Spec, name: str) -> ActorCritic:
    """The paper's small network, or ``large-<stride>``: wider, one layer deeper (section 5.1, note 2)."""
    if name == "small":
        layers = [(16, 8, 4), (32, 4, 2)]
        width = 256
    else:
        stride = int(name.removeprefix("large-"))
        layers = [(32, 8, stride), (32, 4, 2), (64, 4, 2)]
        width = 1024 if stride == 1 else 256
    _, height, columns = spec.observation_shape
    packing = packing_for(spec, kernel=layers[0][1], stride=layers[0][2])
    channels = math.prod(packing.shape[2:])
    modules: list[nn.Module] = []
    for filters, kernel, stride in layers:
        block = 1 if modules else packing.block
        convolution = nn.Conv2d if modules else _PixelConv2d
        modules += [convolution(channels, filters, kernel // block, stride // block), nn.ReLU(inplace=True)]
        channels = filters
        height = (height - kernel) // stride + 1
        columns = (columns - kernel) // stride + 1
        if height < 1 or columns < 1:
            raise ConfigError([f"images of {spec.observation_shape[1:]} are too small for network {name!r}"])
    modules += [_FlattenChannelsLast(), nn.Linear(channels * height * columns, width), nn.ReLU(inplace=True)]
    return ActorCritic(packing, nn.Sequential(*modules), width, spec.actions)


def _initialise_orthogonally(network: ActorCritic) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.orthogonal_(module.weight, math.sqrt(2))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.orthogonal_(network.policy.weight, 0.01)
    nn.init.orthogonal_(network.value.weight, 1.0)
