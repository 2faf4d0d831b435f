"""``tune``, ``--write``, and annealing in a training run, with the real program."""

import numpy as np
import pytest
import yaml

from ga3c.annealing.controller import Trial
from ga3c.config import ConfigError, load
from ga3c.config_edit import set_values
from ga3c.csvlog import read_csv
from tests.conftest import ROOT

QUICK = ("--set", "annealing.interval_seconds=1", "--set", "annealing.settling_seconds=0.2")
SMALL = ("--set", "agents.environments=2", "--set", "training.min_batch_size=10", "--device", "cpu")


def test_single_values_change_and_nothing_else(tmp_path):
    path = tmp_path / "config.yaml"
    before = (ROOT / "config.yaml").read_text()
    path.write_text(before)
    set_values(path, {"agents.count": "7", "trainers.count": "2"})
    changed = [
        (old, new)
        for old, new in zip(before.splitlines(), path.read_text().splitlines(), strict=True)
        if old != new
    ]
    assert [new for _, new in changed] == [
        old.replace("count: auto", "count: 7").replace("count: 1 ", "count: 2 ") for old, _ in changed
    ]
    assert len(changed) == 2
    config = load(path, {})
    assert (config.agents.count, config.trainers.count, config.predictors.count) == (7, 2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "game: Pong\n",
        "game: Pong",
        "agents:\n    slots: 2\ngame: Pong\n",
        "agents: {count: 3, slots: 2}\ngame: Pong\n",
        "agents: {slots: 2}\ngame: Pong\n",
        "# only this\nagents:\n  count: auto  # as many as cores\ngame: Pong\n",
    ],
)
def test_keys_that_a_file_lacks_are_added(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    before = yaml.safe_load(text)
    set_values(path, {"agents.count": "7", "predictors.count": "3"})
    after = yaml.safe_load(path.read_text())
    assert after == before | {
        "agents": before.get("agents", {}) | {"count": 7},
        "predictors": {"count": 3},
    }
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in path.read_text().splitlines() if line.startswith("#")
    ]


def test_a_file_that_is_wrong_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("game: Pong\nagents:\n  count: many\n")
    with pytest.raises(ConfigError, match="predictors"):
        set_values(path, {"predictors.count": "none"})
    assert path.read_text() == "game: Pong\nagents:\n  count: many\n"


def test_tune_searches_and_writes_what_it_found(run_main, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("# mine\ngame: CartPole-v1\nagents:\n  count: auto  # N_A\n")
    program = run_main(
        *("tune", "--minutes", "0.4", "--config", path, "--run-dir", tmp_path / "run", "--write"),
        *("--set", "annealing.max_agents=3", *QUICK, *SMALL),
    )
    assert program.wait(90) == 0, program.output()
    trials = read_csv(tmp_path / "run" / "annealing.csv")
    assert list(trials) == list(Trial._fields)
    assert len(trials["time"]) >= 3, program.output()
    assert (trials["old_agents"][0], trials["old_predictors"][0], trials["old_trainers"][0]) == (1, 1, 1)
    assert np.all(trials["tps"] > 0)
    assert all("experiences per second" in reason for reason in trials["reason"])
    written = load(path, {})
    said = ", ".join(
        f"{name}.count={getattr(written, name).count}" for name in ("agents", "predictors", "trainers")
    )
    assert f"best setting: {said}" in program.output()
    assert path.read_text().startswith("# mine\ngame: CartPole-v1\nagents:\n  count: ")
    assert "  # N_A\n" in path.read_text()
    rows = read_csv(tmp_path / "run" / "metrics.csv")
    assert rows["agents"].max() > 1


def test_a_resumed_run_goes_on_from_what_was_kept(run_main, tmp_path):
    run = tmp_path / "run"
    options = ("--game", "CartPole-v1", *SMALL, "--set", "run.metrics_seconds=0.2")
    program = run_main(*options, "--run-dir", run, "--frames", "2000")
    assert program.wait() == 0, program.output()
    frames = int(read_csv(run / "metrics.csv")["frames"][-1])
    row = Trial(1.0, frames, 1, 1, 1, 1, 2, 1, 1, 2, 1, 9.0, 1.0, 90.0, 1.0, 0.1, 1, "by hand")
    with (run / "annealing.csv").open("a") as file:
        file.write(",".join(map(str, row[:])) + "\n")
    program = run_main("--resume", run, "--frames", 20_000)
    assert program.wait() == 0, program.output()
    assert read_csv(run / "metrics.csv")["predictors"][-1] == 2
    program = run_main("--resume", run, "--frames", 40_000, "--set", "annealing.enabled=false")
    assert program.wait() == 0, program.output()
    assert read_csv(run / "metrics.csv")["predictors"][-1] == 1


def test_a_change_waits_for_no_agent_that_hangs_and_the_run_still_ends(run_main, tmp_path):
    program = run_main(
        *("--game", "tests.games:Hanging-v0", "--run-dir", tmp_path / "run", "--minutes", "0.1"),
        *("--agents", "2", "--set", "annealing.initial_wait_seconds=0", *QUICK, *SMALL),
        cwd=ROOT,
    )
    assert program.wait(60) == 0, program.output()
