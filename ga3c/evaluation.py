"""Scores of a trained network: the mean over games that begin from random seeds (paper section 5.2)."""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ga3c import checkpoint, environments, network, runs
from ga3c.checkpoint import CheckpointError, Header
from ga3c.config import Config, ConfigError
from ga3c.reference_scores import human_normalised


@dataclass(frozen=True)
class Evaluation:
    """Whole games of one network; ``frames`` is what it was trained for, ``lengths`` are in actions."""

    game: str
    frames: int
    scores: list[float]
    lengths: list[int]
    greedy: bool
    seed: int

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def std(self) -> float | None:
        """The sample standard deviation (divided by games - 1); None for a single game."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def human_normalised(self) -> float | None:
        """The mean in percent between random play (0) and a human (100); None where unknown."""
        return human_normalised(self.game, self.mean)

    def as_json(self, checkpoint_file: str) -> dict[str, Any]:
        return {
            "checkpoint": checkpoint_file,
            "game": self.game,
            "frames": self.frames,
            "seed": self.seed,
            "greedy": self.greedy,
            "games": len(self.scores),
            "mean": self.mean,
            "std": self.std,
            "human_normalised": self.human_normalised,
            "scores": self.scores,
            "lengths": self.lengths,
        }


def load_network(checkpoint_file: Path, device: torch.device) -> tuple[network.ActorCritic, Config, Header]:
    """The network of a checkpoint in its run directory, in float32, with the run's configuration.

    Raises ConfigError without the run's configuration, CheckpointError for an unusable checkpoint.
    """
    config = runs.config_of(checkpoint_file)
    spec = environments.describe(config)
    header, state = checkpoint.load(checkpoint_file, checkpoint.header_for(config, spec, frames=0))
    model = network.build(spec, config.network)
    try:
        model.load_state_dict(state["network"])
    except (KeyError, TypeError, RuntimeError) as error:
        reason = f"its weights do not fit network {header.network}"
        remedy = "use the version of the program that wrote it"
        raise CheckpointError(checkpoint_file, reason, remedy) from error
    return model.to(device).eval(), config, header


def evaluate(
    model: network.ActorCritic,
    config: Config,
    games: int,
    seed: int,
    greedy: bool,
    device: torch.device,
    frames: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Play one whole game in each of ``games`` environments; lost lives never end one.

    The first game of each counts, so short games are not over-represented. Actions are sampled from
    the policy, or are its most probable when ``greedy``. The same seed gives the same games.
    ``frames`` (of the checkpoint) is only noted; ``on_progress`` is told how many games have ended.
    Raises ConfigError for less than one game, a negative seed, or a policy with values not finite.
    """
    _check(games, seed)
    whole_games = replace(config, environment=replace(config.environment, episodic_life=False))
    vector = environments.make(whole_games, games, np.random.SeedSequence(seed))
    generator = torch.Generator().manual_seed(seed)
    scores = np.zeros(games)
    lengths = np.zeros(games, np.int64)
    playing = np.ones(games, bool)
    try:
        observations = vector.reset()
        while playing.any():
            actions = _choose(model, model.packing.pack(observations).to(device), greedy, generator)
            step = vector.step(actions.numpy())
            observations = step.observations
            scores[playing] += step.rewards[playing]
            lengths[playing] += 1
            ended = playing & step.game_over
            playing &= ~ended
            if on_progress and ended.any():
                on_progress(games - int(playing.sum()))
    finally:
        vector.close()
    game = environments.canonical_name(config.game)
    return Evaluation(game, frames, scores.tolist(), lengths.tolist(), greedy, seed)


def write(path: Path, evaluation: Evaluation, checkpoint_file: Path) -> None:
    """Write an evaluation as JSON, whole or not at all; raises OSError."""
    text = json.dumps(evaluation.as_json(checkpoint_file.name), indent=2) + "\n"
    runs.write_whole(path, text.encode())


@torch.inference_mode()
def _choose(
    model: network.ActorCritic, observations: Tensor, greedy: bool, generator: torch.Generator
) -> Tensor:
    """Actions int64 [N] on the CPU, where sampling does not depend on the device."""
    logits = model(observations)[0].cpu()
    if not logits.isfinite().all():
        raise ConfigError(
            ["the network's policy is not finite: its training diverged; use another checkpoint"]
        )
    if greedy:
        return logits.argmax(1)
    return torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def _check(games: int, seed: int) -> None:
    problems = []
    if games < 1:
        problems.append(f"games = {games}: expected at least 1")
    if seed < 0:
        problems.append(f"seed = {seed}: expected at least 0")
    if problems:
        raise ConfigError(problems)
