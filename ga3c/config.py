"""Every knob of the program: read from YAML, then the command line, each value checked.

The sections and defaults here and the comments in ``config.yaml`` describe the same knobs; a test
holds them together. Values arrive as text and are converted by the type of their knob, so that
``3e-4`` is a number and ``012`` is twelve, whatever YAML makes of them.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

import yaml

from ga3c.config_values import closest, convert

_MOST_TOKENS = 8000  # of 8 bytes each, in a pipe of 64 KiB


class ConfigError(ValueError):
    """What is wrong with a configuration: every problem found, one line each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def knob(default: Any, low: float | None = None, high: float | None = None) -> Any:
    """A dataclass field with a default and the closed range [low, high] of its numbers."""
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True)
class Environment:
    frame_stack: int = knob(4, 1, 16)
    action_repeat: int = knob(4, 1, 100)
    noop_max: int = knob(30, 0, 1000)
    max_frames: int = knob(108_000, 1)
    sticky_actions: float = knob(0.0, 0, 1)
    episodic_life: bool = knob(False)


@dataclass(frozen=True)
class Agents:
    count: int | Literal["auto"] = knob("auto", 1, 1024)
    environments: int = knob(16, 1, 256)
    slots: int = knob(3, 2, 16)


@dataclass(frozen=True)
class Predictors:
    count: int = knob(1, 1, 64)
    max_batch: int = knob(1024, 1)


@dataclass(frozen=True)
class Trainers:
    count: int = knob(1, 1, 64)


NetworkName = Literal["auto", "small", "large-4", "large-3", "large-2", "large-1", "mlp"]


@dataclass(frozen=True)
class Network:
    name: NetworkName = knob("auto")
    initialisation: Literal["orthogonal", "original"] = knob("orthogonal")


@dataclass(frozen=True)
class Training:
    t_max: int = knob(5, 1, 1000)
    min_batch_size: int = knob(80, 0)
    discount: float = knob(0.99, 0, 1)
    reward_clip: float = knob(1.0, 0)
    log_epsilon: float = knob(1e-6, 0, 0.1)
    entropy_beta: float = knob(0.01, 0)
    entropy_beta_end: float = knob(0.01, 0)
    value_weight: float = knob(0.5, 0)
    reduction: Literal["mean", "sum"] = knob("mean")
    optimizer: Literal["rmsprop", "adam"] = knob("rmsprop")
    learning_rate: float = knob(7e-4, 0)
    learning_rate_end: float = knob(0.0, 0)
    rmsprop_decay: float = knob(0.99, 0, 1)
    rmsprop_epsilon: float = knob(1e-10, 0)
    adam_epsilon: float = knob(1e-5, 0)
    max_gradient_norm: float = knob(0.5, 0)


@dataclass(frozen=True)
class Annealing:
    enabled: bool = knob(True)
    interval_seconds: float = knob(60.0, 1)
    settling_seconds: float = knob(10.0, 0)
    initial_wait_seconds: float = knob(30.0, 0)
    max_agents: int | Literal["auto"] = knob("auto", 1, 1024)
    max_predictors: int = knob(8, 1, 64)
    max_trainers: int = knob(8, 1, 64)
    max_policy_lag: float = knob(10.0, 0)


class Counts(NamedTuple):
    """N_A, N_P and N_T."""

    agents: int
    predictors: int
    trainers: int

    def __str__(self) -> str:
        return f"{self.agents}/{self.predictors}/{self.trainers}"


@dataclass(frozen=True)
class Run:
    frames: int = knob(80_000_000, 1)
    minutes: float = knob(0.0, 0)
    target_score: float | None = knob(None)
    directory: str = knob("auto")
    checkpoint_minutes: float = knob(5.0, 0.01)
    metrics_seconds: float = knob(5.0, 0.1)


@dataclass(frozen=True)
class Config:
    """A whole configuration; immutable, and small enough to send to every agent process."""

    game: str = knob("Boxing")
    seed: int = knob(1, 0, 2**31 - 1)
    device: str = knob("auto")
    precision: Literal["auto", "float32", "bfloat16"] = knob("auto")
    environment: Environment = field(default_factory=Environment)
    agents: Agents = field(default_factory=Agents)
    predictors: Predictors = field(default_factory=Predictors)
    trainers: Trainers = field(default_factory=Trainers)
    network: Network = field(default_factory=Network)
    training: Training = field(default_factory=Training)
    annealing: Annealing = field(default_factory=Annealing)
    run: Run = field(default_factory=Run)

    @property
    def counts(self) -> Counts:
        """N_A, N_P and N_T at the start."""
        return Counts(self.agent_count, self.predictors.count, self.trainers.count)

    @property
    def agent_count(self) -> int:
        """N_A at the start, with ``auto`` resolved for this machine."""
        if self.agents.count == "auto":
            return available_cores()
        return self.agents.count


