import fcntl
import io
import os
import select
import struct
import termios
from math import nan

import pytest

from ga3c.console import Goals, Status, duration, line, progress
from ga3c.metrics import Row

ROW = Row(
    time=1800.0,
    frames=20_000_000,
    predictions=5_000_000,
    updates=62_500,
    pps=2840.4,
    tps=35.52,
    fps=10_000.0,
    games=1234,
    score_mean=9.0,
    score_min=-4.0,
    score_max=21.0,
    prediction_queue=3,
    training_queue=1,
    prediction_batch=48.2,
    training_batch=82.13,
    lag_mean=1.23,
    lag_max=4,
    agents=5,
    predictors=2,
    trainers=1,
    policy_loss=-0.01,
    value_loss=0.2,
    entropy=1.634,
    gradient_norm=0.4,
    learning_rate=5.9e-4,
    predictor_waiting=0.4,
    predictor_gathering=0.1,
    predictor_forward=0.45,
    predictor_replying=0.05,
    trainer_waiting=0.2,
    trainer_gathering=0.1,
    trainer_forward=0.2,
    trainer_backward=0.4,
    trainer_optimiser=0.1,
)
FIRST = ROW._replace(score_mean=nan, score_min=nan, score_max=nan, entropy=nan, lag_mean=nan, lag_max=nan)
GOALS = Goals(frames=80_000_000)


def test_progress_towards_frames_takes_the_remaining_frames_at_the_present_speed():
    assert progress(ROW, GOALS) == (0.25, 6000.0, "20.00 M of 80.00 M frames")


def test_minutes_count_when_they_are_further_along_than_frames():
    assert progress(ROW, Goals(80_000_000, minutes=60.0)) == (0.5, 1800.0, "time 0:30:00 of 1:00:00")


def test_run_ends_at_the_first_goal_so_the_shortest_time_is_left():
    assert progress(ROW._replace(fps=60_000.0), Goals(80_000_000, minutes=60.0)).seconds_left == 1000.0


def test_target_score_counts_when_it_is_furthest_along():
    assert progress(ROW, Goals(80_000_000, target_score=18.0)) == (0.5, 6000.0, "score 9.0 of 18")


def test_negative_target_score_counts_only_once_it_is_reached():
    goals = Goals(80_000_000, target_score=-10.0)
    assert progress(ROW._replace(score_mean=-11.0), goals).fraction == 0.25
    assert progress(ROW._replace(score_mean=-10.0), goals).fraction == 1.0


def test_target_score_counts_only_after_100_games():
    assert progress(ROW._replace(games=99), Goals(80_000_000, target_score=1.0)).fraction == 0.25
    assert progress(ROW._replace(games=100), Goals(80_000_000, target_score=1.0)).fraction == 1.0


def test_time_left_is_unknown_while_no_frames_are_played():
    assert progress(FIRST._replace(frames=0, fps=0.0), GOALS) == (0.0, None, "0.00 M of 80.00 M frames")


def test_progress_beyond_the_goal_is_whole_with_no_time_left():
    assert progress(ROW, Goals(frames=10_000_000, minutes=1.0))[:2] == (1.0, 0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (59.9, "0:00:59"), (7445, "2:04:05"), (86_400 * 3 + 61, "3 d 0:01:01")],
)
def test_duration_reads_as_hours_minutes_seconds(seconds, text):
    assert duration(seconds) == text


def test_line_says_what_matters():
    assert line(ROW, GOALS) == (
        "0:30:00, 20.00 M of 80.00 M frames (25.0%, 1:40:00 left), score 9.0 (1,234 games), PPS 2,840, "
        "TPS 35.5, lag 1.2 (max 4), queues 3/1, N_A/N_P/N_T 5/2/1, entropy 1.634"
    )


def test_line_writes_a_dash_for_what_did_not_happen():
    text = line(FIRST, GOALS)
    assert "score - (1,234 games)" in text
    assert "lag - (max -), " in text
    assert "nan" not in text


