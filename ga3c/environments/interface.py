"""What crosses between a game and the rest of the program."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Spec:
    """What a game shows and takes.

    Images are uint8 [channels, height, width]; vectors are float32 [length].
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    actions: int
    frames_per_action: int

    @property
    def is_image(self) -> bool:
        return len(self.observation_shape) == 3


class Step(NamedTuple):
    """One step of ``count`` environments; every array's first dimension is ``count``.

    ``terminated`` ends the return without a bootstrap, ``truncated`` with one from
    ``final_observations``. ``game_over`` says where a whole game ended, and with it its score; it
    differs from ``terminated | truncated`` only where losing a life ends the return.
    """

    observations: np.ndarray
    """What the agent acts on next: where a game ended, the first of the next game."""
    rewards: np.ndarray
    """Raw points, float."""
    terminated: np.ndarray
    truncated: np.ndarray
    game_over: np.ndarray
    final_observations: np.ndarray | None
    """Where a game ended, the state it ended in; None when no game ended."""
