"""Games for tests; importing this module registers them: ``--game tests.games:Counting-v0``.

``Counting-v0`` audits the whole way from an agent to a trainer: every frame says whose it is, and
``decode``, ``reward`` and ``ending`` say what must stand beside it. ``Catch-v0`` is learnable in about
a minute. The others fail in one way each; they play one endless black game until then.
"""

import hashlib
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

_SIDE = 21
_HEADER = struct.Struct("<IIIB")  # environment, game, step, last action
_NO_ACTION = 255
_CELLS, _PIXELS_PER_CELL = 7, 4


class Frame(NamedTuple):
    """What an observation of Counting-v0 shows."""

    environment: int
    """A 32-bit number drawn from the seed of the environment's reset."""
    game: int
    """0 for the first game after a reset with a seed, 1 for the next, and so on."""
    step: int
    """Actions played in this game before this frame."""
    last_action: int | None
    """The action that led here; None in the first frame of a game."""


class Ending(NamedTuple):
    terminated: bool
    truncated: bool


def encode(frame: Frame) -> np.ndarray:
    """The observation of a frame: uint8 [21, 21]; every byte depends on every field."""
    action = _NO_ACTION if frame.last_action is None else frame.last_action
    header = _HEADER.pack(frame.environment, frame.game, frame.step, action)
    rest = hashlib.shake_128(header).digest(_SIDE * _SIDE - _HEADER.size)
    return np.frombuffer(header + rest, np.uint8).reshape(_SIDE, _SIDE)


def decode(observation: np.ndarray) -> Frame:
    """The frame in an observation, uint8 [21, 21] or [1, 21, 21]; ValueError where a byte is wrong."""
    if observation.dtype != np.uint8 or observation.size != _SIDE * _SIDE:
        raise ValueError(f"expected {_SIDE}x{_SIDE} uint8, got {observation.shape} {observation.dtype}")
    environment, game, step, action = _HEADER.unpack(observation.tobytes()[: _HEADER.size])
    frame = Frame(environment, game, step, None if action == _NO_ACTION else action)
    wrong = np.count_nonzero(encode(frame).ravel() != observation.ravel())
    if wrong:
        raise ValueError(f"torn observation: {wrong} of {observation.size} bytes do not belong to {frame}")
    return frame


def length(environment: int, game: int) -> int:
    """Actions in a game of Counting-v0: 3 to 30."""
    return 3 + _hash(environment, game) % 28


def reward(game: int, step: int) -> float:
    """The raw reward of the action chosen at (game, step): a whole number from -5 to 5."""
    return float((7 * game + 3 * step) % 11 - 5)


def ending(environment: int, game: int, step: int) -> Ending:
    """How the game stands after the action chosen at (game, step); every second game is truncated."""
    over = step + 1 == length(environment, game)
    is_cut = (environment + game) % 2 == 1
    return Ending(terminated=over and not is_cut, truncated=over and is_cut)


def _hash(environment: int, game: int) -> int:
    return int.from_bytes(hashlib.shake_128(struct.pack("<II", environment, game)).digest(4), "little")


class Counting(gymnasium.Env):
    observation_space = Box(0, 255, (_SIDE, _SIDE), np.uint8)
    action_space = Discrete(6)

    def __init__(self) -> None:
        self._frame: Frame | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._frame is None:
            self._frame = Frame(int(self.np_random.integers(2**32)), 0, 0, None)
        else:
            self._frame = Frame(self._frame.environment, self._frame.game + 1, 0, None)
        return encode(self._frame), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self._frame is not None
        environment, game, step, _ = self._frame
        self._frame = Frame(environment, game, step + 1, int(action))
        return encode(self._frame), reward(game, step), *ending(environment, game, step), {}


class Catch(gymnasium.Env):
    """A ball falls through a 7x7 grid; move the paddle left (0), not at all (1) or right (2) to catch it.

    A game lasts 6 actions; its score is 1 for a catch and -1 for a miss.
    """

    observation_space = Box(0, 255, (_CELLS * _PIXELS_PER_CELL, _CELLS * _PIXELS_PER_CELL), np.uint8)
    action_space = Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = 0
        self._ball = int(self.np_random.integers(_CELLS))
        self._paddle = _CELLS // 2
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._row += 1
        self._paddle = min(max(self._paddle + int(action) - 1, 0), _CELLS - 1)
        landed = self._row == _CELLS - 1
        points = (1.0 if self._ball == self._paddle else -1.0) if landed else 0.0
        return self._draw(), points, landed, False, {}

    def _draw(self) -> np.ndarray:
        cells = np.zeros((_CELLS, _CELLS), np.uint8)
        cells[_CELLS - 1, self._paddle] = 255
        cells[self._row, self._ball] = 255
        return cells.repeat(_PIXELS_PER_CELL, 0).repeat(_PIXELS_PER_CELL, 1)


class Faulty(gymnasium.Env):
    """Fails in the given way after ``at`` actions of a game; 0 is its reset, -1 its constructor."""

    observation_space = Box(0, 255, (_SIDE, _SIDE), np.uint8)
    action_space = Discrete(3)
    _blank: ClassVar = np.zeros((_SIDE, _SIDE), np.uint8)

    def __init__(self, fault: str, at: int) -> None:
        self._fault, self._at = fault, at
        self._fail_at(-1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._fail_at(0)
        return self._blank, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._fail_at(self._steps)
        return self._blank, 0.0, False, False, {}

    def _fail_at(self, step: int) -> None:
        if step != self._at:
            return
        match self._fault:
            case "raise":
                raise ValueError("boom")
            case "end of file":
                raise EOFError("the simulator is gone")
            case "exit":
                os._exit(3)
            case "segfault":
                signal.raise_signal(signal.SIGSEGV)
            case "hang":
                while True:
                    time.sleep(3600)
            case _:
                raise AssertionError(f"no such fault: {self._fault}")


def _register(name: str, game: Callable[..., gymnasium.Env], **kwargs: Any) -> None:
    # Gymnasium's checker warns of images smaller than it likes.
    gymnasium.register(name, entry_point=game, disable_env_checker=True, kwargs=kwargs)


_register("Counting-v0", Counting)
_register("Catch-v0", Catch)
_register("Raising-v0", Faulty, fault="raise", at=50)
_register("EndOfFile-v0", Faulty, fault="end of file", at=50)
_register("RaisingAtReset-v0", Faulty, fault="raise", at=0)
_register("RaisingAtStart-v0", Faulty, fault="raise", at=-1)
_register("Crashing-v0", Faulty, fault="exit", at=50)
_register("Segfaulting-v0", Faulty, fault="segfault", at=50)
_register("Hanging-v0", Faulty, fault="hang", at=20)
