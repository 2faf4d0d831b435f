"""The command line: train (the default), tune, evaluate, benchmark, plot; messages and exit codes.

Exit codes: 0 finished, 1 failed, 2 wrong use, 130 and 143 stopped by Ctrl-C or SIGTERM and saved.
torch is imported by the commands that need it, after the fork server of the agents has started.
"""

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ga3c import agent, config, config_edit, environments
from ga3c.config import Config, ConfigError
from ga3c.train import train, warn

CONFIG_FILE = Path(__file__).resolve().parent.parent / "config.yaml"
PLOTS = Path(__file__).resolve().parent.parent / "plots"

_SHORT_OPTIONS = {
    "game": ("game", "Atari game, or a Gymnasium environment such as CartPole-v1"),
    "seed": ("seed", "seed of weights, games and actions"),
    "frames": ("run.frames", "end after this many frames (4 per action on Atari)"),
    "minutes": ("run.minutes", "end after this many minutes of training"),
    "agents": ("agents.count", "N_A, agent processes"),
    "predictors": ("predictors.count", "N_P, predictor threads"),
    "trainers": ("trainers.count", "N_T, trainer threads"),
    "device": ("device", "auto, cpu, cuda or cuda:<number>"),
    "run-dir": ("run.directory", "directory of the run's files (default: runs/<game>-<date>-<time>)"),
}


