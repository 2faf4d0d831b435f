from pathlib import Path

import numpy as np
import pytest

from ga3c.annealing.controller import Trial
from ga3c.config import ConfigError
from ga3c.csvlog import CsvLog
from ga3c.metrics import Game, Row
from ga3c.plots import draw, moving_mean, save

PANELS = [
    "Score",
    "Predictions per second",
    "Trainings per second",
    "Queue lengths",
    "Batch sizes",
    "Policy lag",
    "Counts",
]
NOTHING = Row(*[float("nan")] * len(Row._fields))


def _run(folder: Path, rows: list[Row], games: list[Game]) -> Path:
    run = folder / "boxing-1"
    run.mkdir()
    for name, columns, values in (("metrics.csv", Row._fields, rows), ("games.csv", Game._fields, games)):
        log = CsvLog(run / name, columns)
        log.write(values)
        log.close()
    return run


def _row(number: int) -> Row:
    return NOTHING._replace(
        time=60.0 * number,
        frames=1_000_000 * number,
        pps=1000.0 * number,
        tps=10.0 * number,
        score_mean=-20.0 + number,
        prediction_queue=number,
        training_queue=0,
        prediction_batch=48.0,
        training_batch=80.0,
        lag_mean=1.0,
        lag_max=3,
        agents=4,
        predictors=2,
        trainers=1,
    )


@pytest.fixture(autouse=True, scope="module")
def fonts(tmp_path_factory):
    """Matplotlib keeps the font files that it has read open: open them before descriptors are counted."""
    folder = tmp_path_factory.mktemp("fonts")
    save(_run(folder, [_row(1), _row(2)], []), folder)


def test_trials_of_the_annealing_controller_are_marked_at_the_count_they_changed(tmp_path):
    run = _run(tmp_path, [_row(number) for number in range(1, 6)], [])
    log = CsvLog(run / "annealing.csv", Trial._fields)
    spread = (50.0, 1.0, 4000.0, 80.0, 2.0)
    log.write(
        [
            Trial(60.0, 1, 4, 2, 1, 5, 2, 1, 5, 2, 1, *spread, 1, "+3 %"),
            Trial(120.0, 2, 5, 2, 1, 5, 3, 1, 5, 2, 1, *spread, 0, "-2 %"),
        ]
    )
    log.close()
    panel = _panels(draw(run))["Counts"]
    marks = {
        (line.get_marker(), tuple(line.get_xdata()), tuple(line.get_ydata()))
        for line in panel.get_lines()
        if line.get_marker() != "None" and len(line.get_xdata())
    }
    assert marks == {("^", (1.0,), (5.0,)), ("x", (2.0,), (3.0,))}
    assert {"kept", "taken back"} <= {text.get_text() for text in panel.get_legend().get_texts()}


def _panels(figure):
    return {panel.get_title(loc="left"): panel for panel in figure.axes}


def _lines(panel):
    drawn = [line for line in panel.get_lines() if not line.get_label().startswith("_")]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in drawn}


def _says_no_data(panel):
    return [text.get_text() for text in panel.texts] == ["no data yet"]


def test_panels_show_the_run_in_minutes_and_millions_of_frames(tmp_path):
    run = _run(tmp_path, [_row(1), _row(2)], [Game(30.0, 500_000, -21.0, 900)])
    panels = _panels(draw(run))
    assert list(panels) == PANELS
    assert not any(_says_no_data(panel) for panel in panels.values())
    assert _lines(panels["Score"]) == {
        "one game": ([0.5], [-21.0]),
        "mean of the last 100 games": ([1.0, 2.0], [-19.0, -18.0]),
    }
    assert _lines(panels["Predictions per second"]) == {"PPS": ([1.0, 2.0], [1000.0, 2000.0])}
    assert _lines(panels["Trainings per second"]) == {"TPS": ([1.0, 2.0], [10.0, 20.0])}
    assert _lines(panels["Queue lengths"])["prediction queue"] == ([1.0, 2.0], [1.0, 2.0])
    assert _lines(panels["Batch sizes"])["training"] == ([1.0, 2.0], [80.0, 80.0])
    assert _lines(panels["Policy lag"])["max"] == ([1.0, 2.0], [3.0, 3.0])
    assert _lines(panels["Counts"])["$N_A$"] == ([1.0, 2.0], [4.0, 4.0])


def test_every_line_lies_within_its_panel(tmp_path):
    run = _run(tmp_path, [_row(1), _row(2)], [])
    for panel in draw(run).axes[1:]:
        bottom, top = panel.get_ylim()
        assert bottom == 0
        assert all(max(line.get_ydata()) <= top for line in panel.get_lines())


@pytest.mark.parametrize("rows", [0, 1])
def test_run_that_has_just_begun_says_no_data_yet(tmp_path, rows):
    figure = draw(_run(tmp_path, [_row(1)] * rows, []))
    assert all(_says_no_data(panel) for panel in figure.axes)


@pytest.mark.parametrize("text", ["", "time,fra", "time,frames\n1,2\n3,4\n"])
def test_metrics_file_without_the_expected_columns_says_no_data_yet(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    assert all(_says_no_data(panel) for panel in draw(tmp_path).axes)


def test_only_panels_without_values_say_no_data_yet(tmp_path):
    rows = [_row(number)._replace(score_mean=float("nan")) for number in (1, 2)]
    run = _run(tmp_path, rows, [])
    (run / "games.csv").unlink()
    panels = _panels(draw(run))
    assert [name for name, panel in panels.items() if _says_no_data(panel)] == ["Score"]


def test_directory_without_metrics_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere: no metrics\.csv there; expected the directory of a run"):
        draw(tmp_path / "nowhere")


def test_saved_figure_is_a_png_1200_pixels_wide_named_after_the_run(tmp_path):
    run = _run(tmp_path, [_row(1), _row(2)], [])
    run = run.rename(tmp_path / "cost-$1")
    path = save(run, tmp_path / "plots" / "new")
    assert path == tmp_path / "plots" / "new" / "cost-$1.png"
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 1200
    assert list(path.parent.iterdir()) == [path]


def test_moving_mean_leaves_out_what_is_not_known():
    nan = np.nan
    smooth = moving_mean(np.array([nan, nan, nan, 3.0, 5.0, nan, 10.0]), 1)
    np.testing.assert_array_equal(smooth, [nan, nan, 3.0, 4.0, 4.0, 7.5, 10.0])
    np.testing.assert_array_equal(moving_mean(np.array([1.0, nan, 2.0]), 0), [1.0, nan, 2.0])
