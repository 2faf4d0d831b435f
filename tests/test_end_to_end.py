"""The whole program learns, and what it learned is evaluated and drawn; with the shipped defaults."""

import json

import pytest

from ga3c.csvlog import read_csv
from tests.conftest import ROOT

CARTPOLE = ("--game=CartPole-v1", "--set=training.learning_rate=2e-3", "--run-dir=run")
CATCH = ("--game=tests.games:Catch-v0", "--set=environment.frame_stack=1", "--run-dir=run")


@pytest.mark.parametrize(
    ("arguments", "target", "frames"), [(CARTPOLE, 400, 3_000_000), (CATCH, 0.9, 600_000)]
)
def test_a_game_is_learned_evaluated_and_plotted(run_main, tmp_path, arguments, target, frames):
    end = (f"--frames={frames}", f"--set=run.target_score={target}", "--set=run.metrics_seconds=1")
    training = run_main(*arguments, *end, PYTHONPATH=str(ROOT))
    assert training.wait(240) == 0
    rows = read_csv(tmp_path / "run" / "metrics.csv")
    assert read_csv(tmp_path / "run" / "games.csv")["score"][-100:].mean() >= target
    assert rows["frames"][-1] < frames, "it ended because all frames were played"

    evaluation = run_main("evaluate", "run", "--greedy", PYTHONPATH=str(ROOT))
    assert evaluation.wait(120) == 0
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert len(found["scores"]) == 30
    assert found["mean"] >= target
    assert f"{found['mean']:.1f}" in evaluation.output()

    plot = run_main("plot", "run", "--folder=drawn")
    assert plot.wait() == 0
    assert (tmp_path / "drawn" / "run.png").stat().st_size > 50_000