def available_cores() -> int:
    """The CPU cores this process may use; fewer than the machine's under taskset or a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load(path: Path | None, overrides: Mapping[str, str]) -> Config:
    """Read a configuration file, apply overrides ("section.key" -> text), check everything.

    Raises ConfigError with all problems at once. Without a path, the defaults are the base.
    """
    problems: list[str] = []
    given: dict[str, tuple[str, str]] = {}
    if path is not None:
        given.update(_read(path, problems))
    for key, text in overrides.items():
        given[key] = (text, "command line")
    values: dict[str, Any] = {}
    knobs = _knobs(Config)
    for key, (text, origin) in given.items():
        if key not in knobs:
            problems.append(f"{origin}: unknown key '{key}'{closest(key, knobs)}")
            continue
        kind, bounds = knobs[key]
        try:
            values[key] = convert(text, kind, bounds)
        except ValueError as error:
            problems.append(f"{origin}: {key} = {text!r}: {error}")
    problems.extend(_contradictions(values))
    if problems:
        raise ConfigError(problems)
    return _build(Config, values)


def dump(config: Config) -> str:
    """The configuration as YAML that ``load`` reads back to an equal Config."""
    return yaml.safe_dump(_plain(config), sort_keys=False)


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    problems = []
    device = values.get("device", "auto")
    name, _, index = device.partition(":")
    is_numbered = name == "cuda" and index.isascii() and index.isdigit()
    if device not in ("auto", "cpu", "cuda") and not is_numbered:
        problems.append(f"device = {device!r}: expected auto, cpu, cuda, or cuda:<number>")
    slots = values.get("agents.slots", Agents.slots)
    rule = f"expected a product of at most {_MOST_TOKENS}, which the training queue holds"
    for key in ("agents.count", "annealing.max_agents"):
        agents = values.get(key, "auto")
        if agents != "auto" and agents * slots > _MOST_TOKENS:
            problems.append(f"{key} = {agents}, agents.slots = {slots}: {rule}")
    interval = values.get("annealing.interval_seconds", Annealing.interval_seconds)
    settling = values.get("annealing.settling_seconds", Annealing.settling_seconds)
    if settling >= interval:
        given = f"annealing.settling_seconds = {settling:g}, annealing.interval_seconds = {interval:g}"
        problems.append(f"{given}: expected less settling than interval; what is left is measured")
    return problems


def _knobs(section: type, prefix: str = "") -> dict[str, tuple[Any, Mapping[str, Any]]]:
    hints = get_type_hints(section)
    found = {}
    for item in fields(section):
        kind = hints[item.name]
        if isinstance(kind, type) and is_dataclass(kind):
            found.update(_knobs(kind, f"{prefix}{item.name}."))
        else:
            found[prefix + item.name] = (kind, item.metadata)
    return found


def _build(section: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    hints = get_type_hints(section)
    arguments = {}
    for item in fields(section):
        key = prefix + item.name
        if is_dataclass(hints[item.name]):
            arguments[item.name] = _build(hints[item.name], values, f"{key}.")
        elif key in values:
            arguments[item.name] = values[key]
    return section(**arguments)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return "none" if value is None else value


def _read(path: Path, problems: list[str]) -> dict[str, tuple[str, str]]:
    """Flatten a YAML file to {"section.key": (text, "file, line n")}; what is wrong goes to problems."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
        return {}
    except UnicodeDecodeError:
        problems.append(f"{path}: is not UTF-8 text")
        return {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problems.append(f"{path}{place}: {error.problem or 'is not valid YAML'}")
        return {}
    except yaml.YAMLError as error:
        problems.append(f"{path}: is not valid YAML: {str(error).splitlines()[0]}")
        return {}
    if root is None:
        problems.append(f"{path}: is empty; expected keys and values such as 'game: Boxing'")
        return {}
    if not isinstance(root, yaml.MappingNode):
        problems.append(f"{path}: expected keys and values at the top, such as 'game: Boxing'")
        return {}
    flat: dict[str, tuple[str, str]] = {}
    _flatten(root, "", path, flat, problems)
    return flat


def _flatten(
    node: yaml.MappingNode,
    prefix: str,
    path: Path,
    flat: dict[str, tuple[str, str]],
    problems: list[str],
) -> None:
    sections = {item.name for item in fields(Config) if is_dataclass(get_type_hints(Config)[item.name])}
    seen: set[str] = set()
    for key_node, value_node in node.value:
        origin = f"{path}, line {key_node.start_mark.line + 1}"
        key = prefix + str(key_node.value)
        if key in seen or key in flat:
            problems.append(f"{origin}: key '{key}' stands twice")
            continue
        seen.add(key)
        is_section = not prefix and key in sections
        if is_section and isinstance(value_node, yaml.MappingNode):
            _flatten(value_node, f"{key}.", path, flat, problems)
        elif is_section:
            problems.append(f"{origin}: '{key}' is a section; expected keys and values below it")
        elif isinstance(value_node, yaml.ScalarNode):
            flat[key] = (value_node.value, origin)
        elif not prefix and key not in _knobs(Config):
            problems.append(f"{origin}: unknown section '{key}'{closest(key, sections)}")
        else:
            problems.append(f"{origin}: {key}: expected a single value")
