"""The agent process: plays K environments, asks for predictions, hands over experiences.

Read after server.py. An agent has no model and imports no torch: before each action it puts a
request on the prediction queue and waits, and after t_max actions its slot goes on the training
queue (paper section 4.1). A slot is handed over when the first prediction of the next rollout has
arrived, because that prediction's value is the bootstrap of this one.
"""

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess

import numpy as np

from ga3c import environments
from ga3c.channels import AgentEnds, Message, Reply, ServerGone
from ga3c.config import Config
from ga3c.environments import Environments

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to save and end."""

_NICENESS = 3  # trainers go first, so that experiences do not grow old in the training queue
_START_ATTEMPTS = 20
_START_PAUSE_SECONDS = 0.05

_CONTEXT: ForkServerContext = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """Start the process from which agents are forked, if it does not run; first before torch is imported.

    Ctrl-C and its kind reach every process of a terminal or job, but only the server shall act on
    them: the fork server is started with them blocked, and its agents inherit that from their first
    instruction.
    """
    _CONTEXT.set_forkserver_preload([__name__])
    resource_tracker.ensure_running()  # it would unblock them if it were started inside
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def start(config: Config, ends: AgentEnds) -> ForkServerProcess:
    """Start one agent process with its ends of the channels.

    A fork server that somebody killed is started again. Raises RuntimeError when that does not help.
    """
    for _ in range(_START_ATTEMPTS):
        start_fork_server()
        process = _CONTEXT.Process(target=_run, args=(config, ends), name=f"agent-{ends.agent}", daemon=True)
        try:
            process.start()
        except (EOFError, ConnectionError):  # it is dying, and not yet known to be dead
            time.sleep(_START_PAUSE_SECONDS)
        else:
            return process
    raise RuntimeError(f"agent {ends.agent} cannot be started: the fork server ends again and again")


def _run(config: Config, ends: AgentEnds) -> None:
    faulthandler.enable()
    os.nice(_NICENESS)
    try:
        seed = np.random.SeedSequence(config.seed, spawn_key=(ends.agent,))
        games = environments.make(config, config.agents.environments, seed)
        _Player(config, ends, games).play()
    except ServerGone:
        os._exit(0)
    except BaseException:
        ends.report(traceback.format_exc())
        os._exit(1)


class _Player:
    def __init__(self, config: Config, ends: AgentEnds, games: Environments) -> None:
        self._ends, self._games = ends, games
        self._t_max = config.training.t_max
        self._slots = ends.open_slots()
        self._free = deque(range(config.agents.slots))
        self._leaving = self._paused = False

    def play(self) -> None:
        """Play until told to pause or leave; first hand over the rollout in hand, so that nothing is lost."""
        slots = self._slots
        observations = self._games.reset()
        score = np.zeros(len(observations))
        length = np.zeros(len(observations), np.int64)
        slot, previous = self._take_free_slot(), -1
        while True:
            for t in range(self._t_max):
                slots.observations[slot, t] = observations
                prediction = self._predict(slot, t)
                if t == 0 and previous >= 0:
                    slots.bootstrap[previous] = prediction.payload[2]
                    self._ends.submit(previous)
                    if self._paused:
                        self._wait_for_orders()
                        slots.observations[slot, self._t_max] = observations
                        prediction = self._predict(slot, self._t_max)  # by the model of today
                    if self._leaving:
                        return
                actions, slots.probabilities[slot, t], slots.values[slot, t] = prediction.payload
                slots.actions[slot, t] = actions
                slots.versions[slot, t] = prediction.version
                step = self._games.step(slots.actions[slot, t])
                _check_rewards(step.rewards)
                slots.rewards[slot, t] = step.rewards
                slots.terminated[slot, t] = step.terminated
                slots.truncated[slot, t] = step.truncated
                if step.truncated.any():
                    slots.observations[slot, self._t_max] = step.final_observations
                    values = self._predict(slot, self._t_max).payload[2]
                    slots.truncation_values[slot, t] = values
                score += step.rewards
                length += 1
                slots.scores[slot, t] = np.where(step.game_over, score, np.nan)
                slots.lengths[slot, t] = length
                score[step.game_over] = 0
                length[step.game_over] = 0
                observations = step.observations
            previous, slot = slot, self._take_free_slot()

    def _predict(self, slot: int, row: int) -> Message:
        self._ends.request(slot, row)
        while (message := self._ends.receive()).kind != Reply.PREDICTION:
            self._note(message)
        return message

    def _wait_for_orders(self) -> None:
        while self._paused and not self._leaving:
            self._note(self._ends.receive())

    def _take_free_slot(self) -> int:
        while not self._free:
            self._note(self._ends.receive())
        return self._free.popleft()

    def _note(self, message: Message) -> None:
        match message.kind:
            case Reply.SLOT_IS_FREE:
                self._free.append(message.slot)
            case Reply.PAUSE:
                self._paused = True
            case Reply.PLAY:
                self._paused = False
            case _:
                self._leaving = True


def _check_rewards(rewards: np.ndarray) -> None:
    if not np.isfinite(rewards).all():
        raise ValueError(f"the game gave a reward that is not a finite number: {rewards}")
