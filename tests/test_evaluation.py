"""Scores: whole first games, the same for the same seed, and what they are compared with."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ga3c import checkpoint, config, environments, evaluation, network, runs
from ga3c.checkpoint import CheckpointError
from ga3c.config import Config, ConfigError, Environment, Run
from ga3c.environments import Spec, Step, atari
from ga3c.evaluation import Evaluation
from ga3c.packing import packing_for
from ga3c.reference_scores import REFERENCE, human_normalised

CPU = torch.device("cpu")
PONG = Config(game="Pong")


class Fixed(nn.Module):
    """The same policy for every observation."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.packing = packing_for(Endless.spec)
        self.logits = torch.tensor(logits, dtype=torch.float32)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        count = len(observations)
        return self.logits.expand(count, -1), torch.zeros(count)


class Endless:
    """Environment i plays games of i + 1 actions, worth 10 ** i points an action, again and again."""

    spec = Spec((2,), "float32", actions=3, frames_per_action=1)

    def __init__(self, count: int) -> None:
        self.count = count
        self.steps = 0
        self.actions: list[list[int]] = []
        self.closed = False

    def reset(self) -> np.ndarray:
        return np.zeros((self.count, 2), np.float32)

    def step(self, actions: np.ndarray) -> Step:
        self.steps += 1
        self.actions.append(actions.tolist())
        numbers = np.arange(self.count)
        over = self.steps % (numbers + 1) == 0
        lost_life = np.ones(self.count, bool)
        observations = self.reset()
        return Step(observations, 10.0**numbers, lost_life, over & False, over, observations)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    vector = Endless(4)
    monkeypatch.setattr(environments, "make", lambda *_: vector)
    return vector


def test_only_the_first_game_of_each_environment_counts(endless: Endless) -> None:
    progress: list[int] = []

    result = evaluation.evaluate(Fixed(0, 0, 0), PONG, 4, 1, False, CPU, 800, progress.append)

    assert result == Evaluation("Pong", 800, [1, 20, 300, 4000], [1, 2, 3, 4], greedy=False, seed=1)
    assert progress == [1, 2, 3, 4]
    assert endless.steps == 4
    assert endless.closed


def test_greedy_play_takes_the_most_probable_action(endless: Endless) -> None:
    evaluation.evaluate(Fixed(0.0, 0.2, 0.1), PONG, 4, 1, True, CPU)
    assert endless.actions == [[1, 1, 1, 1]] * 4


def test_sampled_play_follows_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = Endless(200)
    monkeypatch.setattr(environments, "make", lambda *_: vector)
    evaluation.evaluate(Fixed(*np.log([0.7, 0.3]).tolist(), -100.0), PONG, 200, 1, False, CPU)
    counts = np.bincount(np.ravel(vector.actions), minlength=3) / 40_000
    assert counts == pytest.approx([0.7, 0.3, 0.0], abs=0.02)


def test_lives_do_not_end_a_game_whatever_the_run_was_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []

    def make(settings: Config, count: int, _: object) -> Endless:
        seen.append(settings)
        return Endless(count)

    monkeypatch.setattr(environments, "make", make)
    trained = Config(game="Breakout", environment=Environment(episodic_life=True, frame_stack=2))
    evaluation.evaluate(Fixed(0, 0, 0), trained, 1, 1, False, CPU)
    assert seen[0].environment == Environment(episodic_life=False, frame_stack=2)


def test_a_diverged_policy_is_said_not_played(endless: Endless) -> None:
    for greedy in (False, True):
        with pytest.raises(ConfigError, match="policy is not finite"):
            evaluation.evaluate(Fixed(0.0, float("nan"), 0.0), PONG, 4, 1, greedy, CPU)
    assert endless.steps == 0
    assert endless.closed


