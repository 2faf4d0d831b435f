"""Checkpoints: whole or not at all, and never anything but a clear error for a bad one."""

import errno
import hashlib
import json
import os
import pickle
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ga3c import checkpoint
from ga3c.checkpoint import CheckpointError, Header
from ga3c.config import Config, ConfigError, Network
from ga3c.environments import Spec

HEADER = Header(game="Pong", network="small", observation_shape=(4, 84, 84), actions=6, frames=4000)


def state_with(value: float) -> dict[str, Any]:
    return {"model": {"weights": torch.full((3,), value), "version": 7}, "scores": [-21.0, 3.5], "note": None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return checkpoint.save(tmp_path_factory.mktemp("whole"), 1, HEADER, state_with(1.0)).read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "checkpoint-0000000001.pt"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def written(path: Path, payload: bytes, **changed: Any) -> Path:
    """A file with a right length and hash, whatever its payload and header fields are."""
    fields = {"format": 2, "length": len(payload), "game": "Pong", "network": "small"}
    fields |= {"observation_shape": [4, 84, 84], "actions": 6, "frames": 4000} | changed
    rest = json.dumps(fields).encode() + b"\n" + payload
    path.write_bytes(b"GA3C-CHECKPOINT " + hashlib.sha256(rest).hexdigest().encode() + b" " + rest)
    return path


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1200, HEADER, state_with(2.5))

    header, state = checkpoint.load(path, HEADER)

    assert path == tmp_path / "checkpoint-0000001200.pt"
    assert names(tmp_path) == ["checkpoint-0000001200.pt"]
    assert header == Header("Pong", "small", (4, 84, 84), 6, 4000)
    assert state["model"]["weights"].tolist() == [2.5, 2.5, 2.5]
    assert state["model"]["version"] == 7
    assert state["scores"] == [-21.0, 3.5]
    assert checkpoint.read_header(path) == header


def test_an_optimizer_state_survives(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.RMSprop(layer.parameters(), lr=0.5)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = checkpoint.save(tmp_path, 1, HEADER, {"optimizer": optimizer.state_dict()})

    _, state = checkpoint.load(path)

    assert state["optimizer"]["param_groups"][0]["lr"] == 0.5
    assert state["optimizer"]["state"][0]["square_avg"][0].tolist() == pytest.approx([0.01, 0.01])


def test_the_header_comes_from_configuration_and_game() -> None:
    spec = Spec((4, 84, 84), "uint8", actions=9, frames_per_action=4)
    assert checkpoint.header_for(Config(game="ms_pacman"), spec, 80) == Header(
        "MsPacman", "small", (4, 84, 84), 9, 80
    )
    large = Config(game="ALE/Boxing-v5", network=Network(name="large-2"))
    assert checkpoint.header_for(large, spec, 0) == Header("Boxing", "large-2", (4, 84, 84), 9, 0)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"scores": [1.0, np.float64(2.0)]}, r"state\['scores'\]\[1\] is a float64"),
        ({"frames": np.array([1])}, r"state\['frames'\] is a ndarray"),
        ({np.int64(3): 1}, "a key of state is a int64"),
    ],
)
def test_a_state_that_could_not_be_loaded_is_not_saved(
    tmp_path: Path, state: dict[str, Any], place: str
) -> None:
    with pytest.raises(TypeError, match=place):
        checkpoint.save(tmp_path, 1, HEADER, state)
    assert names(tmp_path) == []


def test_only_the_newest_three_are_kept(tmp_path: Path) -> None:
    for number in (5, 900, 1000, 20_000_000_000):
        checkpoint.save(tmp_path, number, HEADER, state_with(number))
    assert names(tmp_path) == [
        "checkpoint-0000000900.pt",
        "checkpoint-0000001000.pt",
        "checkpoint-20000000000.pt",
    ]
    assert checkpoint.newest(tmp_path, pytest.fail).name == "checkpoint-20000000000.pt"


def test_damaged_later_ones_never_push_out_the_one_just_written(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, HEADER, state_with(1))
    for number in (7, 8, 9):
        (tmp_path / f"checkpoint-{number:010}.pt").write_bytes(b"GA3C")
    checkpoint.save(tmp_path, 2, HEADER, state_with(2))

    warnings: list[str] = []
    path = checkpoint.newest(tmp_path, warnings.append)

    assert path.name == "checkpoint-0000000002.pt"
    assert len(warnings) == 3
    assert "checkpoint-0000000001.pt" in names(tmp_path)


def test_a_file_cut_anywhere_is_damaged(whole: bytes, scratch: Path) -> None:
    header_end = whole.index(b"\n") + 1
    lengths = {0, 1, 15, 16, 17, 80, 82, header_end - 1, header_end, header_end + 1}
    lengths |= {len(whole) // 2, len(whole) - 1, *range(0, len(whole), 97)}
    for length in lengths:
        scratch.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"checkpoint-0000000001\.pt: damaged \(.*; use an older"):
            checkpoint.load(scratch)


