"""The form in which networks read observations: images with their channels last, in blocks of pixels.

Convolutions are fastest over many channels that lie side by side. A convolution whose stride divides its
kernel computes the same over blocks of stride x stride pixels that stand as channels; for the paper's
small network that makes an 8x8 convolution of 4 channels, stride 4, a 2x2 convolution of 64 channels.
Observations are put into this form by the copy that gathers them, which has to be made anyway.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ga3c.environments.interface import Spec


@dataclass(frozen=True)
class Packing:
    """From uint8 images [channels, height, width] to int8 [height / block, width / block, channels, block,
    block], less 128. Vectors stay as they are (``block`` 0)."""

    shape: tuple[int, ...]
    dtype: str
    block: int

    def write(self, observations: np.ndarray, out: np.ndarray) -> None:
        """Pack observations [N, *observation_shape], C-contiguous, into ``out`` [N, *shape]."""
        if not self.block:
            np.copyto(out, observations)
            return
        word = f"u{self.block}"  # the pixels of a row of a block are moved as one number
        rows = observations.view(word)
        count, channels, height, words = rows.shape
        source = rows.reshape(count, channels, height // self.block, self.block, words)
        target = out.view(word)[..., 0].transpose(0, 3, 1, 4, 2)
        np.bitwise_xor(source, np.array(0x8080808080808080).astype(word), out=target)

    def pack(self, observations: np.ndarray) -> Tensor:
        """The same in new memory."""
        packed = np.empty((len(observations), *self.shape), self.dtype)
        self.write(np.ascontiguousarray(observations), packed)
        return torch.from_numpy(packed)


def packing_for(spec: Spec, kernel: int = 0, stride: int = 1) -> Packing:
    """The packing for a network whose first layer has this kernel and stride (0 and 1 for vectors)."""
    if not spec.is_image:
        return Packing(spec.observation_shape, spec.observation_dtype, 0)
    channels, height, width = spec.observation_shape
    fits = kernel % stride == height % stride == width % stride == 0 and stride in (1, 2, 4, 8)
    block = stride if fits else 1
    return Packing((height // block, width // block, channels, block, block), "int8", block)
