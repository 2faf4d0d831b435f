"""The run directory: where a training run keeps its configuration, metrics, checkpoints and lock."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO, Self

from ga3c import config as configuration
from ga3c.config import Config, ConfigError
from ga3c.environments import canonical_name

TEMPORARY = ".tmp-"
"""What the name of a file begins with until it is whole."""

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
"""What stands in every run directory."""

_LOCK = "lock"


@dataclass(frozen=True)
class RunDirectory:
    """A run directory that this process alone may write to, until ``close`` or its death."""

    path: Path
    _lock: IO[str]

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def games_file(self) -> Path:
        return self.path / "games.csv"

    @property
    def annealing_file(self) -> Path:
        return self.path / "annealing.csv"

    @property
    def log_file(self) -> Path:
        return self.path / "run.log"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints; it exists."""
        return self.path / CHECKPOINTS

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create(config: Config) -> RunDirectory:
    """A new run directory with the configuration in it: ``run.directory``, or ``runs/<game>-<time>``.

    Raises ConfigError when it cannot be made, is not empty, or the game does not exist.
    """
    automatic = config.run.directory == "auto"
    with _reporting(Path("runs" if automatic else config.run.directory), "no run directory can be made"):
        path = _made_unique(config.game) if automatic else _made(Path(config.run.directory))
        run = RunDirectory(path, _locked(path))
        try:
            _require_empty(path)
            write_whole(run.config_file, configuration.dump(config).encode())
            run.checkpoints.mkdir()
        except BaseException:
            run.close()
            raise
    return run


def open_run(path: Path) -> RunDirectory:
    """An existing run directory, to resume it; raises ConfigError when it is none or is in use."""
    with _reporting(path, "cannot be opened"):
        if not path.is_dir():
            raise ConfigError([f"{path}: no such run directory"])
        if not (path / CONFIG).is_file():
            raise ConfigError([f"{path}: is not a run directory; expected a {CONFIG} in it"])
        run = RunDirectory(path, _locked(path))
        try:
            run.checkpoints.mkdir(exist_ok=True)
        except BaseException:
            run.close()
            raise
    return run


def config_of(checkpoint_file: Path) -> Config:
    """The configuration of the run that wrote a checkpoint; raises ConfigError without one."""
    path = checkpoint_file.absolute().parent.parent / CONFIG
    if not path.is_file():
        message = f"{checkpoint_file}: its run's configuration is missing; expected it at {path}"
        raise ConfigError([message])
    return configuration.load(path, {})


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file so that whatever happens there is the old one or the new one, never a part.

    When this returns, the file is on the disk. Raises OSError when it cannot be written, and then no
    temporary file is left.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    _require_empty(path)
    return path


def _made_unique(game: str) -> Path:
    name = canonical_name(game).replace(":", "-").replace("/", "-")
    first = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in count(1):
        path = Path("runs") / (first if number == 1 else f"{first}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            if not path.exists():
                raise
    return path


def _require_empty(path: Path) -> None:
    if any(entry.name != _LOCK for entry in path.iterdir()):
        raise ConfigError([f"run.directory = '{path}': is not empty; to continue a run use --resume {path}"])


def _locked(path: Path) -> IO[str]:
    """Take the lock of a run directory; the kernel gives it back however this process ends."""
    file = (path / _LOCK).open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    except BlockingIOError as error:
        with file:
            file.seek(0)
            holder = file.read().strip() or "unknown"
        raise ConfigError([f"{path}: is in use by another run (process {holder})"]) from error
    except BaseException:
        file.close()
        raise
    return file


@contextmanager
def _reporting(path: Path, problem: str) -> Iterator[None]:
    """Turn an error of the operating system into a ConfigError that names the path and the cause."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(path) else ""
        raise ConfigError([f"{path}: {problem}: {cause}{at}"]) from error
