"""What a person sees while training: a live panel on a terminal, one line per metrics row elsewhere.

The server's main loop feeds it rows of metrics; drawing is not allowed to disturb the training.
"""

import os
import select
import sys
from collections import deque
from math import isfinite
from types import TracebackType
from typing import IO, NamedTuple, Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ga3c.metrics import SCORE_WINDOW, Row

_PANEL_WIDTH = 100  # columns, on wider terminals
_MESSAGES = 1000  # kept at most while the stream takes no more


class Goals(NamedTuple):
    """When the run ends, as in the ``run`` section of the configuration: at the first one reached."""

    frames: int
    minutes: float = 0.0
    target_score: float | None = None


class Progress(NamedTuple):
    """``fraction`` from 0 to 1 of the goal that is furthest along, and what ``goal`` that is, in words."""

    fraction: float
    seconds_left: float | None
    goal: str


def progress(row: Row, goals: Goals) -> Progress:
    """How far a run is, and after how many seconds frames or minutes will end it at the present speed.

    ``seconds_left`` is None while no frames are played and there is no limit in minutes. A target
    score counts from 0, after 100 games; nobody knows at what speed it comes nearer.
    """
    options = [(row.frames / goals.frames, f"{_millions(row.frames)} of {_millions(goals.frames)} frames")]
    left = [(goals.frames - row.frames) / row.fps] if row.fps > 0 else []
    if goals.minutes:
        limit = goals.minutes * 60
        options.append((row.time / limit, f"time {duration(row.time)} of {duration(limit)}"))
        left.append(limit - row.time)
    if goals.target_score is not None and row.games >= SCORE_WINDOW:
        reached = row.score_mean >= goals.target_score
        part = row.score_mean / goals.target_score if goals.target_score > 0 else 0.0
        options.append((1.0 if reached else part, f"score {row.score_mean:.1f} of {goals.target_score:g}"))
    fraction, goal = max(options)
    return Progress(min(max(fraction, 0.0), 1.0), max(min(left), 0.0) if left else None, goal)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as 2:04:05; from a day on, 3 d 2:04:05."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour}:{minute:02}:{second:02}"
    return f"{days} d {clock}" if days else clock


def line(row: Row, goals: Goals) -> str:
    """A metrics row in one line, for a log file."""
    now = progress(row, goals)
    parts = [
        duration(row.time),
        f"{now.goal} ({now.fraction:.1%}{_left(now)})",
        f"score {_number(row.score_mean)} ({_count(row.games)} games)",
        f"PPS {_count(row.pps)}",
        f"TPS {_number(row.tps)}",
        f"lag {_number(row.lag_mean)} (max {_count(row.lag_max)})",
        f"queues {row.prediction_queue}/{row.training_queue}",
        f"N_A/N_P/N_T {row.agents}/{row.predictors}/{row.trainers}",
        f"entropy {_number(row.entropy, 3)}",
    ]
    return ", ".join(parts)


def panel(headline: str, goals: Goals, row: Row | None, note: str = "") -> RenderableType:
    """The live panel; without a row, the agents are still starting. ``note`` stands below the numbers."""
    title = Text(headline, style="bold", overflow="ellipsis", no_wrap=True)
    if row is None:
        parts: list[RenderableType] = [Text("starting agents ...")]
    else:
        parts = [_bar(row, goals), Text(), _table(row)]
    if note:
        parts += [Text(), Text(note, style="bright_black")]
    box = Panel(Group(title, Text(), *parts), title="GA3C", title_align="left", border_style="cyan")
    return Constrain(box, _PANEL_WIDTH)


def _bar(row: Row, goals: Goals) -> Table:
    now = progress(row, goals)
    bar = ProgressBar(1.0, now.fraction, complete_style="cyan", finished_style="green", style="bright_black")
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_row(now.goal, bar, f"{now.fraction:.1%}{_left(now)}")
    return grid


