"""The paper's networks: their sizes, precision, and what keeps them learning."""

import pytest
import torch

from ga3c import network
from ga3c.config import ConfigError, Network
from ga3c.environments import Spec

ATARI = Spec((4, 84, 84), "uint8", 6, 4)
VECTOR = Spec((4,), "float32", 2, 1)


def layers(name):
    body = network.build(ATARI, Network(name=name)).body
    return [tuple(module.weight.shape) for module in body if hasattr(module, "weight")]


def test_small_network_is_that_of_the_paper():
    assert layers("small") == [(16, 4, 8, 8), (32, 16, 4, 4), (256, 32 * 9 * 9)]


@pytest.mark.parametrize(
    ("name", "side", "width"),
    [("large-4", 3, 256), ("large-3", 5, 256), ("large-2", 8, 256), ("large-1", 17, 1024)],
)
def test_large_networks_are_those_of_the_paper(name, side, width):
    convolutions = [(32, 4, 8, 8), (32, 32, 4, 4), (64, 32, 4, 4)]
    assert layers(name) == [*convolutions, (width, 64 * side * side)]
    stride = network.build(ATARI, Network(name=name)).body[0].stride
    assert stride == (int(name[-1]),) * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", [ATARI, VECTOR])
def test_outputs_are_float32_in_every_precision(spec, dtype):
    model = network.build(spec, Network()).to(dtype)
    observations = torch.zeros((3, *spec.observation_shape), dtype=getattr(torch, spec.observation_dtype))
    logits, values = model(observations)
    assert (logits.shape, values.shape) == ((3, spec.actions), (3,))
    assert logits.dtype == values.dtype == torch.float32


def test_observations_are_not_changed_by_looking_at_them():
    observations = torch.full((2, *ATARI.observation_shape), 7, dtype=torch.uint8)
    network.build(ATARI, Network())(observations)
    assert (observations == 7).all()


def test_pixels_are_scaled_to_minus_one_to_one():
    model = network.build(ATARI, Network())
    seen = []
    model.body.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = torch.zeros((3, *ATARI.observation_shape), dtype=torch.uint8)
    pixels[1], pixels[2] = 128, 255
    model(pixels)
    assert [image.unique().tolist() for image in seen[0]] == [[-1.0], [0.0], [0.9921875]]


def test_bfloat16_differs_little_from_float32():
    torch.manual_seed(0)
    model = network.build(ATARI, Network())
    images = torch.randint(0, 256, (16, *ATARI.observation_shape), dtype=torch.uint8)
    with torch.inference_mode():
        exact, _ = model(images)
        rounded, _ = model.to(torch.bfloat16)(images)
    assert (exact.softmax(1) - rounded.softmax(1)).abs().max() < 0.01


def test_orthogonal_policy_begins_uniform_and_original_weights_are_bounded_by_their_inputs():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (4, *ATARI.observation_shape), dtype=torch.uint8)
    policy = network.build(ATARI, Network(initialisation="orthogonal"))(images)[0].softmax(1)
    assert (policy - 1 / 6).abs().max() < 0.02
    first = network.build(ATARI, Network(initialisation="original")).body[0]
    assert first.weight.abs().max() <= 1 / (4 * 8 * 8) ** 0.5


def test_images_too_small_for_a_network_are_refused():
    with pytest.raises(ConfigError, match="too small"):
        network.build(Spec((1, 12, 12), "uint8", 3, 1), Network())
