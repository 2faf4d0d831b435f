"""From an agent's game to a trainer's batch: nothing lost, doubled, torn or mixed.

Counting-v0 writes into every frame whose it is; the network here never changes, so that the values
that came back can be checked against it too.
"""

import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

import ga3c.system
from ga3c import agent, checkpoint, environments, runs
from ga3c.channels import LAST_SLOT
from ga3c.config import load
from ga3c.console import Goals, Status
from ga3c.csvlog import read_csv
from ga3c.model import Model
from ga3c.server import Server
from ga3c.stopwatch import TRAINER_PHASES, Stopwatch
from tests import games

KNOBS = {
    "game": "tests.games:Counting-v0",
    "environment.frame_stack": "1",
    "precision": "float32",
    "agents.environments": "4",
    "training.t_max": "5",
    "training.reward_clip": "0",
    "run.metrics_seconds": "0.5",
    "annealing.enabled": "false",
}


def unpack(packed):
    count, rows, columns, channels, block, _ = packed.shape
    images = packed.permute(0, 3, 1, 4, 2, 5).reshape(count, channels, rows * block, columns * block)
    return (images.numpy() ^ -128).view(np.uint8)


class Audit:
    """Takes the place of the trainers: checks each batch, and remembers every experience in it."""

    def __init__(self, network):
        self.network = network
        self.experiences = defaultdict(list)
        self.rollouts = 0
        self.ended = Counter()
        self._lock = threading.Lock()

    def trainer(self, model, collector, *_):
        def audit(stop):
            while (batch := collector.collect(stop, Stopwatch(TRAINER_PHASES))) is not None:
                shape = batch.arrays["rewards"].shape
                images = unpack(batch.observations)
                arrays = batch.arrays | {"observations": images.reshape(*shape, *images.shape[1:])}
                with self._lock:
                    for rollout in range(batch.rollouts):
                        self.rollouts += 1
                        for environment in range(shape[2]):
                            self._check({name: a[rollout] for name, a in arrays.items()}, environment)
                collector.give_back(batch)

        return audit

    def _check(self, rollout, k):
        frames = [games.decode(observation) for observation in rollout["observations"][:, k]]
        for t, frame in enumerate(frames):
            assert frame.environment == frames[0].environment, "two environments in one"
            self.experiences[frame.environment].append((frame.game, frame.step))
            assert rollout["rewards"][t, k] == games.reward(frame.game, frame.step)
            ending = games.ending(frame.environment, frame.game, frame.step)
            assert (rollout["terminated"][t, k], rollout["truncated"][t, k]) == ending
            following = games.Frame(
                frame.environment, frame.game, frame.step + 1, int(rollout["actions"][t, k])
            )
            if any(ending):
                self.ended[frame.environment, frame.game] += 1
            if ending.truncated:
                assert rollout["truncation_values"][t, k] == pytest.approx(self._value(following), abs=1e-5)
            if any(ending):
                following = games.Frame(frame.environment, frame.game + 1, 0, None)
            if t + 1 < len(frames):
                assert frames[t + 1] == following
            else:
                assert rollout["bootstrap"][k] == pytest.approx(self._value(following), abs=1e-5)

    def _value(self, frame):
        with torch.inference_mode():
            return self.network(self.network.packing.pack(games.encode(frame)[None, None]))[1].item()

    def assert_whole(self):
        """Each environment's experiences follow one another from its first to its last, each once."""
        assert self.experiences
        for environment, seen in self.experiences.items():
            expected, game, step = [], 0, 0
            for _ in seen:
                expected.append((game, step))
                step += 1
                if step == games.length(environment, game):
                    game, step = game + 1, 0
            assert sorted(seen) == expected


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """Run a server over Counting-v0, with ``meddle(supervisor)`` called a few times a second.

    Every token that comes out of a queue is counted: each rollout handed over must be audited, and
    those that left by themselves must have handed over all that they played.
    """

    def run(meddle, **knobs):
        given = {key.replace("__", "."): str(value) for key, value in knobs.items()}
        directory = {"run.directory": str(tmp_path / "run")}
        config = load(None, KNOBS | directory | given)
        spec = environments.describe(config)
        agent.start_fork_server()
        model = Model(spec, config)
        audit = Audit(model.network)
        monkeypatch.setattr(ga3c.system, "Trainer", audit.trainer)
        header = checkpoint.header_for(config, spec, frames=0)
        with runs.create(config) as run_directory, Status("audit", Goals(config.run.frames)) as console:
            server = Server(config, spec, model, header, run_directory, console)
            submitted, requests, ended = count_tokens(server.supervisor)
            watch = server.supervisor.watch

            def watch_and_meddle(seconds):
                watch(min(seconds, 0.05))
                meddle(server.supervisor)

            monkeypatch.setattr(server.supervisor, "watch", watch_and_meddle)
            assert server.run() == 0
        audit.assert_whole()
        assert audit.rollouts + server.system.collector._filled == submitted.total()
        audit.submitted, audit.requests, audit.ended_agents = submitted, requests, ended
        return audit, read_csv(tmp_path / "run" / "games.csv")

    return run