def _table(row: Row) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column(no_wrap=True, ratio=1)
    score = _with_bold(_number(row.score_mean), f"  ({_number(row.score_min)} to {_number(row.score_max)})")
    lag = f"{_number(row.lag_mean)} mean, {_count(row.lag_max)} max"
    grid.add_row("score", score, "PPS", _with_bold(_count(row.pps), " actions/s"))
    grid.add_row("games", _count(row.games), "TPS", _with_bold(_number(row.tps), " updates/s"))
    grid.add_row("entropy", _number(row.entropy, 3), "speed", f"{_count(row.fps)} frames/s")
    grid.add_row("elapsed", duration(row.time), "frames", _millions(row.frames))
    grid.add_row("", "", "", "")
    grid.add_row(
        "prediction queue", _count(row.prediction_queue), "batch size", _number(row.prediction_batch)
    )
    grid.add_row("training queue", _count(row.training_queue), "batch size", _number(row.training_batch))
    grid.add_row("N_A / N_P / N_T", f"{row.agents} / {row.predictors} / {row.trainers}", "policy lag", lag)
    return grid


def _with_bold(number: str, rest: str) -> Text:
    return Text.assemble((number, "bold"), rest)


def _left(now: Progress) -> str:
    return "" if now.seconds_left is None else f", {duration(now.seconds_left)} left"


def _millions(frames: int) -> str:
    return f"{frames / 1e6:.2f} M"


def _number(value: float, digits: int = 1) -> str:
    return f"{value:,.{digits}f}" if isfinite(value) else "-"


def _count(value: float) -> str:
    return _number(value, 0)


class _Stream:
    """A text stream that falls silent at its first failure, such as a reader or terminal that is gone."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._silence()
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._silence()

    def isatty(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def takes_more(self) -> bool:
        """Whether a write returns at once: not on a terminal halted by Ctrl-S, or a full pipe."""
        if self._stream is None:
            return False
        try:
            return bool(select.select([], [self._stream], [], 0)[1])
        except (OSError, ValueError):  # without a descriptor, or closed: writing tells
            return True

    def _silence(self) -> None:
        """Write no more; what is still buffered goes nowhere, so that the program's end does not fail."""
        stream, self._stream = self._stream, None
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), cast(TextIO, stream).fileno())
        except (OSError, ValueError):
            return


class Status:
    """The run's status on ``stream`` (standard output), from __enter__ to __exit__, for one thread.

    A stream that fails is written to no more; one that is full is passed over until it takes more.
    Neither stops nor delays the caller.
    """

    def __init__(self, headline: str, goals: Goals, stream: TextIO | None = None) -> None:
        self._headline, self._goals = headline, goals
        self._row: Row | None = None
        self._note = ""
        self._lines: deque[str] = deque(maxlen=_MESSAGES)
        self._stream = _Stream(stream or sys.stdout)
        self._live: Live | None = None
        if self._stream.isatty() and os.environ.get("TERM") != "dumb":
            console = Console(file=cast(IO[str], self._stream), force_terminal=True)
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )

    def __enter__(self) -> Self:
        if self._live is None:
            self._lines.extend([self._headline, "starting agents ..."])
        self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show()
        if self._live is not None and self._stream.takes_more():
            self._live.stop()

    def update(self, row: Row) -> None:
        """Show a row of metrics; the same row again costs no second line in a log file."""
        if self._live is None and row is not self._row:
            self._lines.append(line(row, self._goals))
        self._row = row
        self._show()

    def note(self, text: str) -> None:
        """Show a line until the next one takes its place; in a log file, a line like any other."""
        self._note = text
        if self._live is None:
            self._lines.append(text)
        self._show()

    def message(self, text: str) -> None:
        """Show a line that stays, above the panel."""
        self._lines.append(text)
        self._show()

    def _show(self) -> None:
        if not self._stream.takes_more():
            return
        text = "".join(f"{text}\n" for text in self._lines)
        self._lines.clear()
        if self._live is None:
            self._stream.write(text)
            self._stream.flush()
            return
        self._live.start()
        if text:
            self._live.console.print(Text(text, end=""))
        self._live.update(panel(self._headline, self._goals, self._row, self._note), refresh=True)
