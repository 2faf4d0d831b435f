"""The server process: a system that trains, and the loop that records, saves and ends it.

Read after main.py, config.yaml and system.py.
"""

import contextlib
import logging
import os
import signal
import time
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from ga3c import checkpoint
from ga3c.agent import STOP_SIGNALS
from ga3c.annealing.controller import Controller, Trial, standing
from ga3c.config import Config
from ga3c.console import Status
from ga3c.csvlog import CsvLog, read_csv
from ga3c.environments import Spec
from ga3c.metrics import SCORE_WINDOW, Game, Row
from ga3c.model import Model
from ga3c.runs import RunDirectory
from ga3c.supervisor import RunFailed
from ga3c.system import System

_TICK_SECONDS = 0.5
_FAILED_SAVES_ALLOWED = 3

log = logging.getLogger(__name__)


class Server:
    """A training run: everything in one place, started and stopped by ``run``.

    ``restored`` is the state of the checkpoint from which the model continues, or None for a new run.
    """

    def __init__(
        self,
        config: Config,
        spec: Spec,
        model: Model,
        header: checkpoint.Header,
        directory: RunDirectory,
        console: Status,
        restored: dict[str, Any] | None = None,
    ) -> None:
        self._config, self._model, self._header = config, model, header
        self._directory, self._console = directory, console
        self.system = System(config, spec, model, self._say, restored)
        self.metrics, self.supervisor = self.system.metrics, self.system.supervisor
        keep_frames = self.metrics.frames if restored else None
        self._rows = CsvLog(directory.metrics_file, Row._fields, keep_frames)
        self._games = CsvLog(directory.games_file, Game._fields, keep_frames)
        self._trials = CsvLog(directory.annealing_file, Trial._fields, keep_frames)
        self._decided: list[Trial] = []
        self.controller: Controller | None = None
        self._signal: int | None = None
        self._failed_saves = 0
        self._metrics_are_written = True

    def run(self) -> int:
        """Train until the end condition or a signal, save, and leave nothing behind.

        Returns the exit code: 0, or 128 plus the signal's number. Raises RunFailed, with the model saved
        if that is possible, when the run cannot go on.
        """
        handlers = {number: signal.signal(number, self._on_signal) for number in _heeded_signals()}
        try:
            try:
                self._start()
                self._loop()
            finally:
                busy = self.supervisor.stop()
                if busy:
                    self._say(f"{', '.join(busy)} did not stop in time; the update in hand is lost")
                self._write_metrics([])
                saved = self._save()
        finally:
            for log_file in (self._rows, self._games, self._trials):
                with contextlib.suppress(OSError):  # said when it was written to
                    log_file.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if not saved:
            raise RunFailed("the last checkpoint was not written")
        reason = signal.Signals(self._signal).name if self._signal else "the end condition"
        log.info("ended by %s at %d frames", reason, self.metrics.frames)
        return 128 + self._signal if self._signal else 0

    def _start(self) -> None:
        """Start the configured counts, or, with annealing, those that it kept last."""
        counts = self._config.counts
        if not self._config.annealing.enabled:
            self.system.set_counts(counts)
            return
        kept = standing(read_csv(self._directory.annealing_file))
        if kept and kept != counts:
            self._say(f"annealing goes on from N_A/N_P/N_T {kept}")
        self.system.set_counts(kept or counts)
        self.controller = Controller(self._config, self.system)

    def _loop(self) -> None:
        settings = self._config.run
        recorded = time.monotonic()
        next_row = recorded + settings.metrics_seconds
        next_save = time.monotonic() + settings.checkpoint_minutes * 60
        while self._signal is None and not self._is_finished():
            self.supervisor.watch(min(_TICK_SECONDS, next_row - time.monotonic()))
            self._anneal()
            now = time.monotonic()
            if now >= next_row:
                self._record()
                recorded = now
                next_row = max(next_row + settings.metrics_seconds, now)
            if now >= next_save:
                self._save()
                next_save = now + settings.checkpoint_minutes * 60
                if self._failed_saves >= _FAILED_SAVES_ALLOWED:
                    raise RunFailed(f"{self._failed_saves} checkpoints in a row could not be written")
        if time.monotonic() - recorded > _TICK_SECONDS:
            self._record()

    def _anneal(self) -> None:
        for trial in self.controller.step() if self.controller else []:
            self._decided.append(trial)
            log.info("annealing: %s", trial)
            self._console.note(str(trial))

    def _is_finished(self) -> bool:
        settings, metrics = self._config.run, self.metrics
        if metrics.frames >= settings.frames:
            return True
        if settings.minutes and metrics.totals.seconds >= settings.minutes * 60:
            return True
        if settings.target_score is None or len(metrics.recent_scores) < SCORE_WINDOW:
            return False
        return metrics.score_mean >= settings.target_score

    def _record(self) -> None:
        """One row of metrics.csv, the games since the last one, and a new look of the console."""
        row = self.system.sample()
        self._write_metrics([row])
        self._console.update(row)

    def _write_metrics(self, rows: list[Row]) -> None:
        """Write rows, trials and finished games; a failure is said once, what failed is tried again."""
        try:
            self._rows.write(rows)
            self._trials.write(self._decided)
            self._decided.clear()
            self._games.write(self.metrics.take_games())
        except OSError as error:
            if self._metrics_are_written:
                self._say(f"metrics not written to {self._directory.path}: {error.strerror or error}")
            self._metrics_are_written = False
        else:
            self._metrics_are_written = True

    def _save(self) -> bool:
        """Write a checkpoint; a failure is said and training goes on."""
        model = self._model.state()
        if not all(torch.isfinite(weights).all() for weights in model["network"].values()):
            self._say("the model has weights that are not finite numbers; it is not saved")
            return False
        state = {**model, **self.system.counters()}
        header = replace(self._header, frames=self.metrics.frames)
        try:
            checkpoint.save(self._directory.checkpoints, model["version"], header, state)
        except OSError as error:
            self._failed_saves += 1
            self._say(f"checkpoint not written to {self._directory.checkpoints}: {error.strerror or error}")
            return False
        self._failed_saves = 0
        log.info("checkpoint %d written at %d frames", model["version"], header.frames)
        return True

    def _say(self, text: str) -> None:
        log.info(text)
        self._console.message(text)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Note the signal and let the loop end; a second one ends everything now."""
        if self._signal is not None:
            try:
                self.supervisor.kill_agents()
            finally:
                os._exit(128 + number)
        self._signal = number
        self.supervisor.wake()


def _heeded_signals() -> list[signal.Signals]:
    """Those that ask the run to end; under nohup, SIGHUP does not."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if not (nohup and number == signal.SIGHUP)]
