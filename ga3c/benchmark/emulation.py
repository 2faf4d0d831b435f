"""Emulation alone: the environments of one agent, with actions that cost nothing to choose."""

import numpy as np

from ga3c import environments
from ga3c.benchmark.worker import Play
from ga3c.config import Config


def emulate(config: Config, number: int) -> Play:
    """Games of one agent, played at random."""
    count = config.agents.environments
    games = environments.make(config, count, np.random.SeedSequence(config.seed, spawn_key=(number,)))
    games.reset()
    generator = np.random.default_rng(number)

    def play() -> int:
        games.step(generator.integers(games.spec.actions, size=count))
        return count

    return play
