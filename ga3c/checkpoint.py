"""Checkpoints: written whole or not at all, and verified before anything in them is used.

A file is one line of text and then what ``torch.save`` made of the state. The line holds a magic word,
the SHA-256 of all that follows it, and the header as JSON.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ga3c import environments, network
from ga3c.config import Config, ConfigError
from ga3c.environments import Spec
from ga3c.runs import CHECKPOINTS, CONFIG, TEMPORARY, write_whole

_MAGIC = b"GA3C-CHECKPOINT "
_FORMAT = 2
_LONGEST_LINE = 65536
_KEEP = 3


class CheckpointError(ConfigError):
    """A checkpoint that cannot be used. The message names the file, the reason and what to do.

    ``problem`` is the message without what to do.
    """

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        self.problem = f"{path}: {reason}"
        super().__init__([f"{self.problem}; {remedy}"])


@dataclass(frozen=True)
class Header:
    """What a checkpoint is of. ``frames`` (played so far) may differ between checkpoints of one run."""

    game: str
    network: str
    observation_shape: tuple[int, ...]
    actions: int
    frames: int


def header_for(config: Config, spec: Spec, frames: int) -> Header:
    """The header of a run's checkpoints, with the game's canonical name and ``auto`` resolved."""
    return Header(
        game=environments.canonical_name(config.game),
        network=network.name_for(spec, config.network),
        observation_shape=tuple(spec.observation_shape),
        actions=spec.actions,
        frames=frames,
    )


def save(folder: Path, number: int, header: Header, state: dict[str, Any]) -> Path:
    """Write ``checkpoint-<number>.pt``, then delete all but the newest three up to this number.

    ``state`` holds nested dicts, lists, tensors, numbers and text. When this returns, the file is on
    the disk. Raises OSError when it cannot be written, and then the older ones are untouched and no
    temporary file is left; TypeError for a state that could not be loaded again.
    """
    _require_plain(state, "state")
    line, payload = _encode(header, state)
    path = folder / f"checkpoint-{number:010}.pt"
    write_whole(path, line, payload)
    for old in [other for other in _newest_first(folder) if _number(other) <= number][_KEEP:]:
        if old.is_file():
            old.unlink(missing_ok=True)
    return path


def load(path: Path, expected: Header | None = None) -> tuple[Header, dict[str, Any]]:
    """The header and the state, tensors on the CPU; frames of ``expected`` are not compared.

    Raises CheckpointError for a file that is missing, damaged, foreign or made for something else.
    """
    header, payload = _read(path)
    if expected is not None:
        _compare(path, header, expected)
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no common class for what a strange file makes it raise
        reason = str(error).strip().partition("\n")[0]
        raise _foreign(path, f"torch refuses its contents: {reason}") from error
    if not isinstance(state, dict):
        raise _foreign(path, f"it holds a {type(state).__name__}")
    return header, state


def read_header(path: Path) -> Header:
    """The header of a checkpoint whose every byte was verified; raises CheckpointError as ``load``."""
    header, _ = _read(path)
    return header


def newest(folder: Path, warn: Callable[[str], None]) -> Path:
    """The newest whole checkpoint; each damaged one that is newer is reported to ``warn``.

    Raises CheckpointError when there is none.
    """
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            read_header(path)
        except CheckpointError as error:
            problems.append(error.problem)
            continue
        for problem in problems:
            warn(f"{problem}; using {path.name} instead")
        return path
    found = f" ({'; '.join(problems)})" if problems else ""
    raise CheckpointError(folder, f"no whole checkpoint in this folder{found}", "begin a new run")


def checkpoint_of(path: Path, warn: Callable[[str], None]) -> Path:
    """The checkpoint that a path means: the file itself, or the newest whole one of a run directory.

    Raises ConfigError for any other path, CheckpointError when the run has no whole checkpoint;
    ``warn`` as for ``newest``.
    """
    try:
        if path.is_file():
            return path
        if (path / CONFIG).is_file():
            return newest(path / CHECKPOINTS, warn)
        found = "is something else" if path.exists() else "does not exist"
    except OSError as error:
        found = f"cannot be opened ({error.strerror or error})"
    raise ConfigError([f"{path}: {found}; expected a run directory (with a {CONFIG}) or a checkpoint file"])


def remove_leftovers(folder: Path) -> None:
    """Delete what was being written when a run was killed; only for the one process of the run."""
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def _encode(header: Header, state: dict[str, Any]) -> tuple[bytes, memoryview]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    fields = {"format": _FORMAT, "length": len(payload)} | asdict(header)
    described = json.dumps(fields).encode() + b"\n"
    return _MAGIC + _digest(described, payload) + b" " + described, payload


def _read(path: Path) -> tuple[Header, bytes]:
    """The header and the bytes of the state, verified; the state is not looked into."""
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(path, "is not a file", "give a checkpoint such as checkpoint-0000001000.pt")
        with path.open("rb") as file:
            line = file.readline(_LONGEST_LINE)
            payload = file.read() if line.startswith(_MAGIC) else b""
    except OSError as error:
        remedy = "check the path and its permissions"
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}", remedy) from error
    if line[: len(_MAGIC)] != _MAGIC[: len(line)]:
        raise _foreign(path, "its first bytes differ")
    if not line.endswith(b"\n"):
        raise _damaged(path, "its first line is cut short")
    return _verified(path, line, payload), payload


def _verified(path: Path, line: bytes, payload: bytes) -> Header:
    digest, _, described = line.removeprefix(_MAGIC).partition(b" ")
    try:
        fields = json.loads(described)
        found, length = fields.pop("format"), fields.pop("length")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, "its header is not readable") from error
    if found != _FORMAT:
        reason = f"has format {found}; this program reads format {_FORMAT}"
        raise CheckpointError(path, reason, "use the version of the program that wrote it")
    if length != len(payload):
        raise _damaged(path, f"{len(payload)} bytes follow its header, not {length}")
    if digest != _digest(described, payload):
        raise _damaged(path, "its SHA-256 differs")
    try:
        return Header(**fields | {"observation_shape": tuple(fields["observation_shape"])})
    except (KeyError, TypeError) as error:
        raise _damaged(path, "its header is not complete") from error


def _compare(path: Path, found: Header, expected: Header) -> None:
    names = ("game", "network", "observation_shape", "actions")
    pairs = [(name, getattr(found, name), getattr(expected, name)) for name in names]
    different = [f"{name} {is_} instead of {should}" for name, is_, should in pairs if is_ != should]
    if different:
        remedy = "use it with the configuration it was made with"
        raise CheckpointError(path, f"is of another run: {', '.join(different)}", remedy)


def _digest(described: bytes, payload: bytes | memoryview) -> bytes:
    sha = hashlib.sha256(described)
    sha.update(payload)
    return sha.hexdigest().encode()


def _newest_first(folder: Path) -> list[Path]:
    named = [path for path in folder.glob("checkpoint-*.pt") if re.fullmatch(r"checkpoint-\d+", path.stem)]
    return sorted(named, key=_number, reverse=True)


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("checkpoint-"))


def _require_plain(value: Any, place: str) -> None:
    """Subclasses of numbers, such as numpy's, would be saved but refused by ``load``."""
    if isinstance(value, dict):
        for key, item in value.items():
            _require_plain(key, f"a key of {place}")
            _require_plain(item, f"{place}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            _require_plain(item, f"{place}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in (bool, int, float, str, type(None)):
        raise TypeError(f"{place} is a {type(value).__name__}; expected a tensor, a number, text or a list")


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(path, f"damaged ({reason})", "use an older checkpoint, or begin a new run")


def _foreign(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(path, f"not a GA3C checkpoint ({reason})", "give one that a training run wrote")
