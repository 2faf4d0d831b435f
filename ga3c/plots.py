"""Figures of a run, drawn from its metrics.csv and games.csv, while it trains or afterwards."""

import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ga3c.config import ConfigError
from ga3c.csvlog import read_csv
from ga3c.metrics import Game, Row

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"  # for colour-blind eyes too
_FAINT = 0.3

Columns = dict[str, np.ndarray]


def draw(run_directory: Path) -> Figure:
    """A figure 1200 pixels wide: score, PPS, TPS, queues, batches, policy lag, and N_A, N_P, N_T.

    A panel without values says "no data yet", and so does every panel before the second row of
    metrics. Raises ConfigError for a directory without metrics.csv.
    """
    path = run_directory / "metrics.csv"
    if not path.is_file():
        raise ConfigError([f"{run_directory}: no metrics.csv there; expected the directory of a run"])
    metrics = _read(path, Row._fields)
    games = _read(run_directory / "games.csv", Game._fields)
    figure = Figure(figsize=(12, 14), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(run_directory, metrics), fontsize=14, parse_math=False)
    grid = figure.add_gridspec(4, 2)
    _score(figure.add_subplot(grid[0, :]), metrics, games)
    for place, fill in enumerate((_pps, _tps, _queues, _batches, _lag, _roles), start=2):
        fill(figure.add_subplot(grid[place // 2, place % 2]), metrics)
    _trials(figure.axes[-1], run_directory / "annealing.csv")
    for panel in figure.axes:
        _finish(panel, has_data=len(metrics["time"]) > 1)
    return figure


def save(run_directory: Path, folder: Path) -> Path:
    """Write ``folder``/<name of the run directory>.png and return its path; see ``draw``."""
    figure = draw(run_directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_directory.resolve().name}.png"
    temporary = path.with_suffix(".png.tmp")
    figure.savefig(temporary, format="png")
    os.replace(temporary, path)
    return path


def _read(path: Path, columns: tuple[str, ...]) -> Columns:
    """The columns of a file; without rows where the file or its header is not there."""
    found = read_csv(path) if path.is_file() else {}
    if set(columns) <= set(found):
        return found
    return {name: np.empty(0) for name in columns}


def _title(run_directory: Path, metrics: Columns) -> str:
    name = run_directory.resolve().name
    if not len(metrics["time"]):
        return name
    minutes, frames = metrics["time"][-1] / 60, metrics["frames"][-1] / 1e6
    return f"{name}: {frames:.2f} million frames in {minutes:.1f} minutes"


def _score(panel: Axes, metrics: Columns, games: Columns) -> None:
    panel.set_title("Score", loc="left", fontweight="bold")
    panel.set(xlabel="frames (millions)", ylabel="points per game")
    played, frames = games["frames"] / 1e6, metrics["frames"] / 1e6
    panel.plot(played, games["score"], ".", color=_GREY, markersize=3, alpha=_FAINT, label="one game")
    panel.plot(frames, metrics["score_mean"], color=_BLUE, label="mean of the last 100 games")


def _pps(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Predictions per second", "PPS (actions/s)")
    _line(panel, metrics, "pps", "PPS", _BLUE)


def _tps(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Trainings per second", "TPS (model updates/s)")
    _line(panel, metrics, "tps", "TPS", _BLUE)


def _queues(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Queue lengths", "entries")
    _line(panel, metrics, "prediction_queue", "prediction queue", _BLUE)
    _line(panel, metrics, "training_queue", "training queue", _ORANGE)


def _batches(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Batch sizes", "observations, experiences")
    _line(panel, metrics, "prediction_batch", "prediction", _BLUE)
    _line(panel, metrics, "training_batch", "training", _ORANGE)


def _lag(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Policy lag", "model updates")
    _line(panel, metrics, "lag_mean", "mean", _BLUE)
    _line(panel, metrics, "lag_max", "max", _ORANGE)


def _roles(panel: Axes, metrics: Columns) -> None:
    _over_time(panel, "Counts", "number")
    minutes = metrics["time"] / 60
    panel.step(minutes, metrics["agents"], where="post", color=_BLUE, label="$N_A$")
    panel.step(minutes, metrics["predictors"], where="post", color=_ORANGE, label="$N_P$")
    panel.step(minutes, metrics["trainers"], "--", where="post", color=_GREEN, label="$N_T$")
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))


def _trials(panel: Axes, path: Path) -> None:
    """What the annealing controller tried: a mark at the count that it changed, kept or taken back."""
    trials = read_csv(path) if path.is_file() else {}
    if not len(trials.get("kept", ())):
        return
    for name in ("agents", "predictors", "trainers"):
        changed = trials[name] != trials[f"old_{name}"]
        for kept, mark, colour, meaning in ((1, "^", _GREEN, "kept"), (0, "x", _GREY, "taken back")):
            chosen = changed & (trials["kept"] == kept)
            minutes, counts = trials["time"][chosen] / 60, trials[name][chosen]
            label = meaning if name == "agents" else None  # once in the legend
            panel.plot(minutes, counts, mark, color=colour, markersize=4, label=label)


def _over_time(panel: Axes, title: str, unit: str) -> None:
    panel.set_title(title, loc="left", fontweight="bold")
    panel.set(xlabel="time (minutes)", ylabel=unit)


def _line(panel: Axes, metrics: Columns, name: str, label: str, colour: str) -> None:
    """The measured values, faint, and their moving mean over a fiftieth of the run."""
    minutes, values = metrics["time"] / 60, metrics[name]
    panel.plot(minutes, values, color=colour, linewidth=0.8, alpha=_FAINT)
    panel.plot(minutes, moving_mean(values, len(values) // 100), color=colour, label=label)


def _finish(panel: Axes, has_data: bool) -> None:
    if not (has_data and any(np.isfinite(line.get_ydata()).any() for line in panel.get_lines())):
        panel.set(xticks=[], yticks=[])
        panel.text(0.5, 0.5, "no data yet", transform=panel.transAxes, ha="center", color=_GREY)
        return
    panel.grid(alpha=_FAINT)
    panel.margins(x=0.01)
    if panel.get_title(loc="left") != "Score":
        panel.set_ylim(bottom=0)
    panel.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=5, columnspacing=1.2, frameon=False, borderaxespad=0.1
    )


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean over up to ``window`` values before and after each, without nan; nan where all are."""
    known = ~np.isnan(values)
    sums = np.concatenate(([0.0], np.cumsum(np.where(known, values, 0.0))))
    counts = np.concatenate(([0], np.cumsum(known)))
    places = np.arange(len(values))
    low, high = np.maximum(places - window, 0), np.minimum(places + window + 1, len(values))
    count = counts[high] - counts[low]
    return np.where(count > 0, (sums[high] - sums[low]) / np.maximum(count, 1), np.nan)
