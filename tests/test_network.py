"""The paper's networks: their sizes, precision, and what keeps them learning."""

import numpy as np
import pytest
import torch
from torch import nn

from ga3c import network
from ga3c.config import ConfigError, Network
from ga3c.environments import Spec

ATARI = Spec((4, 84, 84), "uint8", 6, 4)
VECTOR = Spec((4,), "float32", 2, 1)


def random_images(count):
    return np.random.default_rng(0).integers(0, 256, (count, *ATARI.observation_shape), np.uint8)


def unpacked(convolution, block):
    """The kernel of a convolution over blocks of pixels, as one over pixels."""
    filters, channels, height, width = convolution.weight.shape
    blocks = convolution.weight.reshape(filters, channels // block**2, block, block, height, width)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(
        filters, channels // block**2, height * block, width * block
    )


@pytest.mark.parametrize(
    ("name", "block", "sizes", "width"),
    [
        ("small", 4, [(16, 8, 4), (32, 4, 2)], 256),
        ("large-4", 4, [(32, 8, 4), (32, 4, 2), (64, 4, 2)], 256),
        ("large-3", 1, [(32, 8, 3), (32, 4, 2), (64, 4, 2)], 256),
        ("large-2", 2, [(32, 8, 2), (32, 4, 2), (64, 4, 2)], 256),
        ("large-1", 1, [(32, 8, 1), (32, 4, 2), (64, 4, 2)], 1024),
    ],
)
def test_networks_compute_what_the_paper_describes(name, block, sizes, width):
    """The same result as plain convolutions of pixels from -1 to 1 with the paper's kernels and strides."""
    torch.manual_seed(0)
    model = network.build(ATARI, Network(name=name)).double()
    images = random_images(2)
    expected = torch.from_numpy(images).double() / 128 - 1
    convolutions = [module for module in model.body if isinstance(module, nn.Conv2d)]
    assert model.packing.block == block
    for (filters, kernel, stride), convolution in zip(sizes, convolutions, strict=True):
        weight = unpacked(convolution, block if convolution is convolutions[0] else 1)
        assert weight.shape == (filters, expected.shape[1], kernel, kernel)
        expected = nn.functional.conv2d(expected, weight, convolution.bias, stride).relu()
    features = expected.permute(0, 2, 3, 1).flatten(1)
    linear = model.body[-2]
    assert linear.weight.shape == (width, features.shape[1])
    features = linear(features).relu()
    logits, values = model(model.packing.pack(images))
    torch.testing.assert_close(logits, model.policy(features).float())
    torch.testing.assert_close(values, model.value(features).squeeze(1).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", [ATARI, VECTOR])
def test_outputs_are_float32_in_every_precision(spec, dtype):
    model = network.build(spec, Network()).to(dtype)
    observations = np.zeros((3, *spec.observation_shape), spec.observation_dtype)
    logits, values = model(model.packing.pack(observations))
    assert (logits.shape, values.shape) == ((3, spec.actions), (3,))
    assert logits.dtype == values.dtype == torch.float32


@pytest.mark.parametrize("spec", [ATARI, VECTOR])
def test_observations_are_not_changed_by_looking_at_them(spec):
    model = network.build(spec, Network())
    packed = model.packing.pack(np.full((2, *spec.observation_shape), 7, spec.observation_dtype))
    before = packed.clone()
    model(packed)
    assert torch.equal(packed, before)


def test_bfloat16_differs_little_from_float32():
    torch.manual_seed(0)
    model = network.build(ATARI, Network())
    images = model.packing.pack(random_images(16))
    with torch.inference_mode():
        exact, _ = model(images)
        rounded, _ = model.to(torch.bfloat16)(images)
    assert (exact.softmax(1) - rounded.softmax(1)).abs().max() < 0.01


def test_orthogonal_policy_begins_uniform_and_original_weights_are_bounded_by_their_inputs():
    torch.manual_seed(0)
    model = network.build(ATARI, Network(initialisation="orthogonal"))
    policy = model(model.packing.pack(random_images(4)))[0].softmax(1)
    assert (policy - 1 / 6).abs().max() < 0.02
    first = network.build(ATARI, Network(initialisation="original")).body[0]
    assert first.weight.abs().max() <= 1 / (4 * 8 * 8) ** 0.5


def test_images_too_small_for_a_network_are_refused():
    with pytest.raises(ConfigError, match="too small"):
        network.build(Spec((1, 12, 12), "uint8", 3, 1), Network())
