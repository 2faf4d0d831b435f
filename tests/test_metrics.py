import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga3c.config import ConfigError
from ga3c.csvlog import CsvLog, read_csv
from ga3c.metrics import Game, Gauges, Metrics, Row, Totals
from ga3c.stopwatch import PREDICTOR_PHASES, TRAINER_PHASES

GAUGES = Gauges(prediction_queue=3, training_queue=1, agents=4, predictors=2, trainers=1)
UPDATE = {
    "experiences": 80,
    "lag_mean": 1.0,
    "lag_max": 2,
    "policy_loss": -0.5,
    "value_loss": 0.25,
    "entropy": 1.5,
    "gradient_norm": 2.0,
    "learning_rate": 7e-4,
}


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics(clock):
    return Metrics(frames_per_action=4, clock=clock)


def test_columns_of_metrics_csv_are_these():
    assert ",".join(Row._fields) == (
        "time,frames,predictions,updates,pps,tps,fps,games,score_mean,score_min,score_max,"
        "prediction_queue,training_queue,prediction_batch,training_batch,lag_mean,lag_max,"
        "agents,predictors,trainers,policy_loss,value_loss,entropy,gradient_norm,learning_rate,"
        "predictor_waiting,predictor_gathering,predictor_forward,predictor_replying,"
        "trainer_waiting,trainer_gathering,trainer_forward,trainer_backward,trainer_optimiser"
    )
    assert ",".join(Game._fields) == "time,frames,score,length"


def test_rates_are_counts_per_second_of_the_interval(metrics, clock):
    metrics.add_predictions(actions=1000, observations=1000)
    clock.now += 2
    metrics.sample(GAUGES)
    metrics.add_predictions(actions=40, observations=48)
    metrics.add_predictions(actions=60, observations=60)
    metrics.add_update(**UPDATE)
    clock.now += 5
    row = metrics.sample(GAUGES)
    assert (row.time, row.predictions, row.frames, row.updates) == (7.0, 1100, 4400, 1)
    assert (row.pps, row.fps, row.tps) == (20.0, 80.0, 0.2)
    assert row.prediction_batch == 54.0


def test_losses_are_means_lag_max_the_largest_and_learning_rate_the_latest(metrics, clock):
    metrics.add_update(**UPDATE)
    other = {"experiences": 100, "lag_mean": 2.0, "lag_max": 5, "entropy": 0.5, "learning_rate": 6e-4}
    metrics.add_update(**(UPDATE | other))
    metrics.add_update(**(UPDATE | {"lag_max": 0, "lag_mean": 0.0, "learning_rate": 5e-4}))
    clock.now += 1
    row = metrics.sample(GAUGES)
    assert row.training_batch == pytest.approx(260 / 3)
    assert (row.lag_mean, row.lag_max) == (1.0, 5)
    assert row.entropy == pytest.approx(3.5 / 3)
    assert (row.policy_loss, row.value_loss, row.gradient_norm) == (-0.5, 0.25, 2.0)
    assert row.learning_rate == 5e-4


def test_what_did_not_happen_is_nan_and_its_rate_zero(metrics, clock):
    metrics.add_update(**UPDATE)
    clock.now += 1
    metrics.sample(GAUGES)
    clock.now += 1
    row = metrics.sample(GAUGES)
    assert (row.pps, row.tps, row.fps) == (0.0, 0.0, 0.0)
    absent = [name for name, value in row._asdict().items() if math.isnan(value)]
    assert absent == [
        *("score_mean", "score_min", "score_max", "prediction_batch", "training_batch", "lag_mean"),
        *("lag_max", "policy_loss", "value_loss", "entropy", "gradient_norm", "learning_rate"),
        *(f"predictor_{phase}" for phase in PREDICTOR_PHASES),
        *(f"trainer_{phase}" for phase in TRAINER_PHASES),
    ]


def test_gauges_stand_in_the_row_as_given(metrics, clock):
    clock.now += 1
    row = metrics.sample(GAUGES)
    assert (row.prediction_queue, row.training_queue) == (3, 1)
    assert (row.agents, row.predictors, row.trainers) == (4, 2, 1)


def test_score_is_over_the_last_100_games(metrics, clock):
    metrics.add_game(-1000.0, 10)
    for score in range(100):
        metrics.add_game(score, 10)
    clock.now += 1
    row = metrics.sample(GAUGES)
    assert (row.games, row.score_mean, row.score_min, row.score_max) == (101, 49.5, 0, 99)
    assert metrics.score_mean == 49.5
    assert metrics.recent_scores == list(range(100))


def test_mean_score_is_nan_before_the_first_game(metrics):
    assert math.isnan(metrics.score_mean)


def test_games_are_taken_once_with_the_frames_at_their_end(metrics, clock):
    metrics.add_predictions(actions=25, observations=25)
    clock.now += 3
    metrics.add_game(score=7.0, length=20)
    metrics.add_predictions(actions=5, observations=5)
    assert metrics.take_games() == [Game(time=3.0, frames=100, score=7.0, length=20)]
    assert metrics.take_games() == []


