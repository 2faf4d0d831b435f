"""Packed observations: every pixel at its place."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ga3c.environments import Spec
from ga3c.packing import packing_for


@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9),
    st.sampled_from([(8, 4), (8, 2), (8, 1), (8, 3), (4, 2), (8, 8), (3, 2)]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_pixel_is_in_its_block_less_128(count, channels, height, width, first_layer, seed):
    packing = packing_for(Spec((channels, height, width), "uint8", 2, 1), *first_layer)
    images = np.random.default_rng(seed).integers(0, 256, (count, channels, height, width), np.uint8)
    packed, block = packing.pack(images), packing.block
    assert packed.dtype == torch.int8
    assert packed.shape == (count, *packing.shape)
    for n, c, y, x in np.ndindex(images.shape):
        assert packed[n, y // block, x // block, c, y % block, x % block] == int(images[n, c, y, x]) - 128


@pytest.mark.parametrize(
    ("size", "first_layer", "block"),
    [((84, 84), (8, 4), 4), ((84, 84), (8, 3), 1), ((84, 84), (8, 2), 2), ((84, 86), (8, 4), 1)],
)
def test_blocks_are_the_stride_where_kernel_and_image_are_whole_multiples(size, first_layer, block):
    assert packing_for(Spec((4, *size), "uint8", 6, 4), *first_layer).block == block


def test_vectors_stay_as_they_are():
    vectors = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert np.array_equal(packing_for(Spec((3,), "float32", 2, 1)).pack(vectors).numpy(), vectors)


def test_images_that_are_not_contiguous_are_packed_too():
    packing = packing_for(Spec((1, 4, 4), "uint8", 2, 1), 8, 4)
    images = np.arange(128, dtype=np.uint8).reshape(4, 2, 4, 4)[:, :1]
    assert torch.equal(packing.pack(images), packing.pack(images.copy()))
