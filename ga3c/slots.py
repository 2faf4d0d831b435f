"""Experience slots: what an agent writes and the server reads, in shared memory.

Used by channels.py, which says when a slot may be read. Nothing in this file imports torch.
"""

import errno
import mmap
import os
import tempfile

import numpy as np

from ga3c.environments.interface import Spec

_ALIGNMENT = 64


class Slots:
    """The experience slots of one agent, as arrays over shared memory.

    Every array's first dimension is the slot; T is t_max and K the environments of the agent.
    ``observations`` has a row T besides, for states that are only valued: those a truncated game
    ended in.
    """

    observations: np.ndarray  # [slots, T + 1, K, *observation_shape]
    actions: np.ndarray  # int64 [slots, T, K]
    probabilities: np.ndarray  # float32, of the chosen actions at prediction
    values: np.ndarray  # float32, at prediction
    versions: np.ndarray  # int64 [slots, T], the model's at prediction
    rewards: np.ndarray  # float32 [slots, T, K], raw
    terminated: np.ndarray  # bool
    truncated: np.ndarray  # bool
    truncation_values: np.ndarray  # float32, of the state that a truncated game ended in
    bootstrap: np.ndarray  # float32 [slots, K], value of the state after the last action
    scores: np.ndarray  # float64 [slots, T, K], of the game that ended here, else nan
    lengths: np.ndarray  # int64, its actions

    def __init__(self, memory: mmap.mmap, layout: "Layout") -> None:
        for name, (offset, shape, dtype) in layout.places.items():
            count = int(np.prod(shape))
            setattr(self, name, np.frombuffer(memory, dtype, count, offset).reshape(shape))


class Layout:
    """Where each array of an agent's slots lies in its block of shared memory."""

    def __init__(self, spec: Spec, slots: int, t_max: int, environments: int) -> None:
        self.slots, self.t_max, self.environments = slots, t_max, environments
        rows, each = (slots, t_max), (slots, t_max, environments)
        arrays: dict[str, tuple[tuple[int, ...], str]] = {
            "observations": (
                (slots, t_max + 1, environments, *spec.observation_shape),
                spec.observation_dtype,
            ),
            "actions": (each, "int64"),
            "probabilities": (each, "float32"),
            "values": (each, "float32"),
            "versions": (rows, "int64"),
            "rewards": (each, "float32"),
            "terminated": (each, "bool"),
            "truncated": (each, "bool"),
            "truncation_values": (each, "float32"),
            "bootstrap": ((slots, environments), "float32"),
            "scores": (each, "float64"),
            "lengths": (each, "int64"),
        }
        self.places: dict[str, tuple[int, tuple[int, ...], str]] = {}
        offset = 0
        for name, (shape, dtype) in arrays.items():
            self.places[name] = (offset, shape, dtype)
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.size = offset


def allocate(size: int) -> int:
    """A descriptor of ``size`` bytes of anonymous shared memory, reserved now.

    Nothing has a name, so nothing is left behind however the program ends. Raises MemoryError, here
    and not at first use, when there is not enough.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ga3c-slots")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise
        raise MemoryError(
            f"{size / 2**20:.0f} MiB of shared memory for an agent's experiences cannot be had; "
            "lower agents.count, agents.environments, agents.slots or training.t_max"
        ) from error
    return descriptor
