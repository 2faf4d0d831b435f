"""Wrong use is refused with exit code 2 and a sentence that names the key, the value and what is right."""

import os
import stat
import subprocess
import sys

import pytest
import torch

from ga3c import checkpoint, environments, runs
from ga3c.config import load
from ga3c.model import Model
from tests.conftest import ROOT


def run(tmp_path, *arguments, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "main.py"), *map(str, arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--game", "Pnog"], "game = 'Pnog': no such game; did you mean Pong?"),
        (["--game", "CartPol-v1"], "did you mean CartPole-v1"),
        (["--game", "nothing_here:X-v0"], "module 'nothing_here' cannot be imported"),
        (["--set", "training.min_batch_sise=40"], "unknown key 'training.min_batch_sise' (did you mean"),
        (["--set", "agents.environments=0"], "agents.environments = '0': expected a whole number from 1"),
        (["--set", "agents.environments"], "--set agents.environments: expected KEY=VALUE"),
        (["--frames", "-1"], "run.frames = '-1': expected a whole number of at least 1"),
        (["--minutes", "soon"], "run.minutes = 'soon': expected a number"),
        (["--device", "gpu"], "device = 'gpu': expected auto, cpu"),
        (["--device", "cuda:99"], "CUDA devices; expected auto or cpu"),
        (["--set", "network.name=mlp"], "network.name = 'mlp' does not take images"),
        (["--game", "CartPole-v1", "--set", "network.name=small"], "does not take vectors"),
        (["--config", "missing.yaml"], "missing.yaml: cannot be read"),
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", ".", "--run-dir", "x"], "leave out --config and --run-dir"),
        (["evaluate", "nowhere"], "nowhere"),
        (["--agents=600", "--set=agents.slots=16"], "expected a product of at most 8000"),
        (["plot", "nowhere"], "nowhere"),
        (["--speling"], "unrecognized arguments: --speling"),
        (["trian"], "invalid choice: 'trian'"),
    ],
)
def test_wrong_use_is_refused(tmp_path, arguments, said):
    result = run(tmp_path, *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == [], "a refused run leaves nothing"


def test_all_problems_are_said_together(tmp_path):
    result = run(tmp_path, "--frames=0", "--agents=many", "--set=training.t_max=1.5", "--set=tpyo=1")
    assert result.returncode == 2
    assert len([line for line in result.stderr.splitlines() if line.startswith("ga3c: ")]) == 4


@pytest.mark.parametrize("text", ["", "- a list", "game: [", "game: Pong\ngame: Boxing", "\tgame: Pong"])
def test_broken_configuration_is_refused(tmp_path, text):
    (tmp_path / "broken.yaml").write_text(text)
    result = run(tmp_path, "--config=broken.yaml")
    assert result.returncode == 2
    assert result.stderr.startswith("ga3c: broken.yaml")


def make_run(path, game="CartPole-v1"):
    """A run directory with one checkpoint, as a training run leaves it."""
    config = load(None, {"game": game, "run.directory": str(path)})
    spec = environments.describe(config)
    with runs.create(config) as directory:
        state = Model(spec, config).state() | {
            "totals": {}, "scores": [], "next_agent": 0, "next_predictor": 0
        }  # fmt: skip
        header = checkpoint.header_for(config, spec, frames=0)
        return checkpoint.save(directory.checkpoints, 0, header, state)


def test_truncated_checkpoint_is_refused_by_name(tmp_path):
    file = make_run(tmp_path / "run")
    os.truncate(file, file.stat().st_size // 2)
    result = run(tmp_path, "--resume=run")
    assert result.returncode == 2
    assert file.name in result.stderr
    assert "Traceback" not in result.stderr


def test_resume_steps_back_over_a_damaged_checkpoint_and_says_so(tmp_path):
    whole = make_run(tmp_path / "run")
    damaged = whole.with_name(whole.name.replace("0000000000", "0000000007"))
    damaged.write_bytes(whole.read_bytes()[:-1])
    result = run(tmp_path, "--resume=run", "--frames=2000", "--set=agents.environments=4")
    assert result.returncode == 0
    assert damaged.name in result.stderr


def test_checkpoint_of_another_game_is_refused_with_both_names(tmp_path):
    make_run(tmp_path / "run", "CartPole-v1")
    result = run(tmp_path, "--resume=run", "--game=Acrobot-v1")
    assert result.returncode == 2
    assert "CartPole-v1" in result.stderr
    assert "Acrobot-v1" in result.stderr


def test_resume_with_another_optimiser_is_refused_and_spoils_nothing(tmp_path):
    make_run(tmp_path / "run")
    result = run(tmp_path, "--resume=run", "--set=training.optimizer=adam")
    assert result.returncode == 2
    assert "training.optimizer = 'adam': the run was trained with 'rmsprop'" in result.stderr
    assert run(tmp_path, "--resume=run", "--frames=500", "--set=agents.environments=4").returncode == 0


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:99"])
def test_evaluation_on_a_device_that_is_not_there_is_refused(tmp_path, device):
    make_run(tmp_path / "run")
    result = run(tmp_path, "evaluate", "run", f"--device={device}")
    assert result.returncode == 2
    assert f"device = '{device}'" in result.stderr


def test_run_directory_that_is_a_file_or_in_use_by_another_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(tmp_path, "--run-dir=file").returncode == 2
    make_run(tmp_path / "run")
    result = run(tmp_path, "--run-dir=run")
    assert result.returncode == 2
    assert "--resume" in result.stderr


def test_run_directory_without_permission_is_refused(tmp_path):
    """Root may write anywhere but under /proc, where nobody can make a directory."""
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
    target = "/proc/run" if os.geteuid() == 0 else closed / "run"
    result = run(tmp_path, f"--run-dir={target}")
    assert result.returncode == 2
    assert str(target) in result.stderr
    assert "Traceback" not in result.stderr


def test_model_of_a_seed_is_the_same_and_of_another_is_not():
    def weights(seed):
        config = load(None, {"game": "CartPole-v1", "seed": seed})
        return Model(environments.describe(config), config).parameters[0]

    assert torch.equal(weights("3"), weights("3"))
    assert not torch.equal(weights("3"), weights("4"))
