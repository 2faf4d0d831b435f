import os
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ga3c.config import Agents, Config, ConfigError, Environment, Run, Training, available_cores, dump, load

CONFIG_YAML = Path(__file__).parent.parent / "config.yaml"


def problems_of(path: Path | None = None, /, **overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return caught.value.problems


def problems_of_text(tmp_path: Path, text: str | bytes) -> list[str]:
    """Problems of a file with this text, with the file's name shortened to 'FILE'."""
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return [problem.replace(str(path), "FILE") for problem in problems_of(path)]


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("training.t_max", "five", "expected a whole number from 1 to 1000"),
        ("training.t_max", "5.5", "expected a whole number from 1 to 1000"),
        ("training.t_max", "0", "expected a whole number from 1 to 1000"),
        ("training.t_max", "1001", "expected a whole number from 1 to 1000"),
        ("training.t_max", "", "expected a whole number from 1 to 1000"),
        ("training.t_max", "0x10", "expected a whole number from 1 to 1000"),
        ("training.t_max", "1:30", "expected a whole number from 1 to 1000"),
        ("training.t_max", "1e400", "expected a whole number from 1 to 1000"),
        ("training.t_max", "nan", "expected a whole number from 1 to 1000"),
        ("predictors.max_batch", "-1", "expected a whole number of at least 1"),
        ("training.discount", "1.1", "expected a number from 0 to 1"),
        ("training.discount", "nan", "expected a number from 0 to 1"),
        ("training.learning_rate", "-0.1", "expected a number of at least 0"),
        ("training.learning_rate", "inf", "expected a number of at least 0"),
        ("training.learning_rate", "fast", "expected a number of at least 0"),
        ("run.minutes", "1:30", "expected a number of at least 0"),
        ("run.target_score", "high", "expected none, or a number"),
        ("run.directory", "", "expected a text that is not empty"),
        ("environment.episodic_life", "maybe", "expected true or false"),
        ("environment.episodic_life", "1", "expected true or false"),
        ("agents.count", "many", "expected one of auto, or a whole number from 1 to 1024"),
        ("agents.count", "0", "expected one of auto, or a whole number from 1 to 1024"),
        ("training.optimizer", "Adam", "expected one of rmsprop, adam (did you mean 'adam'?)"),
        (
            "network.name",
            "smal",
            "expected one of auto, small, large-4, large-3, large-2, large-1, mlp (did you mean 'small'?)",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(key: str, text: str, expected: str) -> None:
    assert problems_of(**{key: text}) == [f"command line: {key} = {text!r}: {expected}"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.learing_rate", " (did you mean 'training.learning_rate'?)"),
        ("learning_rate", " (did you mean 'training.learning_rate'?)"),
        ("trainers.t_max", " (did you mean 'training.t_max'?)"),
        ("sede", " (did you mean 'seed'?)"),
        ("zzz", ""),
    ],
)
def test_an_unknown_key_is_named_with_the_closest_known_one(key: str, hint: str) -> None:
    assert problems_of(**{key: "1"}) == [f"command line: unknown key '{key}'{hint}"]


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:²", "CPU"])
def test_a_device_that_no_machine_has_is_refused(device: str) -> None:
    assert problems_of(device=device) == [f"device = {device!r}: expected auto, cpu, cuda, or cuda:<number>"]


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11"])
def test_devices_are_accepted_by_torchs_names(device: str) -> None:
    assert load(None, {"device": device}).device == device


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "FILE: is empty; expected keys and values such as 'game: Boxing'"),
        ("# nothing\n", "FILE: is empty; expected keys and values such as 'game: Boxing'"),
        ("- a\n- b\n", "FILE: expected keys and values at the top, such as 'game: Boxing'"),
        ("game:Pong\n", "FILE: expected keys and values at the top, such as 'game: Boxing'"),
        ("seed: 1\ngame: [Pong\n", "FILE, line 3, column 1: expected ',' or ']', but got '<stream end>'"),
        (
            "training:\n\tt_max: 5\n",
            "FILE, line 2, column 1: found character '\\t' that cannot start any token",
        ),
        ('game: "Pong\n', "FILE, line 2, column 1: found unexpected end of stream"),
        ("game: Pong\n---\ngame: Boxing\n", "FILE, line 2, column 1: but found another document"),
        (
            "game: Po\x00ng\n",
            "FILE: is not valid YAML: unacceptable character #x0000: special characters are not allowed",
        ),
        (b"game: P\xf6ng\n", "FILE: is not UTF-8 text"),
        ("seed: 1\nseed: 2\n", "FILE, line 2: key 'seed' stands twice"),
        (
            "training:\n  t_max: 5\n  discount: 0.9\n  t_max: 6\n",
            "FILE, line 4: key 'training.t_max' stands twice",
        ),
        ("training:\n  t_max: 5\ntraining:\n  t_max: 6\n", "FILE, line 3: key 'training' stands twice"),
        ("training.t_max: 5\ntraining:\n  t_max: 6\n", "FILE, line 3: key 'training.t_max' stands twice"),
        ("training: 5\n", "FILE, line 1: 'training' is a section; expected keys and values below it"),
        ("training:\n", "FILE, line 1: 'training' is a section; expected keys and values below it"),
        ("traning:\n  t_max: 5\n", "FILE, line 1: unknown section 'traning' (did you mean 'training'?)"),
        ("game:\n  name: Pong\n", "FILE, line 1: game: expected a single value"),
        ("training:\n  t_max: [5]\n", "FILE, line 2: training.t_max: expected a single value"),
        ("seed:\n", "FILE, line 1: seed = '': expected a whole number from 0 to 2147483647"),
        (
            "game: Pong\ntraining:\n  learing_rate: 1\n",
            "FILE, line 3: unknown key 'training.learing_rate' (did you mean 'training.learning_rate'?)",
        ),
    ],
)
def test_a_wrong_file_is_named_with_the_line(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert problems_of_text(tmp_path, text) == [expected]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing.yaml"
    assert problems_of(path) == [f"{path}: cannot be read: No such file or directory"]


def test_a_directory_is_no_configuration_file(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("sede: 1\ntraining:\n  t_max: 0\ndevice: gpu\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {"trainers.count": "none"})
    expected = [
        f"{path}, line 1: unknown key 'sede' (did you mean 'seed'?)",
        f"{path}, line 3: training.t_max = '0': expected a whole number from 1 to 1000",
        "command line: trainers.count = 'none': expected a whole number from 1 to 64",
        "device = 'gpu': expected auto, cpu, cuda, or cuda:<number>",
    ]
    assert caught.value.problems == expected
    assert str(caught.value) == "\n".join(expected)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("training.learning_rate", "3e-4", 0.0003),
        ("training.learning_rate", "1", 1.0),
        ("training.log_epsilon", "1E-6", 0.000001),
        ("run.frames", "4e7", 40_000_000),
        ("run.frames", "80_000", 80_000),
        ("training.t_max", "012", 12),
        ("training.t_max", "2.0", 2),
        ("training.t_max", "+7", 7),
        ("environment.episodic_life", "on", True),
        ("environment.episodic_life", "yes", True),
        ("environment.episodic_life", "True", True),
        ("environment.episodic_life", "off", False),
        ("environment.episodic_life", "no", False),
        ("environment.episodic_life", "FALSE", False),
        ("run.target_score", "None", None),
        ("run.target_score", "null", None),
        ("run.target_score", "-18.5", -18.5),
        ("agents.count", "auto", "auto"),
        ("agents.count", "7", 7),
        ("run.directory", "no", "no"),
    ],
)
def test_values_mean_what_a_person_means(tmp_path: Path, key: str, text: str, value: object) -> None:
    section, name = key.split(".")
    path = tmp_path / "config.yaml"
    path.write_text(f"{section}:\n  {name}: {text}\n")
    for config in (load(path, {}), load(None, {key: text})):
        found = getattr(getattr(config, section), name)
        assert found == value
        assert type(found) is type(value)


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("seed: 7\ntraining:\n  t_max: 9\n  discount: 0.9\n")
    config = load(path, {"training.t_max": "20"})
    assert config == Config(seed=7, training=Training(t_max=20, discount=0.9))


def test_no_file_and_no_override_are_the_defaults() -> None:
    assert load(None, {}) == Config()


def knobs(section: Any, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for item in fields(section):
        value = getattr(section, item.name)
        if is_dataclass(value):
            found |= knobs(value, f"{prefix}{item.name}.")
        else:
            found[prefix + item.name] = value
    return found


def test_config_yaml_holds_every_knob_in_order_with_its_default() -> None:
    document = yaml.load(CONFIG_YAML.read_text(), yaml.BaseLoader)
    written = []
    for key, value in document.items():
        written += [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
    assert written == list(knobs(Config()))
    assert load(CONFIG_YAML, {}) == Config()


def test_every_knob_in_config_yaml_has_a_comment() -> None:
    lines = CONFIG_YAML.read_text().splitlines()
    with_values = [line for line in lines if re.match(r" *\w+: *[^ #]", line)]
    assert len(with_values) == len(knobs(Config()))
    assert [line for line in with_values if not re.search(r" # \S", line)] == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_auto_starts_as_many_agents_as_the_cores_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
        assert Config().agent_count == 1
        assert Config(agents=Agents(count=5)).agent_count == 5
    finally:
        os.sched_setaffinity(0, allowed)


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)
NOT_NEGATIVE = st.floats(0, allow_nan=False, allow_infinity=False)


@given(
    game=TEXTS,
    seed=st.integers(0, 2**31 - 1),
    episodic_life=st.booleans(),
    agents=st.just("auto") | st.integers(1, 1024),
    learning_rate=NOT_NEGATIVE,
    directory=TEXTS,
    target_score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_dumped_configuration_loads_as_itself(
    tmp_path_factory: pytest.TempPathFactory,
    game: str,
    seed: int,
    episodic_life: bool,
    agents: int | Literal["auto"],
    learning_rate: float,
    directory: str,
    target_score: float | None,
) -> None:
    config = replace(
        Config(game=game, seed=seed),
        environment=Environment(episodic_life=episodic_life),
        agents=Agents(count=agents),
        training=Training(learning_rate=learning_rate),
        run=Run(directory=directory, target_score=target_score),
    )
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(dump(config), encoding="utf-8")
    assert load(path, {}) == config