def test_resumed_run_goes_on_from_its_totals(clock):
    before = Totals(seconds=60.0, predictions=500, updates=7, games=2)
    metrics = Metrics(1, before, recent_scores=[1.0, 3.0], clock=clock)
    metrics.add_predictions(actions=10, observations=10)
    clock.now += 2
    assert metrics.totals == Totals(seconds=62.0, predictions=510, updates=7, games=2)
    assert metrics.frames == 510
    row = metrics.sample(GAUGES)
    assert (row.time, row.pps, row.games, row.score_mean) == (62.0, 5.0, 2, 2.0)
    assert before == Totals(seconds=60.0, predictions=500, updates=7, games=2)


def test_nothing_is_lost_when_threads_count_at_once(metrics):
    def count():
        for _ in range(500):
            metrics.add_predictions(actions=2, observations=3)
            metrics.add_update(**UPDATE)
            metrics.add_game(1.0, 5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = metrics.totals
    assert (totals.predictions, totals.updates, totals.games) == (4000, 2000, 2000)
    assert len(metrics.take_games()) == 2000


def test_row_is_in_the_file_at_once_with_empty_cells_for_nan(tmp_path):
    log = CsvLog(tmp_path / "log.csv", ["frames", "score", "loss"])
    log.write([(400_000_001, 0.1, math.nan), (400_000_005, -2.0, np.float32(0.5))])
    assert (tmp_path / "log.csv").read_text() == "frames,score,loss\n400000001,0.1,\n400000005,-2,0.5\n"
    log.close()


def test_resumed_log_keeps_one_header_and_drops_torn_and_later_rows(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,frames\n1,100\n2,200\n3,300\n4,4")
    log = CsvLog(path, ["time", "frames"], keep_frames=200)
    log.write([(5.0, 250)])
    log.close()
    assert path.read_text() == "time,frames\n1,100\n2,200\n5,250\n"
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]


def test_log_continued_without_a_limit_keeps_every_whole_row(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,frames\n1,100\n2,200\n3,3")
    CsvLog(path, ["time", "frames"]).close()
    assert path.read_text() == "time,frames\n1,100\n2,200\n"


@pytest.mark.parametrize("left", ["", "time,fra", "time,frames\n", "time,frames\n\0\0\0\0\n,,\n5\n"])
def test_log_recovers_from_whatever_a_crash_left(tmp_path, left):
    path = tmp_path / "log.csv"
    path.write_text(left)
    log = CsvLog(path, ["time", "frames"], keep_frames=10)
    log.write([(1.0, 4)])
    log.close()
    assert path.read_text() == "time,frames\n1,4\n"


def test_log_with_other_columns_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,score\n1,2\n")
    with pytest.raises(ConfigError, match=r"log\.csv: columns are time,score; expected time,frames"):
        CsvLog(path, ["time", "frames"])
    assert path.read_text() == "time,score\n1,2\n"


def test_reading_gives_columns_without_the_torn_last_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,lag\n1.5,\n2.5,3\n3.5")
    columns = read_csv(path)
    assert list(columns) == ["time", "lag"]
    np.testing.assert_array_equal(columns["time"], [1.5, 2.5])
    np.testing.assert_array_equal(columns["lag"], [np.nan, 3])


@pytest.mark.parametrize(("text", "names"), [("", []), ("time,lag", []), ("time,lag\n", ["time", "lag"])])
def test_reading_a_log_without_rows_gives_empty_columns(tmp_path, text, names):
    (tmp_path / "log.csv").write_text(text)
    columns = read_csv(tmp_path / "log.csv")
    assert list(columns) == names
    assert all(len(column) == 0 for column in columns.values())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(width=16, allow_infinity=False)), min_size=1))
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "log.csv"
    log = CsvLog(path, ["frames", "score"])
    log.write(rows)
    log.close()
    columns = read_csv(path)
    np.testing.assert_array_equal(columns["frames"], [frames for frames, _ in rows])
    np.testing.assert_allclose(columns["score"], [score for _, score in rows], rtol=1e-7)


def test_times_of_a_role_are_parts_of_the_whole_over_its_threads_that_are_left(metrics):
    now = [0.0]

    def spend(stopwatch, **seconds):
        stopwatch._clock, stopwatch._since = lambda: now[0], now[0]
        for phase, passed in seconds.items():
            now[0] += passed
            stopwatch.lap(phase)

    first, second = metrics.stopwatch("trainer"), metrics.stopwatch("trainer")
    spend(first, waiting=1, forward=2)
    spend(second, waiting=1)
    row = metrics.sample(GAUGES)
    assert (row.trainer_waiting, row.trainer_forward, row.trainer_backward) == (0.5, 0.5, 0)
    assert math.isnan(row.predictor_waiting)
    del second
    spend(first, backward=5)
    row = metrics.sample(GAUGES)
    assert (row.trainer_waiting, row.trainer_backward) == (0, 1)
