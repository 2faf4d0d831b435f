"""All Atari games that ale-py ships, through its vector environment."""

import difflib
import re

import ale_py
import numpy as np
from ale_py import roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from ga3c.config import Config, ConfigError
from ga3c.environments.interface import Spec, Step

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

_HEIGHT = _WIDTH = 84
_FOR_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}  # loading one ends the process


def games() -> list[str]:
    """The names of all games, such as MsPacman."""
    return sorted("".join(word.capitalize() for word in rom.split("_")) for rom in _rom_ids())


def is_game(name: str) -> bool:
    """Whether a name is an Atari game's, with or without a version: Pong, Pong-v4, ALE/Pong-v5."""
    return _plain(name) in {game.lower() for game in games()}


def canonical_name(game: str) -> str:
    """MsPacman for MsPacman, ms_pacman and ALE/MsPacman-v5; raises ConfigError for no such game."""
    plain = _plain(game)
    by_plain = {name.lower(): name for name in games()}
    if plain in by_plain:
        return by_plain[plain]
    close = [by_plain[name] for name in difflib.get_close_matches(plain, by_plain, n=3)]
    hint = f"did you mean {' or '.join(close)}?" if close else "expected an Atari game such as Boxing"
    raise ConfigError(
        [f"game = {game!r}: no such game; {hint} (Gymnasium ids end in a version: CartPole-v1)"]
    )


def describe(name: str, config: Config) -> Spec:
    """Shapes of the game ``name`` (canonical); raises ConfigError when its ROM cannot be read."""
    emulator = ale_py.ALEInterface()
    try:
        path = roms.get_rom_path(_rom_id(name))
        if path is None:
            raise OSError("it is not among ale-py's ROMs")
    except OSError as error:
        message = f"game = {name!r}: the ROM cannot be read ({error}); reinstall it with: pip install ale-py"
        raise ConfigError([message]) from error
    emulator.loadROM(path)
    return _spec(len(emulator.getMinimalActionSet()), config)


class AtariEnvironments:
    """Emulators of one Atari game in one vector, stepped together by ``threads`` threads.

    Preprocessing is ale-py's: action repeat, maximum over the last two frames, 84x84 grey, stacked
    frames, random no-ops at the start, and FIRE where a game waits for it (Mnih et al., 2015).
    """

    def __init__(self, name: str, config: Config, seeds: np.ndarray, threads: int = 1) -> None:
        settings = config.environment
        self._seeds = seeds
        self._episodic_life = settings.episodic_life
        self._lives = np.zeros(len(seeds), np.int32)
        self._vector = AtariVectorEnv(
            _rom_id(name),
            num_envs=len(seeds),
            num_threads=threads,
            max_num_frames_per_episode=settings.max_frames,
            repeat_action_probability=settings.sticky_actions,
            autoreset_mode=AutoresetMode.SAME_STEP,
            stack_num=settings.frame_stack,
            frameskip=settings.action_repeat,
            noop_max=settings.noop_max,
            reward_clipping=False,
        )
        self.spec = _spec(len(self._vector.ale.get_action_set()), config)

    def reset(self) -> np.ndarray:
        observations, info = self._vector.reset(seed=self._seeds)
        self._lives = info["lives"]
        return observations

    def step(self, actions: np.ndarray) -> Step:
        observations, rewards, terminated, truncated, info = self._vector.step(actions)
        game_over = terminated | truncated
        if self._episodic_life:
            terminated = terminated | ((info["lives"] < self._lives) & ~game_over)
            self._lives = info["lives"]
        return Step(observations, rewards, terminated, truncated, game_over, info.get("final_obs"))

    def close(self) -> None:
        self._vector.close()


def _spec(actions: int, config: Config) -> Spec:
    return Spec(
        observation_shape=(config.environment.frame_stack, _HEIGHT, _WIDTH),
        observation_dtype="uint8",
        actions=actions,
        frames_per_action=config.environment.action_repeat,
    )


def _plain(name: str) -> str:
    return re.sub(r"-v\d+$", "", name.removeprefix("ALE/")).replace("_", "").lower()


def _rom_ids() -> list[str]:
    return [rom for rom in roms.get_all_rom_ids() if rom not in _FOR_TWO_PLAYERS]


def _rom_id(name: str) -> str:
    return next(rom for rom in _rom_ids() if rom.replace("_", "") == name.lower())
