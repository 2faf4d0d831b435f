"""What the program does when something ends, breaks or is refused, seen from outside."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from ga3c import checkpoint
from ga3c.csvlog import read_csv
from tests.conftest import ROOT, wait_for

SMALL = (
    "--agents=2",
    "--set=agents.environments=4",
    "--set=training.min_batch_size=20",
    "--set=environment.frame_stack=1",
    "--set=run.metrics_seconds=0.2",
    "--run-dir=run",
)


def game(name):
    return ("--game", f"tests.games:{name}", *SMALL)


@pytest.fixture
def start(run_main):
    """Start a training run whose agents can import the tests' games."""
    return lambda *arguments, **environment: run_main(*arguments, PYTHONPATH=str(ROOT), **environment)


def playing(program, tmp_path):
    """Wait until updates are made; returns the processes of the run."""
    metrics = tmp_path / "run" / "metrics.csv"

    def has_trained():
        assert program.popen.poll() is None, program.output()
        return metrics.exists() and (read_csv(metrics)["updates"] > 20).any()

    wait_for(has_trained, 60)
    return program.processes()


def agents_of(program):
    """The children of the fork server."""
    found = []
    for process in program.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() != program.popen.pid and process.pid != program.popen.pid:
                found.append(process)
    return found


def test_run_ends_by_itself_and_leaves_every_file(start, tmp_path):
    program = start(*game("Catch-v0"), "--frames=3000")
    assert program.wait() == 0
    run = tmp_path / "run"
    assert {"config.yaml", "metrics.csv", "games.csv", "run.log", "checkpoints"} <= set(os.listdir(run))
    rows, games = read_csv(run / "metrics.csv"), read_csv(run / "games.csv")
    assert rows["frames"][-1] >= 2500
    assert set(games["length"]) == {6.0}
    header = checkpoint.read_header(checkpoint.newest(run / "checkpoints", pytest.fail))
    assert header.frames >= 3000


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_to_the_whole_group_saves_and_resume_continues(start, tmp_path, number, code):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    os.killpg(program.popen.pid, number)
    assert program.wait(10) == code
    assert "Traceback" not in program.output()
    saved = checkpoint.newest(tmp_path / "run" / "checkpoints", pytest.fail)
    _, before = checkpoint.load(saved)
    resumed = start("--resume=run", f"--frames={before['totals']['predictions'] + 2000}")
    assert resumed.wait() == 0
    _, after = checkpoint.load(checkpoint.newest(tmp_path / "run" / "checkpoints", pytest.fail))
    for counter in ("seconds", "predictions", "updates", "games"):
        assert after["totals"][counter] > before["totals"][counter]
    assert after["version"] > before["version"]
    assert after["next_agent"] == before["next_agent"] + 2, "resumed agents must not repeat old seeds"
    rows = read_csv(tmp_path / "run" / "metrics.csv")
    assert (rows["frames"][1:] >= rows["frames"][:-1]).all()
    assert (rows["time"][1:] >= rows["time"][:-1]).all()
    games = read_csv(tmp_path / "run" / "games.csv")
    assert len(games["score"]) == after["totals"]["games"]


def test_second_ctrl_c_ends_at_once(start, tmp_path):
    program = start("--game", "tests.games:Hanging-v0", *SMALL)
    wait_for(lambda: len(agents_of(program)) >= 2, 30)
    wait_for(lambda: "0:00:0" in program.output(), 30)

    def impatient():
        program.popen.send_signal(signal.SIGINT)
        return program.popen.poll() is not None

    wait_for(impatient, 4)
    assert program.wait() == 130


