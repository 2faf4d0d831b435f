"""A real agent process, with the test in the place of the predictors and trainers."""

import contextlib

import numpy as np
import pytest

from ga3c import agent
from ga3c.channels import AgentChannel, Reply, Stop, TokenQueue
from ga3c.config import load
from ga3c.environments import describe
from ga3c.slots import Layout
from tests import games
from tests.conftest import wait_for

T_MAX, K, SLOTS = 5, 3, 2


@contextlib.contextmanager
def running(game, number=7):
    """An agent process that plays; yields its channel, both queues and the process."""
    knobs = {"game": game, "environment.frame_stack": "1", "agents.environments": str(K)}
    config = load(None, knobs | {"agents.slots": str(SLOTS), "training.t_max": str(T_MAX)})
    predictions, trainings = TokenQueue(), TokenQueue()
    channel = AgentChannel(number, Layout(describe(config), SLOTS, T_MAX, K), predictions, trainings)
    process = agent.start(config, channel.ends)
    channel.started()
    try:
        yield channel, predictions, trainings, process
    finally:
        channel.hang_up()
        process.join(10)
        process.close()
        channel.close()
        predictions.close()
        trainings.close()


class Answers:
    """Answers requests one by one, each unlike the others, and remembers what it said."""

    def __init__(self, channel, predictions):
        self.channel, self.predictions = channel, predictions
        self.said = {}
        self.count = 0
        self.stop = Stop()

    def answer(self):
        (token,) = self.predictions.take(1, self.stop)
        assert token.agent == self.channel.agent
        self.count += 1
        payload = np.stack(
            (np.arange(K) % 6, 0.1 + 0.01 * np.arange(K) + self.count, self.count * 10 + np.arange(K))
        ).astype(np.float32)
        self.said[token.slot, token.row] = (self.count, payload)
        self.channel.reply(Reply.PREDICTION, token.slot, self.count, payload)
        return token


def test_slot_holds_what_was_predicted_beside_what_was_played():
    with running("tests.games:Counting-v0") as (channel, predictions, trainings, _):
        answers = Answers(channel, predictions)
        first = last = answers.answer()
        while last.slot == first.slot:
            assert len(trainings) == 0, "handed over before the value that bootstraps it was predicted"
            last = answers.answer()
        wait_for(lambda: len(trainings) == 1)
        (handed,) = trainings.take(1, answers.stop)
        slots, slot = channel.slots, handed.slot
        assert slot == first.slot
        assert np.array_equal(slots.bootstrap[slot], answers.said[last.slot, 0][1][2])
        for row in range(T_MAX):
            version, (actions, probabilities, values) = answers.said[slot, row]
            assert slots.versions[slot, row] == version
            assert np.array_equal(slots.actions[slot, row], actions)
            assert np.array_equal(slots.probabilities[slot, row], probabilities)
            assert np.array_equal(slots.values[slot, row], values)
            frames = [games.decode(image) for image in slots.observations[slot, row]]
            assert slots.rewards[slot, row].tolist() == [games.reward(f.game, f.step) for f in frames]
        answers.stop.close()


def test_agent_plays_on_in_a_slot_that_is_free_again():
    with running("tests.games:Counting-v0") as (channel, predictions, _, _):
        answers = Answers(channel, predictions)
        first = last = answers.answer()
        while (last.slot, last.row) != (1 - first.slot, T_MAX - 1):
            last = answers.answer()
        channel.reply(Reply.SLOT_IS_FREE, first.slot)
        last = answers.answer()
        if last.row == T_MAX:  # the action before truncated a game, whose end is valued too
            last = answers.answer()
        assert (last.slot, last.row) == (first.slot, 0)
        answers.stop.close()


def test_agent_leaves_when_the_server_hangs_up():
    with running("tests.games:Counting-v0") as (channel, predictions, _, process):
        wait_for(lambda: len(predictions) == 1)
        channel.hang_up()
        process.join(10)
        assert process.exitcode == 0


@pytest.mark.parametrize(
    ("game", "said"),
    [("Raising-v0", "ValueError: boom"), ("EndOfFile-v0", "EOFError: the simulator is gone")],
)
def test_error_of_a_game_is_reported_with_its_place(game, said):
    with running(f"tests.games:{game}") as (channel, predictions, _, process):
        answers = Answers(channel, predictions)
        while process.is_alive():
            if len(predictions):
                token = answers.answer()
                if token.row == 0:
                    channel.reply(Reply.SLOT_IS_FREE, 1 - token.slot)
        assert process.exitcode == 1
        report = channel.report()
        assert said in report
        assert "games.py" in report
        answers.stop.close()