_TUNING = {
    "agents.count": "1",
    "predictors.count": "1",
    "trainers.count": "1",
    "annealing.enabled": "true",
    "annealing.interval_seconds": "5",
    "annealing.settling_seconds": "1.5",
    "annealing.initial_wait_seconds": "1.5",
    "run.metrics_seconds": "1",
}
"""What ``tune`` sets, unless the command line says otherwise."""


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    arguments = list(arguments)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments.insert(0, "train")
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except ConfigError as error:
        for problem in error.problems:
            print(f"ga3c: {problem}", file=sys.stderr)
        return 2
    except (OSError, MemoryError) as error:
        print(f"ga3c: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="main.py",
        description="GA3C: train a game with many agents, one model and one device.",
        epilog="Without a command, train. 'main.py train --help' shows its options.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    train = commands.add_parser("train", help="train (the default)", description="Train one game.")
    _add_configuration(train, _SHORT_OPTIONS)
    train.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this directory")
    train.set_defaults(command=_train)

    tune = commands.add_parser(
        "tune", help="find the best N_A, N_P and N_T for this machine", description=_tune.__doc__
    )
    _add_configuration(tune, ("game", "seed", "device", "run-dir"))
    tune.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    tune.add_argument("--write", action="store_true", help="store the result in the configuration file")
    tune.set_defaults(command=_tune)

    evaluate = commands.add_parser("evaluate", help="mean score of 30 games", description=_evaluate.__doc__)
    evaluate.add_argument("run", type=Path, metavar="RUN", help="a run's directory, or a checkpoint file")
    evaluate.add_argument("--games", type=_positive, default=30, help="default: 30")
    evaluate.add_argument("--seed", type=int, default=1_000_000, help="default: 1000000")
    evaluate.add_argument("--greedy", action="store_true", help="the most probable action, not a sampled one")
    evaluate.add_argument("--device", default="auto", help="default: auto")
    evaluate.set_defaults(command=_evaluate)

    benchmark = commands.add_parser(
        "benchmark", help="how fast this machine could be, and is", description=_benchmark.__doc__
    )
    _add_configuration(benchmark, ("game", "agents", "predictors", "trainers", "device"))
    benchmark.add_argument("--rounds", type=_positive, default=5, help="default: 5, of about 12 seconds each")
    benchmark.add_argument("--json", action="store_true", help="print JSON in place of tables")
    benchmark.add_argument("--compare", action="store_true", help="measure synchronous A2C as well")
    benchmark.add_argument(
        "--sample-factory", type=Path, metavar="PYTHON",
        help="with --compare, also Sample Factory: the Python interpreter of the environment that has it",
    )  # fmt: skip
    benchmark.set_defaults(command=_benchmark)

    plot = commands.add_parser("plot", help="figures of a run", description=_plot.__doc__)
    plot.add_argument("run", type=Path, metavar="RUN", help="a run's directory")
    plot.add_argument("--folder", type=Path, default=PLOTS, help="default: plots/")
    plot.set_defaults(command=_plot)
    return parser


def _add_configuration(parser: argparse.ArgumentParser, short_options: Iterable[str]) -> None:
    for option in short_options:
        key, help_text = _SHORT_OPTIONS[option]
        parser.add_argument(f"--{option}", dest=key, metavar=option.upper(), help=help_text)
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"default: {CONFIG_FILE.name}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set any knob of config.yaml"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _train(options: argparse.Namespace) -> int:
    """Train one game."""
    return train(_configuration(options), options.resume).code


def _tune(options: argparse.Namespace) -> int:
    """Search from one agent, predictor and trainer for the counts that train most per second.

    It is a training run in which the counts change every few seconds; its files show the search.
    """
    target = options.config or CONFIG_FILE
    settings = _configuration(options, _TUNING | {"run.minutes": str(options.minutes)})
    if not settings.annealing.enabled:
        raise ConfigError(["annealing.enabled = false: tune is the search itself; leave it out"])
    run = train(settings, None)
    if run.code == 1:
        return run.code
    if run.best is None:
        print("ga3c: nothing was measured that could be kept; give it more --minutes", file=sys.stderr)
        return 1
    values = {f"{name}.count": str(count) for name, count in run.best._asdict().items()}
    print("best setting: " + ", ".join(f"{key}={value}" for key, value in values.items()))
    if options.write:
        config_edit.set_values(target, values)
        print(f"written to {target}")
    return run.code


def _configuration(options: argparse.Namespace, preset: Mapping[str, str] | None = None) -> Config:
    """The file's values, then those of ``preset``, then the command line's."""
    given = {key: getattr(options, key, None) for key, _ in _SHORT_OPTIONS.values()}
    overrides = dict(preset or {}) | {key: value for key, value in given.items() if value is not None}
    problems = []
    for assignment in options.set:
        key, equals, value = assignment.partition("=")
        if equals:
            overrides[key.strip()] = value.strip()
        else:
            problems.append(f"--set {assignment}: expected KEY=VALUE, such as training.min_batch_size=40")
    resume = getattr(options, "resume", None)
    if resume and (options.config or "run.directory" in overrides):
        problems.append("--resume continues a run in its own directory; leave out --config and --run-dir")
    if problems:
        raise ConfigError(problems)
    if resume:
        file = resume / "config.yaml"
        return config.load(file, overrides)
    return config.load(options.config or CONFIG_FILE, overrides)


def _evaluate(options: argparse.Namespace) -> int:
    """Play whole games with a trained model, print their mean score, keep all in RUN/evaluation.json."""
    from ga3c import checkpoint, evaluation
    from ga3c.model import choose_device

    file = checkpoint.checkpoint_of(options.run, warn)
    device = choose_device(options.device)
    network, settings, header = evaluation.load_network(file, device)
    result = evaluation.evaluate(
        network,
        settings,
        options.games,
        options.seed,
        options.greedy,
        device,
        header.frames,
        lambda finished: print(f"\r{finished} of {options.games} games", end="", file=sys.stderr),
    )
    print(file=sys.stderr)
    print(f"{result.game}, {options.games} games, {header.frames:,} frames of training ({file.name})")
    print(f"score  mean {result.mean:.1f}, standard deviation {result.std or 0:.1f}", end="")
    print(f", from {min(result.scores):g} to {max(result.scores):g}")
    if result.human_normalised is not None:
        print(f"human-normalised score  {result.human_normalised:.1f} %")
    target = file.absolute().parent.parent / "evaluation.json"
    evaluation.write(target, result, file)
    print(f"written to {target}")
    return 0


def _benchmark(options: argparse.Namespace) -> int:
    """Measure emulation, inference and training alone, and how much of the bound they set GA3C reaches."""
    if options.sample_factory and not options.compare:
        raise ConfigError(["--sample-factory: belongs to --compare"])
    settings = _configuration(options)
    environments.describe(settings)
    agent.start_fork_server()

    from rich.console import Console

    from ga3c import benchmark
    from ga3c.benchmark.table import tables
    from ga3c.supervisor import RunFailed

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        result = benchmark.run(settings, options.rounds, options.compare, options.sample_factory, _progress)
    except (RunFailed, RuntimeError, FloatingPointError) as failure:
        if failure.__cause__ is not None:
            traceback.print_exception(failure.__cause__)
        print(f"ga3c: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result.summary(), indent=2))
    else:
        Console().print(tables(result))
    return 0


def _plot(options: argparse.Namespace) -> int:
    """Draw speed, score, queues, batches, policy lag and counts of a run, finished or not, as a PNG."""
    from ga3c import plots

    print(plots.save(options.run, options.folder))
    return 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr)
