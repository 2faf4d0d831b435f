"""One training run from its start to its end: what the commands train and tune do.

torch is imported only when the fork server of the agents has started.
"""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ga3c import agent, config, environments, runs
from ga3c.config import Config, Counts
from ga3c.console import Goals, Status
from ga3c.runs import RunDirectory

log = logging.getLogger(__name__)


class Ended(NamedTuple):
    """How a run ended; ``best`` is what the annealing controller believes best, where it measured."""

    code: int
    best: Counts | None


def train(settings: Config, resume: Path | None) -> Ended:
    """Train in a new run directory, or go on in that of ``resume``; faults are printed.

    Raises ConfigError for what can be known before the start.
    """
    spec = environments.describe(settings)
    agent.start_fork_server()

    from ga3c import checkpoint
    from ga3c.model import Model
    from ga3c.server import Server
    from ga3c.supervisor import RunFailed

    model = Model(spec, settings)
    header = checkpoint.header_for(settings, spec, frames=0)
    restored = None
    directory = runs.open_run(resume) if resume else runs.create(settings)
    with directory, _log_to(directory):
        if resume:
            file = checkpoint.newest(directory.checkpoints, warn)
            _, restored = checkpoint.load(file, header)
            model.load_state(restored)
            checkpoint.remove_leftovers(directory.path)
            checkpoint.remove_leftovers(directory.checkpoints)
            log.info("resumed from %s", file.name)
            runs.write_whole(directory.config_file, config.dump(settings).encode())
        goals = Goals(settings.run.frames, settings.run.minutes, settings.run.target_score)
        precision = str(model.precision).removeprefix("torch.")
        headline = f"{header.game} · {header.network} network · {model.device} {precision} · {directory.path}"
        log.info("%s", headline)
        try:
            with Status(headline, goals) as console:
                server = Server(settings, spec, model, header, directory, console, restored)
                code = server.run()
        except RunFailed as failure:
            log.error("%s", failure, exc_info=failure)
            if failure.__cause__ is not None:
                traceback.print_exception(failure.__cause__)
            print(f"ga3c: {failure}", file=sys.stderr)
            return Ended(1, None)
        return Ended(code, server.controller.best if server.controller else None)


def warn(text: str) -> None:
    print(f"ga3c: {text}", file=sys.stderr)


@contextmanager
def _log_to(directory: RunDirectory) -> Iterator[None]:
    """Write what the program says to the run's log, with the date, for as long as the run lasts."""
    handler = logging.FileHandler(directory.log_file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("ga3c")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
