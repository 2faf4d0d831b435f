"""Roles that are busy, stuck or failing, with real threads and pipes and no agents."""

import select
import threading

import pytest

from ga3c.channels import LAST_SLOT, Stop, Token
from ga3c.config import load
from ga3c.environments import Spec
from ga3c.metrics import Metrics
from ga3c.packing import packing_for
from ga3c.slots import Layout
from ga3c.stopwatch import TRAINER_PHASES, Stopwatch
from ga3c.supervisor import RunFailed, Supervisor
from ga3c.trainer import Batch, Collector

SPEC = Spec((4,), "float32", 2, 1)
LAYOUT = Layout(SPEC, slots=2, t_max=5, environments=4)


def wait_for_stop(stop):
    poll = select.poll()
    poll.register(stop.fileno(), select.POLLIN)
    poll.poll()


@pytest.fixture
def supervise():
    made = []

    def make(predictor=wait_for_stop, trainer=wait_for_stop):
        made.append(Supervisor(load(None, {}), LAYOUT, 0, lambda: predictor, lambda: trainer, pytest.fail))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.stop()


def test_counts_are_what_was_asked_for_at_once(supervise):
    supervisor = supervise()
    for predictors, trainers in ((3, 2), (1, 4), (2, 1)):
        supervisor.set_predictors(predictors)
        supervisor.set_trainers(trainers)
        assert (supervisor.predictors, supervisor.trainers) == (predictors, trainers)
        supervisor.watch(0)


@pytest.mark.parametrize("role", ["predictor", "trainer"])
def test_failure_of_a_thread_is_raised_with_its_cause(supervise, role):
    def fail(_):
        raise ZeroDivisionError("half an experience")

    supervisor = supervise(**{role: fail})
    supervisor.set_predictors(1)
    supervisor.set_trainers(1)

    def watch():
        while True:
            supervisor.watch(10)

    with pytest.raises(RunFailed, match=rf"{role}-\d failed: ZeroDivisionError") as raised:
        watch()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_busy_trainer_delays_neither_a_smaller_number_nor_the_end(supervise):
    ended = threading.Event()
    supervisor = supervise(trainer=lambda stop: ended.wait())
    supervisor.set_trainers(2)
    supervisor.set_trainers(1)
    assert supervisor.trainers == 1
    assert supervisor.stop() == ["trainer-1", "trainer-0"]
    ended.set()
    assert supervisor.stop() == []


def test_trainer_that_waits_for_its_turn_to_collect_stops_too(supervise):
    supervisor = supervise()
    collector = Collector(
        supervisor.trainings, {}, Metrics(1), lambda: Batch(LAYOUT, packing_for(SPEC), 0, pinned=False)
    )
    results = []
    stops = [Stop(), Stop()]
    threads = [
        threading.Thread(target=lambda s=s: results.append(collector.collect(s, Stopwatch(TRAINER_PHASES))))
        for s in stops
    ]
    for thread in threads:
        thread.start()
    for stop, thread in zip(stops, threads, strict=True):
        stop.set()
        thread.join(10)
        stop.close()
    assert results == [None, None]


def test_tokens_of_an_agent_that_was_given_up_for_dead_are_passed_over(supervise):
    supervisor = supervise()
    channels = {3: None}
    collector = Collector(
        supervisor.trainings, channels, Metrics(1), lambda: Batch(LAYOUT, packing_for(SPEC), 0, pinned=False)
    )
    supervisor.trainings.put(Token(3, LAST_SLOT))
    supervisor.trainings.put(Token(3, 1))
    stop = Stop()
    thread = threading.Thread(target=collector.collect, args=(stop, Stopwatch(TRAINER_PHASES)))
    thread.start()
    while len(supervisor.trainings):
        thread.join(0.01)
        assert thread.is_alive()
    stop.set()
    thread.join(10)
    stop.close()
    assert channels == {}
    assert collector._filled == 0


def test_wake_after_the_end_does_nothing(supervise):
    supervisor = supervise()
    assert supervisor.stop() == []
    supervisor.wake()