def test_bytes_added_at_the_end_are_damage(whole: bytes, scratch: Path) -> None:
    scratch.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match=r"damaged \(\d+ bytes follow its header, not \d+\)"):
        checkpoint.load(scratch)


def test_a_flipped_bit_in_any_byte_of_the_first_line_is_noticed(whole: bytes, scratch: Path) -> None:
    for position in range(whole.index(b"\n") + 1):
        for bit in (0, 4, 7):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            scratch.write_bytes(flipped)
            with pytest.raises(CheckpointError):
                checkpoint.read_header(scratch)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example(place=0.0, bit=0)
@example(place=0.999999, bit=7)
def test_a_flipped_bit_of_the_state_is_noticed(whole: bytes, scratch: Path, place: float, bit: int) -> None:
    start = whole.index(b"\n") + 1
    flipped = bytearray(whole)
    flipped[start + int(place * (len(whole) - start))] ^= 1 << bit
    scratch.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"checkpoint-0000000001\.pt: damaged \(its SHA-256 differs\)"):
        checkpoint.load(scratch)


@given(content=st.binary(max_size=300) | st.binary(max_size=300).map(lambda end: b"GA3C-CHECKPOINT " + end))
@example(content=b"GA3C-CHECKPOINT " + b"0" * 64 + b" " + b"[" * 5000 + b"\n")
@example(content=b"GA3C-CHECKPOINT " + b"0" * 64 + b" 3\n")
@example(content=b"GA3C-CHECKPOINT " + b"0" * 64 + b' {"format": 2}\n')
@example(content=b"PK\x03\x04" + b"\0" * 70000)
def test_any_other_content_is_a_checkpoint_error(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"checkpoint-0000000001\.pt: (damaged|not a GA3C checkpoint) \("
    ):
        checkpoint.load(scratch)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def test_a_foreign_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    pickled = pickle.dumps({"model": Malicious(trap)})
    plain = written(tmp_path / "plain.pt", pickled)
    torch.save({"model": Malicious(trap)}, tmp_path / "zip")
    zipped = written(tmp_path / "zipped.pt", (tmp_path / "zip").read_bytes())

    for path in (plain, zipped):
        with pytest.raises(CheckpointError, match=rf"{path.name}: not a GA3C checkpoint \(torch refuses"):
            checkpoint.load(path)

    assert not trap.exists()
    pickle.loads(pickled)
    assert trap.exists(), "the pickle does nothing, so its refusal shows nothing"


def test_a_file_of_torch_alone_is_not_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(state_with(1.0), path)
    with pytest.raises(
        CheckpointError, match=r"weights\.pt: not a GA3C checkpoint \(its first bytes differ\); give one"
    ):
        checkpoint.load(path)


def test_a_state_that_is_no_dict_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list")
    path = written(tmp_path / "a.pt", (tmp_path / "list").read_bytes())
    with pytest.raises(CheckpointError, match="it holds a list"):
        checkpoint.load(path)


def test_another_format_version_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pt", b"", format=3)
    with pytest.raises(
        CheckpointError, match=r"a\.pt: has format 3; this program reads format 2; use the version"
    ):
        checkpoint.load(path)


@pytest.mark.parametrize("changed", [{"observation_shape": 4}, {"surprise": 1}])
def test_a_header_of_another_layout_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="its header is not complete"):
        checkpoint.load(written(tmp_path / "a.pt", b"", **changed))