def count_tokens(supervisor):
    """Count, by agent: rollouts handed over, predictions asked for, and ends, as the server sees them."""
    submitted, requests, ended = Counter(), Counter(), Counter()

    def count(queue, counter_of):
        take = queue.take

        def counting_take(most, stop):
            tokens = take(most, stop)
            for token in tokens:
                counter_of(token)[token.agent] += 1
            return tokens

        queue.take = counting_take

    count(supervisor.trainings, lambda token: ended if token.slot == LAST_SLOT else submitted)
    count(supervisor.predictions, lambda token: requests if token.row < 5 else Counter())
    return submitted, requests, ended


@pytest.mark.parametrize(("predictors", "trainers", "min_batch_size"), [(1, 1, 1), (2, 1, 60), (2, 2, 50)])
def test_every_experience_arrives_once_whole_and_in_its_place(audited, predictors, trainers, min_batch_size):
    audit, log = audited(
        lambda supervisor: None,
        agents__count=3,
        predictors__count=predictors,
        trainers__count=trainers,
        training__min_batch_size=min_batch_size,
        run__frames=20_000,
    )
    assert len(audit.experiences) == 12
    assert sum(map(len, audit.experiences.values())) > 15_000
    expected = Counter()
    for environment, game in audit.ended:
        steps = games.length(environment, game)
        expected[sum(games.reward(game, step) for step in range(steps)), steps] += 1
    logged = Counter(zip(log["score"], log["length"], strict=True))
    assert expected <= logged
    assert (logged - expected).total() < max(min_batch_size, 1), "more than a batch in the making can explain"


def test_agents_killed_at_random_lose_only_the_rollouts_in_their_hands(audited):
    chance = random.Random(1)
    killed = []

    def kill_one(supervisor):
        alive = [c.agent for c in list(supervisor.channels.values()) if c.is_open and c.has_asked]
        if len(alive) == 4:
            victim = chance.choice(alive)
            os.kill(supervisor._agents[victim].process.pid, signal.SIGKILL)
            killed.append(victim)

    audit, _ = audited(
        kill_one,
        agents__count=4,
        predictors__count=2,
        trainers__count=2,
        training__min_batch_size=60,
        run__frames=40_000,
    )
    assert len(killed) >= 10
    for agent_number in set(killed) & set(audit.ended_agents):
        assert audit.submitted[agent_number] >= (audit.requests[agent_number] - 1) // 5 - 1
    assert len(audit.experiences) > 40


def test_counts_change_while_training_goes_on_and_nothing_is_lost(audited):
    chance = random.Random(2)
    changes = []

    def change(supervisor):
        changes.append(len(supervisor.channels))
        supervisor.set_agents(chance.randint(1, 6))
        supervisor.set_spare_agents(chance.randint(0, 2))
        supervisor.set_predictors(chance.randint(1, 3))
        supervisor.set_trainers(chance.randint(1, 3))

    audit, _ = audited(
        change, agents__count=2, training__min_batch_size=40, run__frames=60_000, agents__slots=2
    )
    assert len(changes) > 20
    rollouts = [len(seen) for seen in audit.experiences.values()]
    assert all(length % 5 == 0 for length in rollouts)
    assert len(rollouts) > 24


def test_an_agent_that_is_asked_to_leave_hands_over_its_rollout_and_goes(audited):
    asked, gone = [], []

    def leave(supervisor):
        is_open = [channel for channel in list(supervisor.channels.values()) if channel.is_open]
        if not asked and len(is_open) == 3 and all(channel.has_asked for channel in is_open):
            supervisor.set_agents(1)
            supervisor.set_spare_agents(0)
            asked.append(time.monotonic())
        if asked and not gone and len(is_open) == 1:
            gone.append(time.monotonic())

    audit, _ = audited(leave, agents__count=3, run__frames=20_000)
    for agent_number in (1, 2):
        assert audit.requests[agent_number] == 5 * audit.submitted[agent_number] + 1
    assert gone[0] - asked[0] < 5.0, "it had to be killed"


def test_an_agent_that_pauses_hands_over_its_rollout_and_plays_the_same_games_on(audited):
    counts = []

    def alternate(supervisor):
        if all(channel.has_asked for channel in list(supervisor.channels.values())):
            counts.append(3 if len(counts) % 2 else 1)
            supervisor.set_agents(counts[-1])

    audit, _ = audited(alternate, agents__count=3, run__frames=20_000)
    assert len(counts) > 10
    assert len(audit.experiences) == 12, "the same three agents"
    for agent_number in range(3):
        played = 5 * audit.submitted[agent_number]
        in_hand = 5 * 4  # a rollout, and the agent's slots on the training queue
        assert played <= audit.requests[agent_number] <= played + in_hand, "an action is asked for once"


def test_64_agents_take_part(audited):
    audit, _ = audited(
        lambda supervisor: None,
        agents__count=64,
        agents__environments=1,
        training__min_batch_size=64,
        run__frames=64 * 100,
    )
    assert len(audit.experiences) == 64


def test_experiences_of_equal_seeds_are_equal_and_of_other_seeds_are_not():
    config = load(None, KNOBS)
    first, again, other = (
        environments.make(config, 8, np.random.SeedSequence(1, spawn_key=(number,))).reset()
        for number in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert len({observation.tobytes() for observation in (*first, *other)}) == 16
