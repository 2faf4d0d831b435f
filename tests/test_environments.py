import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ga3c import environments
from ga3c.config import Config, ConfigError, Environment
from ga3c.environments import Environments, Spec, Step, atari
from tests.conftest import ROOT
from tests.games import Ending, Frame, decode, encode, ending, length, reward


@contextmanager
def playing(game: str, count: int = 2, seed: int = 1, **settings: Any) -> Iterator[Environments]:
    config = Config(game=game, environment=Environment(**settings))
    vector = environments.make(config, count, np.random.SeedSequence(seed))
    try:
        yield vector
    finally:
        vector.close()


def shifted(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a stack of frames goes on from another: the oldest left, one came."""
    return np.array_equal(before[1:], after[:-1])


def random_steps(vector: Environments, count: int, seed: int = 0) -> Iterator[tuple[np.ndarray, Step]]:
    """Reset, play at random, and give each step with the observations it was chosen on."""
    rng = np.random.default_rng(seed)
    observations = vector.reset()
    for _ in range(count):
        step = vector.step(rng.integers(vector.spec.actions, size=len(observations)))
        yield observations, step
        observations = step.observations


# Names


@pytest.mark.parametrize("name", ["MsPacman", "ms_pacman", "mspacman", "ALE/MsPacman-v5", "ALE/MsPacman"])
def test_an_atari_game_goes_by_several_names(name: str) -> None:
    assert environments.canonical_name(name) == "MsPacman"


@pytest.mark.parametrize("name", ["CartPole-v1", "tests.games:Counting-v0"])
def test_a_gymnasium_name_is_its_own(name: str) -> None:
    assert environments.canonical_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Pomg",
            "game = 'Pomg': no such game; did you mean Pong? (Gymnasium ids end in a version: CartPole-v1)",
        ),
        (
            "xyz",
            "game = 'xyz': no such game; expected an Atari game such as Boxing "
            "(Gymnasium ids end in a version: CartPole-v1)",
        ),
        (
            "no_such_package:Game-v0",
            "game = 'no_such_package:Game-v0': module 'no_such_package' cannot be imported: "
            "No module named 'no_such_package'",
        ),
        (
            "Pendulum-v1",
            "game = 'Pendulum-v1': its actions are Box(-2.0, 2.0, (1,), float32); expected Discrete",
        ),
        (
            "FrozenLake-v1",
            "game = 'FrozenLake-v1': its observations are Discrete(16); expected a Box",
        ),
    ],
)
def test_a_game_that_cannot_be_played_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        environments.describe(Config(game=name))
    assert caught.value.problems == [message]


def test_an_unknown_gymnasium_id_is_named_with_the_closest() -> None:
    with pytest.raises(ConfigError, match="'CartPoel-v1': no such environment; did you mean CartPole-v1"):
        environments.describe(Config(game="CartPoel-v1"))


def test_the_games_are_all_that_the_emulator_can_play_alone() -> None:
    # Combat, Joust, MazeCraze and Warlords need two players: loading one ends the process.
    playable = {name for name in gymnasium.registry if name.startswith("ALE/") and name.endswith("-v5")}
    assert {name.lower() for name in atari.games()} == {name[4:-3].lower() for name in playable}
    assert len(atari.games()) == 104


@pytest.mark.parametrize(
    ("game", "actions"),
    [("Boxing", 18), ("Breakout", 4), ("Freeway", 3), ("MsPacman", 9), ("Pong", 6), ("TicTacToe3d", 10)],
)
def test_an_atari_game_is_described_with_its_own_actions(game: str, actions: int) -> None:
    spec = environments.describe(Config(game=game))
    assert spec == Spec((4, 84, 84), "uint8", actions, frames_per_action=4)
    assert spec.is_image


# Atari


def test_atari_gives_stacked_grey_frames_and_one_result_for_each_environment() -> None:
    with playing("Pong", count=3, frame_stack=2, action_repeat=3) as vector:
        assert vector.spec == Spec((2, 84, 84), "uint8", 6, frames_per_action=3)
        observations = vector.reset()
        step = vector.step(np.array([0, 2, 3]))
    assert observations.shape == step.observations.shape == (3, 2, 84, 84)
    assert observations.dtype == step.observations.dtype == np.uint8
    assert step.rewards.shape == step.terminated.shape == step.truncated.shape == step.game_over.shape == (3,)
    assert step.terminated.dtype == step.truncated.dtype == step.game_over.dtype == np.bool_
    assert step.final_observations is None
    assert all(shifted(observations[index], step.observations[index]) for index in range(3))


def test_the_same_seed_plays_the_same_game_and_another_seed_another() -> None:
    def frames(seed: int) -> np.ndarray:
        with playing("MsPacman", seed=seed) as vector:
            return np.stack([step.observations for _, step in random_steps(vector, 30)])

    first = frames(1)
    np.testing.assert_array_equal(first, frames(1))
    assert not np.array_equal(first, frames(2))


def test_environments_of_one_vector_play_different_games() -> None:
    with playing("MsPacman") as vector:
        observations = vector.reset()
    assert not np.array_equal(observations[0], observations[1])


def test_a_game_is_cut_at_max_frames_and_its_last_state_is_kept() -> None:
    ends = []
    with playing("Pong", max_frames=40) as vector:
        for index, (before, step) in enumerate(random_steps(vector, 25), start=1):
            if step.final_observations is None:
                assert not step.game_over.any()
                continue
            ends.append(index)
            assert step.truncated.tolist() == step.game_over.tolist() == [True, True]
            assert step.terminated.tolist() == [False, False]
            for environment in range(2):
                assert shifted(before[environment], step.final_observations[environment])
                assert not shifted(before[environment], step.observations[environment])
    assert ends == [10, 20]


def test_atari_rewards_are_the_games_own_points() -> None:
    with playing("Assault", count=1) as vector:
        rewards = {float(step.rewards[0]) for _, step in random_steps(vector, 150)}
    assert rewards == {0.0, 21.0}


def losses_and_games(*, episodic_life: bool) -> tuple[int, int]:
    """Play Breakout; returns (returns ended by a lost life, whole games)."""
    losses = games = 0
    with playing("Breakout", count=1, episodic_life=episodic_life) as vector:
        for before, step in random_steps(vector, 400):
            if step.game_over[0]:
                assert step.terminated[0]
                games += 1
            elif step.terminated[0]:
                assert step.final_observations is None
                assert shifted(before[0], step.observations[0])
                losses += 1
            if games == 2:
                break
    return losses, games


def test_with_episodic_life_a_lost_life_ends_the_return_but_not_the_game() -> None:
    assert losses_and_games(episodic_life=True) == (8, 2)


def test_without_episodic_life_only_the_whole_game_ends_the_return() -> None:
    assert losses_and_games(episodic_life=False) == (0, 2)


# Gymnasium


def test_cartpole_terminates_where_the_pole_falls() -> None:
    with playing("CartPole-v1", count=1) as vector:
        assert vector.spec == Spec((4,), "float32", 2, frames_per_action=1)
        assert not vector.spec.is_image
        assert vector.reset().dtype == np.float32
        for _ in range(20):
            step = vector.step(np.array([1]))
            if step.game_over[0]:
                break
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])
    assert step.final_observations is not None
    assert step.final_observations[0, 2] < -0.2  # radians: the cart went right, the pole fell left
    assert abs(step.observations[0]).max() <= 0.05  # and stands again


def balancing(observations: np.ndarray) -> np.ndarray:
    position, speed, angle, turn = observations.T
    return (0.5 * position + speed + 10 * angle + 2 * turn > 0).astype(np.int64)


def test_cartpole_is_truncated_after_500_actions_of_balance() -> None:
    with playing("CartPole-v1", count=1) as vector:
        observations = vector.reset()
        for _ in range(499):
            step = vector.step(balancing(observations))
            assert not step.game_over[0]
            observations = step.observations
        step = vector.step(balancing(observations))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False], [True])


class Colours(gymnasium.Env):
    """Shows [2, 3] pixels of three colours, all (10 * step + colour); its actions begin at 5."""

    observation_space = Box(0, 255, (2, 3, 3), np.uint8)
    action_space = Discrete(2, start=5)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self._step = 0
        return self._pixels(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._pixels(), float(action), False, False, {}

    def _pixels(self) -> np.ndarray:
        return np.full((2, 3, 3), 10 * self._step, np.uint8) + np.arange(3, dtype=np.uint8)


gymnasium.register("Colours-v0", entry_point=Colours, disable_env_checker=True)


def test_images_are_stacked_as_channels_with_the_newest_frame_last() -> None:
    with playing("Colours-v0", count=1, frame_stack=2) as vector:
        assert vector.spec == Spec((6, 2, 3), "uint8", 2, frames_per_action=1)
        assert vector.reset()[0, :, 0, 0].tolist() == [0, 1, 2, 0, 1, 2]
        vector.step(np.array([0]))
        step = vector.step(np.array([1]))
    assert step.observations.shape == (1, 6, 2, 3)
    assert step.observations[0, :, 1, 2].tolist() == [10, 11, 12, 20, 21, 22]


def test_actions_are_counted_from_the_first_that_the_game_knows() -> None:
    with playing("Colours-v0") as vector:
        vector.reset()
        assert vector.step(np.array([0, 1])).rewards.tolist() == [5.0, 6.0]


def test_a_vector_plays_every_game_of_counting_to_its_end_and_no_further() -> None:
    games = truncations = 0
    with playing("tests.games:Counting-v0", count=3, frame_stack=1) as vector:
        for before, step in random_steps(vector, 100):
            for index in range(3):
                old, new = decode(before[index]), decode(step.observations[index])
                is_over = any(ending(old.environment, old.game, old.step))
                assert step.rewards[index] == reward(old.game, old.step)
                assert step.game_over[index] == is_over
                assert Ending(step.terminated[index], step.truncated[index]) == ending(*old[:3])
                if is_over:
                    assert step.final_observations is not None
                    last = decode(step.final_observations[index])
                    assert last[:3] == (old.environment, old.game, old.step + 1)
                    assert new == Frame(old.environment, old.game + 1, 0, None)
                else:
                    assert new[:3] == (old.environment, old.game, old.step + 1)
            games += int(step.game_over.sum())
            truncations += int(step.truncated.sum())
    assert games > truncations > 0


# The tests' own games


def test_a_frame_of_counting_decodes_to_what_was_encoded() -> None:
    frame = Frame(environment=4_000_000_000, game=70_000, step=12, last_action=5)
    assert decode(encode(frame)[np.newaxis]) == frame
    first = Frame(environment=1, game=0, step=0, last_action=None)
    assert decode(encode(first)) == first


def test_a_frame_of_two_halves_is_found_torn() -> None:
    torn = encode(Frame(1, 2, 3, 4)).copy()
    torn[10:] = encode(Frame(1, 2, 4, 4))[10:]
    with pytest.raises(ValueError, match=r"torn observation: \d+ of 441 bytes"):
        decode(torn)


def test_games_of_counting_have_many_lengths_and_both_endings() -> None:
    lengths = {length(99, game) for game in range(500)}
    assert (min(lengths), max(lengths), len(lengths)) == (3, 30, 28)
    assert ending(99, 0, length(99, 0) - 1) == Ending(terminated=False, truncated=True)
    assert ending(99, 1, length(99, 1) - 1) == Ending(terminated=True, truncated=False)
    assert ending(99, 1, length(99, 1) - 2) == Ending(terminated=False, truncated=False)


def test_catch_pays_one_for_a_ball_in_the_paddle_and_takes_one_for_a_miss() -> None:
    scores = {"follow": 0.0, "flee": 0.0}
    for player in scores:
        with playing("tests.games:Catch-v0", count=8, frame_stack=1) as vector:
            observations = vector.reset()
            for _ in range(6):
                ball = observations[:, 0, :24].max(1).argmax(1)
                paddle = observations[:, 0, 24].argmax(1)
                follow = 1 + np.sign(ball - paddle)
                step = vector.step(follow if player == "follow" else np.where(ball < 14, 2, 0))
                scores[player] += float(step.rewards.sum())
                observations = step.observations
            assert step.terminated.all()
    assert scores == {"follow": 8.0, "flee": -8.0}


def test_a_raising_game_raises_at_its_fiftieth_action() -> None:
    with playing("tests.games:Raising-v0", count=1) as vector:
        vector.reset()
        for _ in range(49):
            vector.step(np.array([0]))
        with pytest.raises(ValueError, match="boom"):
            vector.step(np.array([0]))


# Processes


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_environments_import_no_torch() -> None:
    finished = run_python("-c", "import sys, ga3c.environments; print('torch' in sys.modules)")
    assert (finished.stdout, finished.stderr) == ("False\n", "")


def test_a_child_of_the_fork_server_does_not_import_pytest(tmp_path: Path) -> None:
    like_the_pytest_script = tmp_path / "script.py"
    like_the_pytest_script.write_text(
        "import sys, pytest, tests.conftest\n"
        "from multiprocessing import get_context\n"
        "if __name__ == '__main__':\n"
        "    code = \"import sys; print('child:', 'pytest' in sys.modules, flush=True)\"\n"
        "    child = get_context('forkserver').Process(target=exec, args=(code,))\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    finished = run_python(str(like_the_pytest_script))
    assert (finished.stdout, finished.stderr) == ("child: False\n", "")
