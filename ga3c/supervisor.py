"""Starts, watches, replaces and stops agents, predictors and trainers, while training goes on.

All methods belong to the server's main thread. An agent that dies is replaced; any other failure is
raised from ``watch`` as RunFailed, the first one as its cause.
"""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import wait

from ga3c.agent_process import AgentProcess, how_it_ended
from ga3c.channels import LAST_SLOT, AgentChannel, Stop, Token, TokenQueue
from ga3c.config import Config
from ga3c.slots import Layout

_STOP_SECONDS = 3.0
_FAILURE_WINDOW_SECONDS = 60.0

Role = Callable[[Stop], None]
"""The work of a predictor or trainer: it returns soon after its Stop is set."""


class RunFailed(Exception):
    """The run cannot go on; the message says why."""


class RoleThread(threading.Thread):
    """A predictor or trainer thread; a failure is kept and wakes the main thread."""

    def __init__(self, name: str, role: Role, wake: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._role, self._wake = role, wake
        self.stop = Stop()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._role(self.stop)
        except BaseException as failure:
            self.failure = failure
            self._wake()


class Supervisor:
    """N_A agents, N_P predictors and N_T trainers; change any of them at any time."""

    def __init__(
        self,
        config: Config,
        layout: Layout,
        first_agent: int,
        new_predictor: Callable[[], Role],
        new_trainer: Callable[[], Role],
        warn: Callable[[str], None],
    ) -> None:
        self.predictions, self.trainings = TokenQueue(), TokenQueue()
        self.channels: dict[int, AgentChannel] = {}
        self.next_agent = first_agent
        self._config, self._layout, self._warn = config, layout, warn
        self._new_predictor, self._new_trainer = new_predictor, new_trainer
        self._agents: dict[int, AgentProcess] = {}
        self._predictors: list[RoleThread] = []
        self._trainers: list[RoleThread] = []
        self._leaving: list[RoleThread] = []
        self._threads_made = 0
        self._failures: deque[float] = deque()
        self._waker, wake_end = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(wake_end, False)
        self._wake_end: int | None = wake_end

    @property
    def agents(self) -> int:
        return len(self._playing)

    @property
    def is_settled(self) -> bool:
        """Whether every agent that should play does, every spare one could, and nobody else is there."""
        all_asked = all(agent.channel.has_asked for agent in self._agents.values())
        leaving = self._leaving or any(agent.leave_by is not None for agent in self._agents.values())
        return all_asked and not leaving

    @property
    def predictors(self) -> int:
        return len(self._predictors)

    @property
    def trainers(self) -> int:
        return len(self._trainers)

    @property
    def agent_pids(self) -> list[int]:
        return [pid for agent in self._agents.values() if (pid := agent.process.pid) is not None]

    @property
    def threads(self) -> list[RoleThread]:
        """The predictors and trainers; their names say which."""
        return [*self._predictors, *self._trainers]

    def set_agents(self, count: int) -> None:
        """Let spare agents play, then start new ones; or let the youngest pause, and be spare."""
        for spare in self._spare[: max(0, count - self.agents)]:
            spare.play()
        for surplus in self._playing[count:]:
            surplus.pause()
        while self.agents < count:
            self._start_agent()

    def set_spare_agents(self, count: int) -> None:
        """Start agents that only wait for ``set_agents``, or ask spare ones to leave.

        A spare agent has its games ready, and plays as soon as it is told to; a new one loads them first.
        """
        for surplus in self._spare[count:]:
            surplus.leave()
        for _ in range(count - len(self._spare)):
            self._start_agent().pause()

    def set_predictors(self, count: int) -> None:
        """Start predictors, or stop the youngest when they have answered what they hold."""
        self._add(self._predictors, count, "predictor", self._new_predictor)
        self._resize(self._predictors, count)

    def set_trainers(self, count: int) -> None:
        """Start trainers, or stop the youngest after the update they are computing."""
        self._add(self._trainers, count, "trainer", self._new_trainer)
        self._resize(self._trainers, count)

    def wake(self) -> None:
        """End the wait of ``watch``, if there is one; may be called from a thread or a signal handler."""
        if self._wake_end is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_end, b"w")

    def watch(self, seconds: float) -> None:
        """Wait at most ``seconds`` for an event; replace agents that died; raise RunFailed."""
        sentinels = [watched.process.sentinel for watched in self._agents.values()]
        wait([*sentinels, self._waker], timeout=max(seconds, 0))
        with contextlib.suppress(BlockingIOError):
            os.read(self._waker, 4096)
        for thread in (*self._trainers, *self._predictors, *self._leaving):
            if thread.failure is not None:
                raise RunFailed(f"{thread.name} failed: {thread.failure!r}") from thread.failure
        self._dismiss(time.monotonic())
        for number, watched in list(self._agents.items()):
            if watched.leave_by is not None and time.monotonic() > watched.leave_by:
                watched.process.kill()
            if not watched.process.is_alive():
                del self._agents[number]
                self._bury(watched)

    def kill_agents(self) -> None:
        """End every agent process now; may be called from a signal handler."""
        for running in list(self._agents.values()):
            running.process.kill()

    def stop(self) -> list[str]:
        """Stop agents, trainers, predictors, in this order; returns the threads that are still busy.

        Called again when these have ended, it gives back the rest.
        """
        deadline = time.monotonic() + _STOP_SECONDS
        for running in self._agents.values():
            running.channel.hang_up()
        for threads in (self._trainers, self._predictors):
            self._resize(threads, 0)
            self._dismiss(deadline)
        for number, running in list(self._agents.items()):
            running.process.join(max(0.0, deadline - time.monotonic()))
            if running.process.is_alive():
                running.process.kill()
                running.process.join()
            del self._agents[number]
            running.process.close()
            running.channel.close()
        wake_end, self._wake_end = self._wake_end, None
        if wake_end is not None:
            os.close(wake_end)
            os.close(self._waker)
        busy = [thread.name for thread in self._leaving if thread.is_alive()]
        if not busy:  # else it may still use them
            for failed in self._leaving:
                failed.stop.close()
            self._leaving.clear()
            self.channels.clear()
            self.predictions.close()
            self.trainings.close()
        return busy

    @property
    def _playing(self) -> list[AgentProcess]:
        return [agent for agent in self._agents.values() if agent.leave_by is None and not agent.is_spare]

    @property
    def _spare(self) -> list[AgentProcess]:
        return [agent for agent in self._agents.values() if agent.is_spare]

    def _start_agent(self) -> AgentProcess:
        channel = AgentChannel(self.next_agent, self._layout, self.predictions, self.trainings)
        self.next_agent += 1
        self.channels[channel.agent] = channel
        try:
            started = self._agents[channel.agent] = AgentProcess(self._config, channel)
        except BaseException:
            del self.channels[channel.agent]
            channel.close()
            raise
        return started

    def _bury(self, dead: AgentProcess) -> None:
        """Replace a dead agent, unless it was asked to leave. What it handed over is still trained on:
        its slots live until the last of its tokens has been seen."""
        exitcode, report = dead.process.exitcode, dead.channel.report().strip()
        dead.process.close()
        dead.channel.close()
        self.trainings.put(Token(dead.channel.agent, LAST_SLOT))
        if dead.leave_by is None:
            replacement = self._replace(dead.channel, exitcode, report)
            if dead.is_spare:
                replacement.pause()

    def _replace(self, dead: AgentChannel, exitcode: int | None, report: str) -> AgentProcess:
        number, how = dead.agent, how_it_ended(exitcode)
        from_outside = exitcode == -signal.SIGKILL
        if not dead.has_asked and not from_outside:
            raise RunFailed(f"agent {number} {how} before its first action\n{report}".rstrip())
        if not (dead.has_asked and from_outside):
            now = time.monotonic()
            self._failures.append(now)
            while self._failures[0] < now - _FAILURE_WINDOW_SECONDS:
                self._failures.popleft()
            allowed = max(5, self.agents + 1)
            if len(self._failures) > allowed:
                raise RunFailed(
                    f"{len(self._failures)} agents failed within {_FAILURE_WINDOW_SECONDS:.0f} seconds; "
                    f"the last, agent {number}, {how}\n{report}".rstrip()
                )
        self._warn(f"agent {number} {how}; agent {self.next_agent} replaces it\n{report}".rstrip())
        return self._start_agent()

    def _add(self, threads: list[RoleThread], count: int, name: str, new_role: Callable[[], Role]) -> None:
        while len(threads) < count:
            threads.append(RoleThread(f"{name}-{self._threads_made}", new_role(), self.wake))
            self._threads_made += 1

    def _resize(self, threads: list[RoleThread], count: int) -> None:
        for thread in threads[count:]:
            thread.stop.set()
            self._leaving.append(thread)
        del threads[count:]

    def _dismiss(self, deadline: float) -> None:
        """Let go of threads that have ended after their Stop was set; wait for them until the deadline."""
        for thread in list(self._leaving):
            thread.join(max(0.0, deadline - time.monotonic()))
            if not thread.is_alive() and thread.failure is None:
                self._leaving.remove(thread)
                thread.stop.close()