@pytest.mark.parametrize(
    ("expected", "difference"),
    [
        (replace(HEADER, game="Boxing"), "game Pong instead of Boxing"),
        (replace(HEADER, actions=18), "actions 6 instead of 18"),
        (replace(HEADER, network="large-1"), "network small instead of large-1"),
        (replace(HEADER, observation_shape=(4,)), r"observation_shape \(4, 84, 84\) instead of \(4,\)"),
        (replace(HEADER, game="Boxing", actions=18), "game Pong instead of Boxing, actions 6 instead of 18"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_before_its_state_is_looked_at(
    tmp_path: Path, expected: Header, difference: str
) -> None:
    path = written(tmp_path / "a.pt", b"no state at all")
    with pytest.raises(CheckpointError, match=rf"a\.pt: is of another run: {difference}; use it with"):
        checkpoint.load(path, expected)


def test_frames_may_differ_from_the_expected_header(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, HEADER, state_with(1.0))
    header, _ = checkpoint.load(path, replace(HEADER, frames=0))
    assert header.frames == 4000


def test_a_missing_file_or_a_folder_or_a_pipe_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.pt: cannot be read: No such file"):
        checkpoint.load(tmp_path / "gone.pt")
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: is not a file"):
        checkpoint.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(CheckpointError, match=r"pipe\.pt: is not a file"):
        checkpoint.load(tmp_path / "pipe.pt")


def test_a_file_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    path = checkpoint.save(tmp_path, 1, HEADER, state_with(1.0))
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"0000000001\.pt: cannot be read: Permission denied; check"):
        checkpoint.load(path)


def test_the_nth_failing_call_leaves_whole_checkpoints_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 1, HEADER, state_with(1.0))
    failures: list[str] = []
    for failing in count(1):
        calls = 0

        def counted(name: str, failing: int = failing) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == failing:
                    failures.append(name)
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(*arguments)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", counted("fsync"))
            patch.setattr(os, "replace", counted("replace"))
            with suppress(OSError):
                checkpoint.save(tmp_path, 2, HEADER, state_with(2.0))
        if len(failures) < failing:
            break

        newest = checkpoint.newest(tmp_path, pytest.fail)
        _, state = checkpoint.load(newest)
        assert state["model"]["weights"].tolist() in ([1.0] * 3, [2.0] * 3)
        assert "checkpoint-0000000001.pt" in names(tmp_path)
        assert not [name for name in names(tmp_path) if name.startswith(".tmp")]

    assert failures == ["fsync", "replace", "fsync"]
    assert names(tmp_path) == ["checkpoint-0000000001.pt", "checkpoint-0000000002.pt"]


def test_old_checkpoints_are_deleted_only_after_the_new_one_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        checkpoint.save(tmp_path, number, HEADER, state_with(number))
    listings: list[list[str]] = []
    fsync = os.fsync

    def listed(descriptor: int) -> None:
        fsync(descriptor)
        listings.append([name for name in names(tmp_path) if not name.startswith(".tmp")])

    monkeypatch.setattr(os, "fsync", listed)
    checkpoint.save(tmp_path, 4, HEADER, state_with(4))

    old = [f"checkpoint-000000000{number}.pt" for number in (1, 2, 3)]
    assert listings == [old, [*old, "checkpoint-0000000004.pt"]]
    assert len(names(tmp_path)) == 3


def test_a_full_disk_at_any_size_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """The kernel's file size limit stands for the full disk."""
    size = checkpoint.save(tmp_path, 1, HEADER, state_with(1.0)).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 1, 100, size // 2, size - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                checkpoint.save(tmp_path, 2, HEADER, state_with(1.0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert names(tmp_path) == ["checkpoint-0000000001.pt"]
    checkpoint.load(tmp_path / "checkpoint-0000000001.pt")


def test_the_newest_whole_checkpoint_is_taken_and_damaged_ones_are_named(tmp_path: Path) -> None:
    for number in (8, 9, 10):
        checkpoint.save(tmp_path, number, HEADER, state_with(number))
    (tmp_path / "checkpoint-0000000010.pt").write_bytes(b"")
    os.truncate(tmp_path / "checkpoint-0000000009.pt", 400)
    (tmp_path / "checkpoint-0000000011.pt").mkdir()
    (tmp_path / "checkpoint-best.pt").write_bytes(b"")
    (tmp_path / ".tmp-1-checkpoint-0000000012.pt").write_bytes(b"")
    warnings: list[str] = []

    path = checkpoint.newest(tmp_path, warnings.append)

    assert path == tmp_path / "checkpoint-0000000008.pt"
    assert warnings[0] == (
        f"{tmp_path}/checkpoint-0000000011.pt: is not a file; using checkpoint-0000000008.pt instead"
    )
    assert warnings[1] == (
        f"{tmp_path}/checkpoint-0000000010.pt: damaged (its first line is cut short); "
        "using checkpoint-0000000008.pt instead"
    )
    assert warnings[2].startswith(f"{tmp_path}/checkpoint-0000000009.pt: damaged (")
    assert len(warnings) == 3


def test_no_whole_checkpoint_is_an_error_with_every_reason(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no whole checkpoint in this folder; begin a new run"):
        checkpoint.newest(tmp_path, pytest.fail)
    (tmp_path / "checkpoint-0000000001.pt").write_bytes(b"hello")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in .*0001\.pt: not a GA3C checkpoint"):
        checkpoint.newest(tmp_path, pytest.fail)


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, HEADER, state_with(1.0))
    (tmp_path / ".tmp-123-checkpoint-0000000002.pt").write_bytes(b"half")
    checkpoint.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["checkpoint-0000000001.pt"]


def test_a_path_means_a_run_or_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").write_text("game: Pong\n")
    for number in (1, 2):
        checkpoint.save(tmp_path / "checkpoints", number, HEADER, state_with(number))
    first, second = sorted((tmp_path / "checkpoints").iterdir())

    assert checkpoint.checkpoint_of(tmp_path, pytest.fail) == second
    assert checkpoint.checkpoint_of(first, pytest.fail) == first
    with pytest.raises(ConfigError, match="gone: does not exist; expected a run directory"):
        checkpoint.checkpoint_of(tmp_path / "gone", pytest.fail)
    with pytest.raises(ConfigError, match="checkpoints: is something else; expected a run directory"):
        checkpoint.checkpoint_of(tmp_path / "checkpoints", pytest.fail)