def test_second_ctrl_c_ends_at_once_where_some_agents_have_left(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    agents_of(program)[-1].suspend()

    def impatient():
        program.popen.send_signal(signal.SIGINT)
        return program.popen.poll() is not None

    wait_for(impatient, 5)
    assert program.wait() == 130
    assert "Traceback" not in program.output()


def test_one_ctrl_c_ends_and_saves_where_an_agent_does_not_answer(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    agents_of(program)[-1].suspend()
    program.popen.send_signal(signal.SIGINT)
    assert program.wait(10) == 130
    assert checkpoint.newest(tmp_path / "run" / "checkpoints", pytest.fail)


def test_run_under_nohup_outlives_its_terminal(start, tmp_path):
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = start(*game("Catch-v0"))
    finally:
        signal.signal(signal.SIGHUP, handler)
    playing(program, tmp_path)
    os.killpg(program.popen.pid, signal.SIGHUP)
    metrics = tmp_path / "run" / "metrics.csv"
    rows = len(read_csv(metrics)["time"])
    wait_for(lambda: len(read_csv(metrics)["time"]) > rows + 5)
    program.popen.send_signal(signal.SIGTERM)
    assert program.wait(10) == 143


def test_killed_fork_server_is_started_again_and_training_goes_on(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    (fork_server,) = {agent.parent() for agent in agents_of(program)}
    fork_server.kill()
    wait_for(lambda: program.output().count("replaces it") == 2)
    metrics = tmp_path / "run" / "metrics.csv"
    rows = len(read_csv(metrics)["time"])
    wait_for(lambda: len(read_csv(metrics)["time"]) > rows + 5)
    assert read_csv(metrics)["updates"][-1] > read_csv(metrics)["updates"][rows]
    os.killpg(program.popen.pid, signal.SIGINT)
    assert program.wait(10) == 130
    assert "KeyboardInterrupt" not in program.output()


def test_killed_server_leaves_no_process(start, tmp_path):
    program = start(*game("Counting-v0"))
    everything = playing(program, tmp_path)
    assert len(everything) >= 4
    program.popen.kill()
    program.wait()
    wait_for(lambda: not program.processes(), 2)


def test_killed_agent_is_replaced_and_training_goes_on(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    victim = agents_of(program)[0]
    victim.kill()
    wait_for(lambda: "killed by SIGKILL" in program.output())
    assert re.search(r"agent \d+ was killed by SIGKILL .*; agent 2 replaces it", program.output())
    rows = len(read_csv(tmp_path / "run" / "metrics.csv")["time"])
    wait_for(lambda: len(read_csv(tmp_path / "run" / "metrics.csv")["time"]) > rows + 5)
    metrics = read_csv(tmp_path / "run" / "metrics.csv")
    assert metrics["agents"][-1] == 2
    assert metrics["updates"][-1] > metrics["updates"][rows]
    program.popen.send_signal(signal.SIGTERM)
    assert program.wait(10) == 143


def test_agents_that_cannot_start_end_the_run_with_their_own_error_once(start):
    program = start(*game("RaisingAtReset-v0"))
    assert program.wait(30) == 1
    assert program.output().count("ValueError: boom") == 1
    assert "before its first action" in program.output()
    assert "games.py" in program.output()


@pytest.mark.parametrize(
    ("name", "said"),
    [("Raising-v0", "ValueError: boom"), ("Crashing-v0", "exit code 3"), ("Segfaulting-v0", "SIGSEGV")],
)
def test_agents_that_fail_again_and_again_end_the_run_and_save(start, tmp_path, name, said):
    program = start(*game(name))
    assert program.wait(60) == 1
    assert said in program.output()
    assert "agents failed within 60 seconds" in program.output()
    assert checkpoint.newest(tmp_path / "run" / "checkpoints", pytest.fail)


def test_one_run_directory_has_one_run(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    second = start("--resume=run")
    assert second.wait() == 2
    assert str(program.popen.pid) in second.output()
    program.popen.kill()
    program.wait()
    third = start("--resume=run", "--frames=100")
    assert third.wait() == 2, "killed before its first checkpoint: there is nothing to resume"
    assert "checkpoint" in third.output()


def run_with_files_limited_to(size, tmp_path, *arguments):
    """The whole program under a limit on the size of files, which stands in for a full disk."""
    program = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); "
        "sys.argv[0] = sys.argv.pop(1); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "main.py"), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def test_disk_too_full_for_checkpoints_is_said_and_ends_the_run_after_three(tmp_path):
    small = ("--set=agents.environments=1", "--set=agents.slots=2", "--set=run.checkpoint_minutes=0.01")
    result = run_with_files_limited_to(100_000, tmp_path, *game("Counting-v0"), *small)
    assert result.returncode == 1
    assert "checkpoint not written" in result.stdout
    assert "File too large" in result.stdout
    assert "3 checkpoints in a row" in result.stderr
    assert os.listdir(tmp_path / "run" / "checkpoints") == []


def test_disk_too_full_for_metrics_is_said_once_and_training_goes_on(tmp_path):
    small = ("--set=agents.environments=1", "--set=agents.slots=2", "--set=run.metrics_seconds=0.1")
    result = run_with_files_limited_to(8_000, tmp_path, *game("Counting-v0"), *small, "--minutes=0.1")
    assert result.returncode == 1, "the last checkpoint was not written either"
    assert result.stdout.count("metrics not written to run: File too large") == 1
    assert "time 0:00:06 of 0:00:06" in result.stdout
    assert "Traceback" not in result.stderr


def test_too_little_memory_is_said_before_any_agent_plays(tmp_path):
    result = run_with_files_limited_to(10_000, tmp_path, *game("Counting-v0"))
    assert result.returncode == 1
    assert "MiB of shared memory" in result.stderr


def test_closed_standard_output_does_not_stop_the_run(start, tmp_path):
    command = [sys.executable, str(ROOT / "main.py"), *game("Catch-v0"), "--frames=3000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment) as popen:
        popen.stdout.close()
        assert popen.wait(60) == 0


def test_agents_have_not_imported_torch(start, tmp_path):
    program = start(*game("Catch-v0"))
    playing(program, tmp_path)
    agents = agents_of(program)
    assert len(agents) >= 2
    for process in agents:
        maps = {mapped.path for mapped in process.memory_maps()}
        assert any("numpy" in path for path in maps)
        assert not any("torch" in path for path in maps)
    program.popen.send_signal(signal.SIGTERM)
    assert program.wait(10) == 143
