"""Any Gymnasium environment with discrete actions and box observations."""

import difflib
import importlib
import re

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformObservation

from ga3c.config import Config, ConfigError
from ga3c.environments.interface import Spec, Step


def is_gymnasium_name(game: str) -> bool:
    """Whether a name is a Gymnasium id: CartPole-v1, my_package:MyGame-v0, but not ALE/Boxing-v5."""
    return not game.startswith("ALE/") and (":" in game or re.search(r"-v\d+$", game) is not None)


def describe(name: str, config: Config) -> Spec:
    """Shapes of a Gymnasium environment; raises ConfigError where it is missing or does not fit."""
    environment = _make_one(name, config.environment.frame_stack)
    try:
        return _spec(environment)
    finally:
        environment.close()


class GymEnvironments:
    """A vector of Gymnasium environments, stepped one after the other."""

    def __init__(self, name: str, config: Config, seeds: np.ndarray) -> None:
        frame_stack = config.environment.frame_stack
        self._seeds: list[int | None] = [int(seed) for seed in seeds]
        self._vector = SyncVectorEnv(
            [lambda: _make_one(name, frame_stack)] * len(seeds), autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.spec = _spec(self._vector.envs[0])
        space = self._vector.envs[0].action_space
        assert isinstance(space, Discrete)
        self._first_action = int(space.start)

    def reset(self) -> np.ndarray:
        observations, _ = self._vector.reset(seed=self._seeds)
        return observations

    def step(self, actions: np.ndarray) -> Step:
        observations, rewards, terminated, truncated, info = self._vector.step(actions + self._first_action)
        game_over = terminated | truncated
        final_observations = None
        if game_over.any():
            final_observations = observations.copy()
            for index in np.flatnonzero(game_over):
                final_observations[index] = info["final_obs"][index]
        return Step(observations, rewards, terminated, truncated, game_over, final_observations)

    def close(self) -> None:
        self._vector.close()


def _make_one(name: str, frame_stack: int) -> gymnasium.Env:
    module, _, _ = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except (ImportError, ValueError, TypeError) as error:
            raise ConfigError([f"game = {name!r}: module {module!r} cannot be imported: {error}"]) from error
    try:
        if _is_atari(gymnasium.spec(name.rpartition(":")[2])):
            raise ConfigError([f"game = {name!r}: expected the Atari game's own name, such as Pong"])
        environment = gymnasium.make(name)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError([f"game = {name!r}: {error}"]) from error
    except gymnasium.error.UnregisteredEnv as error:
        known = [key for key, spec in gymnasium.registry.items() if not _is_atari(spec)]
        close = difflib.get_close_matches(name.rpartition(":")[2], known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else str(error)
        raise ConfigError([f"game = {name!r}: no such environment; {hint}"]) from error
    if not isinstance(environment.action_space, Discrete):
        raise ConfigError([f"game = {name!r}: its actions are {environment.action_space}; expected Discrete"])
    space = environment.observation_space
    if not isinstance(space, Box):
        raise ConfigError([f"game = {name!r}: its observations are {space}; expected a Box"])
    if space.dtype == np.uint8 and len(space.shape) in (2, 3):
        return _stack_frames(environment, frame_stack)
    environment = FlattenObservation(environment)
    length = environment.observation_space.shape[0]  # type: ignore[index]
    as_float32 = Box(-np.inf, np.inf, (length,), np.float32)
    return TransformObservation(environment, lambda observation: observation.astype(np.float32), as_float32)


def _is_atari(spec: EnvSpec) -> bool:
    return str(spec.entry_point).startswith("ale_py")


def _stack_frames(environment: gymnasium.Env, frame_stack: int) -> gymnasium.Env:
    """Images [height, width] or [height, width, colours] to [frames * colours, height, width]."""
    environment = FrameStackObservation(environment, frame_stack)
    shape = environment.observation_space.shape
    assert shape is not None
    frames, height, width, *colours = shape
    channels = frames * (colours[0] if colours else 1)

    def channels_first(images: np.ndarray) -> np.ndarray:
        images = images.reshape(frames, height, width, -1).transpose(0, 3, 1, 2)
        return images.reshape(channels, height, width)

    return TransformObservation(environment, channels_first, Box(0, 255, (channels, height, width), np.uint8))


def _spec(environment: gymnasium.Env) -> Spec:
    observations, actions = environment.observation_space, environment.action_space
    assert isinstance(observations, Box)
    assert isinstance(actions, Discrete)
    return Spec(observations.shape, str(observations.dtype), int(actions.n), frames_per_action=1)