@pytest.mark.parametrize(
    ("games", "seed", "problem"),
    [(0, 1, "games = 0: expected at least 1"), (1, -1, "seed = -1: expected at least 0")],
)
def test_numbers_out_of_range_are_named(games: int, seed: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        evaluation.evaluate(Fixed(0), PONG, games, seed, False, CPU)


def test_real_games_are_the_same_for_the_same_seed() -> None:
    settings = Config(game="MsPacman", environment=Environment(max_frames=400))
    torch.manual_seed(1)
    model = network.build(environments.describe(settings), settings.network)

    first, second, other = (evaluation.evaluate(model, settings, 2, seed, False, CPU) for seed in (5, 5, 6))

    assert first == second
    assert first.scores != other.scores
    assert first.lengths == other.lengths == [100, 100]
    assert all(score > 0 and score % 10 == 0 for score in first.scores), "raw points, not clipped rewards"


def test_the_mean_and_the_sample_deviation_of_scores() -> None:
    result = Evaluation("Boxing", 0, [80.0, 90.0, 100.0], [5, 6, 7], greedy=False, seed=1)
    assert result.mean == 90
    assert result.std == 10
    assert result.human_normalised == pytest.approx(2140.476, abs=0.001)
    assert Evaluation("Boxing", 0, [80.0], [5], greedy=False, seed=1).std is None


def test_an_evaluation_is_written_as_json(tmp_path: Path) -> None:
    result = Evaluation("CartPole-v1", 500, [10.0, 20.0], [10, 20], greedy=True, seed=3)
    evaluation.write(tmp_path / "evaluation.json", result, Path("run/checkpoints/checkpoint-0000000007.pt"))
    assert json.loads((tmp_path / "evaluation.json").read_text()) == {
        "checkpoint": "checkpoint-0000000007.pt",
        "game": "CartPole-v1",
        "frames": 500,
        "seed": 3,
        "greedy": True,
        "games": 2,
        "mean": 15.0,
        "std": pytest.approx(7.0711, abs=0.0001),
        "human_normalised": None,
        "scores": [10.0, 20.0],
        "lengths": [10, 20],
    }


def saved_run(path: Path, settings: Config) -> tuple[Path, nn.Module]:
    """A run directory with one checkpoint of a new network."""
    settings = replace(settings, run=Run(directory=str(path)))
    spec = environments.describe(settings)
    model = network.build(spec, settings.network)
    with runs.create(settings) as run:
        header = checkpoint.header_for(settings, spec, frames=4000)
        state = {"network": model.state_dict()}
        return checkpoint.save(run.checkpoints, 1, header, state), model


def test_the_network_of_a_checkpoint_is_loaded_with_its_configuration(tmp_path: Path) -> None:
    file, model = saved_run(tmp_path, Config(game="CartPole-v1", seed=77))

    loaded, settings, header = evaluation.load_network(file, CPU)

    assert settings.seed == 77
    assert header.frames == 4000
    assert not loaded.training
    observations = torch.rand(5, 4)
    assert torch.equal(loaded(observations)[0], model(observations)[0])


def test_a_configuration_changed_to_another_game_is_refused(tmp_path: Path) -> None:
    file, _ = saved_run(tmp_path, Config(game="CartPole-v1"))
    (tmp_path / "config.yaml").write_text(config.dump(Config(game="Acrobot-v1")))
    with pytest.raises(CheckpointError, match=re.escape("game CartPole-v1 instead of Acrobot-v1")):
        evaluation.load_network(file, CPU)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file, _ = saved_run(tmp_path, Config(game="CartPole-v1"))
    header = checkpoint.read_header(file)
    for state in ({}, {"network": {"body": torch.zeros(1)}}, {"network": 3}):
        checkpoint.save(file.parent, 1, header, state)
        with pytest.raises(CheckpointError, match=r"0001\.pt: its weights do not fit network mlp"):
            evaluation.load_network(file, CPU)


def test_every_reference_is_of_a_game_there_is() -> None:
    assert len(REFERENCE) == 49
    assert set(REFERENCE) <= set(atari.games())


@pytest.mark.parametrize(
    ("game", "dqn", "percent"),
    [
        ("Breakout", 401.2, 1327.2),
        ("IceHockey", -1.6, 79.3),
        ("MontezumaRevenge", 0, 0.0),
        ("MsPacman", 2311, 13.0),
        ("Pong", 18.9, 132.0),
        ("Qbert", 10596, 78.5),
        ("VideoPinball", 42684, 2538.6),
    ],
)
def test_human_normalised_scores_are_those_published_for_dqn(game: str, dqn: float, percent: float) -> None:
    assert human_normalised(game, dqn) == pytest.approx(percent, abs=0.05)


def test_a_game_without_reference_has_no_normalised_score() -> None:
    assert human_normalised("CartPole-v1", 500) is None
    assert REFERENCE["Alien"].ga3c is None
    assert REFERENCE["Pong"].ga3c == 18