def test_log_file_gets_one_line_per_row_and_message():
    stream = io.StringIO()
    with Status("Boxing on cpu", GOALS, stream) as status:
        status.update(ROW)
        status.update(ROW)
        status.message("agent 7 was killed by SIGKILL; replaced")
        status.note("N_A/N_P/N_T 2/1/1 -> 3/1/1: kept")
    assert stream.getvalue().splitlines() == [
        "Boxing on cpu",
        "starting agents ...",
        line(ROW, GOALS),
        "agent 7 was killed by SIGKILL; replaced",
        "N_A/N_P/N_T 2/1/1 -> 3/1/1: kept",
    ]


def test_characters_that_the_stream_cannot_encode_are_replaced():
    raw = io.BytesIO()
    with Status("runs/\u00fcbung-\udcff", GOALS, io.TextIOWrapper(raw, encoding="ascii")):
        assert raw.getvalue().splitlines()[0] == b"runs/?bung-?"


def test_without_any_standard_output_nothing_is_shown(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with Status("Boxing", GOALS) as status:
        status.update(ROW)
    assert not status._stream.takes_more()


def test_reader_that_is_gone_switches_the_console_off_and_training_goes_on():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        with Status("Boxing", GOALS, stream) as status:
            status.update(ROW)
            os.close(reading)
            status.update(FIRST)
            status.message("still training")
        assert not status._stream.takes_more()


def test_closed_stream_is_no_error():
    stream = io.StringIO()
    with Status("Boxing", GOALS, stream) as status:
        stream.close()
        status.update(ROW)
    assert not status._stream.takes_more()


def test_full_pipe_is_passed_over_and_messages_come_later():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        with Status("Boxing", GOALS, stream) as status:
            os.read(reading, 65536)
            os.set_blocking(writing, False)
            filled = os.write(writing, b"x" * 10**6)
            os.set_blocking(writing, True)
            status.message("agent 7 was replaced")
            os.read(reading, filled)
            status.update(ROW)
        assert os.read(reading, 65536).decode().splitlines() == ["agent 7 was replaced", line(ROW, GOALS)]
    os.close(reading)


class Terminal:
    """A terminal of 80 x 24 without a person: what was written to it is read back."""

    def __init__(self) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def read(self) -> str:
        text = b""
        while select.select([self.master], [], [], 0)[0]:
            text += os.read(self.master, 65536)
        return text.decode()


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    yield terminal
    terminal.stream.close()
    os.close(terminal.master)


def test_terminal_shows_a_panel_that_fits_and_messages_above_it(terminal):
    with Status("Boxing on cpu", GOALS, terminal.stream) as status:
        assert "starting agents" in terminal.read()
        status.update(ROW)
        shown = terminal.read()
        for text in ("Boxing on cpu", "25.0%, 1:40:00 left", "2,840", "35.5", "1.2 mean, 4 max", "5 / 2 / 1"):
            assert text in shown
        assert shown.count("\n") < 24
        status.message("agent 7 was [killed] by SIGKILL; replaced")
        shown = terminal.read()
        assert shown.index("agent 7 was [killed] by SIGKILL; replaced") < shown.index("Boxing on cpu")
    assert terminal.read().endswith("\x1b[?25h")


def test_terminal_halted_by_ctrl_s_does_not_halt_training(terminal):
    with Status("Boxing on cpu", GOALS, terminal.stream) as status:
        terminal.read()
        termios.tcflow(terminal.stream, termios.TCOOFF)
        status.update(ROW)
        status.message("agent 7 was replaced")
        termios.tcflow(terminal.stream, termios.TCOON)
        status.update(ROW)
        assert "agent 7 was replaced" in terminal.read()


def test_terminal_that_hung_up_switches_the_console_off(terminal):
    with Status("Boxing on cpu", GOALS, terminal.stream) as status:
        os.close(terminal.master)
        status.update(ROW)
        assert not status._stream.takes_more()
    terminal.master = os.open(os.devnull, os.O_RDONLY)


def test_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with Status("Boxing on cpu", GOALS, terminal.stream):
        assert terminal.read() == "Boxing on cpu\r\nstarting agents ...\r\n"
