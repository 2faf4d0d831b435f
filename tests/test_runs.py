"""Run directories: made once, owned by one process, and clear errors where that is not possible."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from ga3c import config, runs
from ga3c.config import Config, ConfigError, Run

HOLDER = """
import sys
from pathlib import Path
from ga3c import runs
run = runs.open_run(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


class Midnight(runs.datetime):
    @classmethod
    def now(cls, tz: object = None) -> "Midnight":
        return cls(2025, 1, 31, 23, 59, 58)


def in_directory(path: Path, game: str = "Pong") -> Config:
    return Config(game=game, run=Run(directory=str(path)))


def test_a_run_is_named_after_its_game_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "datetime", Midnight)
    for game in ("ms_pacman", "MsPacman", "ALE/MsPacman-v5", "my_package:MyGame-v0"):
        runs.create(Config(game=game)).close()
    assert sorted(os.listdir("runs")) == [
        "MsPacman-20250131-235958",
        "MsPacman-20250131-235958-2",
        "MsPacman-20250131-235958-3",
        "my_package-MyGame-v0-20250131-235958",
    ]


def test_a_new_run_holds_its_configuration(tmp_path: Path) -> None:
    settings = in_directory(tmp_path / "a" / "b", "CartPole-v1")
    with runs.create(settings) as run:
        assert run.path == tmp_path / "a" / "b"
        assert config.load(run.config_file, {}) == settings
        assert sorted(os.listdir(run.path)) == ["checkpoints", "config.yaml", "lock"]


def test_the_files_of_a_run_have_fixed_names(tmp_path: Path) -> None:
    with runs.create(in_directory(tmp_path)) as run:
        files = (run.config_file, run.metrics_file, run.games_file, run.log_file)
        assert [file.name for file in files] == [
            "config.yaml",
            "metrics.csv",
            "games.csv",
            "run.log",
        ]
        assert run.checkpoints.is_dir()


def test_an_unknown_game_makes_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="Pongg"):
        runs.create(Config(game="Pongg"))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=rf"'{tmp_path}': is not empty; .* --resume {tmp_path}"):
        runs.create(in_directory(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_run_that_another_process_made_a_moment_ago_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def late(file: IO[str], operation: int) -> None:
        flock(file, operation)
        (tmp_path / "config.yaml").write_text("game: Boxing\n")

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(ConfigError, match="is not empty"):
        runs.create(in_directory(tmp_path))
    assert (tmp_path / "config.yaml").read_text() == "game: Boxing\n"


def test_a_file_in_place_of_a_run_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError, match="runs: no run directory can be made: Not a directory"):
        runs.create(Config(game="Pong"))
    with pytest.raises(ConfigError, match="runs: no run directory can be made: File exists"):
        runs.create(in_directory(tmp_path / "runs"))


def test_a_dangling_link_in_place_of_the_runs_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(tmp_path / "unmounted")
    with pytest.raises(ConfigError, match="runs: no run directory can be made: File exists"):
        runs.create(Config(game="Pong"))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_directory_that_cannot_be_made_is_named_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: object, *_: object) -> None:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(
        ConfigError, match=rf"{tmp_path}/new: no run directory can be made: {os.strerror(code)}"
    ):
        runs.create(in_directory(tmp_path / "new"))


def test_a_disk_that_is_full_at_the_start_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(ConfigError, match=r"no run directory can be made: No space left on device"):
            runs.create(in_directory(tmp_path))
    runs.create(in_directory(tmp_path)).close()


def test_a_run_can_be_opened_again(tmp_path: Path) -> None:
    runs.create(in_directory(tmp_path)).close()
    with runs.open_run(tmp_path) as run:
        assert run.path == tmp_path
        assert run.checkpoints.is_dir()


def test_what_is_no_run_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone: no such run directory"):
        runs.open_run(tmp_path / "gone")
    with pytest.raises(ConfigError, match=r"is not a run directory; expected a config\.yaml in it"):
        runs.open_run(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file: no such run directory"):
        runs.open_run(tmp_path / "file")


def test_a_second_opening_of_a_run_names_the_process_that_has_it(tmp_path: Path) -> None:
    with runs.create(in_directory(tmp_path)):
        for _ in range(2):
            with pytest.raises(ConfigError, match=rf"in use by another run \(process {os.getpid()}\)"):
                runs.open_run(tmp_path)
    runs.open_run(tmp_path).close()


def test_a_killed_process_gives_its_run_back(tmp_path: Path) -> None:
    runs.create(in_directory(tmp_path)).close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(ConfigError, match=rf"in use by another run \(process {holder.pid}\)"):
            runs.open_run(tmp_path)
        holder.kill()
        holder.wait()
        runs.open_run(tmp_path).close()


def test_the_configuration_of_a_checkpoint_is_that_of_its_run(tmp_path: Path) -> None:
    with runs.create(in_directory(tmp_path, "Breakout")) as run:
        assert runs.config_of(run.checkpoints / "checkpoint-0000000001.pt").game == "Breakout"
    with pytest.raises(ConfigError, match=r"x\.pt: its run's configuration is missing; expected it at "):
        runs.config_of(tmp_path / "a" / "b" / "x.pt")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    runs.write_whole(tmp_path / "a.json", b"old ", b"text")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        runs.write_whole(tmp_path / "a.json", b"new")
    assert os.listdir(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"old text"


def test_runs_does_not_import_torch() -> None:
    program = "import sys, ga3c.runs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
