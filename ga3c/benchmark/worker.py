"""Processes that play for a while whenever they are told to, and say how many actions that made."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Self

from ga3c.agent import start_fork_server

_CONTEXT = multiprocessing.get_context("forkserver")
_PATIENCE_SECONDS = 120.0
_LEAVE_SECONDS = 10.0

Play = Callable[[], int]
"""One step of whatever plays; returns the number of actions."""


class Workers:
    """One process for each tuple of ``arguments``, ready when this has been made.

    ``make`` is a function of a module, called with these arguments in the process. Raises RuntimeError
    when a process ends before it was told to.
    """

    def __init__(self, make: Callable[..., Play], arguments: list[tuple[Any, ...]]) -> None:
        start_fork_server()
        self._workers: list[tuple[ForkServerProcess, Connection]] = []
        try:
            for each in arguments:
                self._workers.append(_start(make, each))
            self._hear_all(0.0)
        except BaseException:
            self.__exit__()
            raise

    def measure(self, seconds: float) -> float:
        """Let all play at the same time; returns actions per second of all together."""
        with contextlib.suppress(ConnectionError):  # then hearing from it fails, and says so
            for _, connection in self._workers:
                connection.send(seconds)
        return sum(self._hear_all(seconds))

    def _hear_all(self, seconds: float) -> list[float]:
        heard = []
        for process, connection in self._workers:
            try:
                if not connection.poll(seconds + _PATIENCE_SECONDS):
                    raise RuntimeError(f"{process.name} does not answer")
                heard.append(connection.recv())
            except (EOFError, ConnectionError):
                raise RuntimeError(f"{process.name} ended early; its message is above") from None
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            process.join(_LEAVE_SECONDS)
            process.kill()
            process.join()
            process.close()


def _start(make: Callable[..., Play], arguments: tuple[Any, ...]) -> tuple[ForkServerProcess, Connection]:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(make, arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(make: Callable[..., Play], arguments: tuple[Any, ...], connection: Connection) -> None:
    play = make(*arguments)
    play()
    with contextlib.suppress(EOFError, ConnectionError):  # nobody wants to hear it any more
        connection.send(0.0)
        while True:
            seconds, actions, start = connection.recv(), 0, time.perf_counter()
            while (passed := time.perf_counter() - start) < seconds:
                actions += play()
            connection.send(actions / passed)
