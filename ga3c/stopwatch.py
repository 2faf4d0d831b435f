"""Where the time of predictors and trainers goes; two clock readings per phase, so it always runs."""

import time
from collections.abc import Callable

PREDICTOR_PHASES = ("waiting", "gathering", "forward", "replying")
TRAINER_PHASES = ("waiting", "gathering", "forward", "backward", "optimiser")


class Stopwatch:
    """Seconds that one thread has spent in each phase of its work.

    On a GPU, a pass only hands out work: the time it takes shows in the phase that next waits for the
    device.
    """

    def __init__(self, phases: tuple[str, ...], clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(phases, 0.0)
        self._taken = dict(self._seconds)
        self._since = clock()

    def lap(self, phase: str) -> None:
        """The time since the last lap was spent in ``phase``."""
        now = self._clock()
        self._seconds[phase] += now - self._since
        self._since = now

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call; for one other thread."""
        now = dict(self._seconds)
        passed = {phase: seconds - self._taken[phase] for phase, seconds in now.items()}
        self._taken = now
        return passed
