"""One small interface to games: a vector of environments that reset themselves.

Agents and evaluation step games only through what stands here. Nothing in this folder imports torch.
"""

from typing import NamedTuple, Protocol

import numpy as np

from ga3c.config import Config
from ga3c.environments import atari, gym
from ga3c.environments.interface import Spec, Step

__all__ = ["Environments", "Spec", "Step", "canonical_name", "describe", "is_atari", "make"]


class Environments(Protocol):
    """A vector of ``count`` environments of one game."""

    spec: Spec

    def reset(self) -> np.ndarray:
        """Begin a new game in each; returns observations [count, *observation_shape]."""

    def step(self, actions: np.ndarray) -> Step:
        """Play actions (int [count]); games that end begin anew in the same step."""

    def close(self) -> None: ...


class Name(NamedTuple):
    canonical: str
    is_atari: bool


def _resolve(game: str) -> Name:
    if gym.is_gymnasium_name(game) and not atari.is_game(game):
        return Name(game, is_atari=False)
    return Name(atari.canonical_name(game), is_atari=True)


def canonical_name(game: str) -> str:
    """The one name of a game that ``ms_pacman``, ``MsPacman`` and ``ALE/MsPacman-v5`` share.

    Raises ConfigError with the closest names for a game that does not exist.
    """
    return _resolve(game).canonical


def is_atari(config: Config) -> bool:
    """Whether the configured game is one of ale-py's; raises ConfigError for one that does not exist."""
    return _resolve(config.game).is_atari


def describe(config: Config) -> Spec:
    """Shapes and sizes of the configured game, without starting the emulators of an agent.

    Raises ConfigError for a game that does not exist or that GA3C cannot play.
    """
    name = _resolve(config.game)
    return atari.describe(name.canonical, config) if name.is_atari else gym.describe(name.canonical, config)


def make(config: Config, count: int, seed: np.random.SeedSequence, threads: int = 1) -> Environments:
    """A vector of ``count`` environments of the configured game, each with a seed of its own.

    Atari's emulators are stepped by this number of threads, other games by the caller's.
    """
    name = _resolve(config.game)
    seeds = seed.generate_state(count, np.uint32).astype(np.int64) >> 1
    if name.is_atari:
        return atari.AtariEnvironments(name.canonical, config, seeds, threads)
    return gym.GymEnvironments(name.canonical, config, seeds)
