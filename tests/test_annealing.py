"""The annealing controller: its regression, its search on simulated machines, and the real thing."""

import random
import resource

import numpy as np
import pytest

from ga3c.annealing.controller import Controller, Trial, measure, most_agents, standing
from ga3c.annealing.regression import Measured, believe
from ga3c.annealing.search import Search
from ga3c.config import Counts, available_cores, load
from ga3c.csvlog import CsvLog, read_csv
from ga3c.metrics import Counted
from tests.conftest import wait_for
from tests.simulated_machine import FAR, KINDS, NEAR, Machine, qualities, search, walk

ENOUGH = 0.95


def measured(*rates, counts=(2, 1, 1)):
    return [Measured(counts, float(time), rate) for time, rate in enumerate(rates)]


def test_belief_is_that_of_a_gaussian_conditioned_on_the_measurements():
    """Against the textbook's conditional Gaussian, written out for two counts and one measurement each."""
    seen = [Measured((1, 1, 1), 0.0, 20.0), Measured((4, 1, 1), 1.0, 60.0)]
    asked = [(2, 1, 1), (8, 2, 1)]
    belief = believe(seen, asked)
    candidates = []
    y = np.log([20.0, 60.0]) - np.log([20.0, 60.0]).mean()
    places = np.array([[0, 0, 0], [2, 0, 0], [1, 0, 0], [3, 1, 0]], float)
    for noise in (0.03, 0.1, 0.3):
        joint = np.empty((4, 4))
        for i in range(4):
            for j in range(4):
                joint[i, j] = 16 * np.exp(-np.sum((places[i] - places[j]) ** 2) / (2 * 3.0**2))
        for i in range(2):
            for j in range(2):
                joint[i, j] += 4 + 0.15**2 * np.exp(-abs(i - j) / 25) + (noise**2 if i == j else 0)
        inverse = np.linalg.inv(joint[:2, :2])
        likelihood = -0.5 * y @ inverse @ y - 0.5 * np.log(np.linalg.det(joint[:2, :2]))
        mean = joint[2:, :2] @ inverse @ y
        candidates.append((likelihood, mean, joint[2:, 2:] - joint[2:, :2] @ inverse @ joint[:2, 2:]))
    _, mean, covariance = max(candidates, key=lambda candidate: candidate[0])
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(belief.covariance, covariance, rtol=1e-9, atol=1e-12)


def test_later_measurements_of_one_setting_count_for_more():
    drifted = [
        *measured(*[50.0] * 5),
        *(each._replace(time=each.time + 100) for each in measured(*[40.0] * 5)),
    ]
    other = [Measured((3, 1, 1), 105.0, 45.0)]
    mean = believe(drifted + other, [(2, 1, 1), (3, 1, 1)]).mean
    assert mean[1] > mean[0]


@pytest.mark.parametrize("kind", KINDS)
def test_search_finds_what_is_best_nearby(kind):
    ends, _ = qualities(search, kind, NEAR, seeds=12)
    assert np.mean(ends >= ENOUGH) >= 0.75
    assert np.median(ends) >= 0.97


def test_search_finds_a_hundred_agents_where_the_plain_walk_does_not():
    ends, _ = qualities(search, "peak", FAR, seeds=2)
    walked, _ = qualities(walk, "peak", FAR, seeds=2)
    assert ends.min() > 0.85
    assert walked.max() < 0.7


def test_proposals_change_one_count_by_one_step():
    machine = Machine("peak", NEAR, np.random.default_rng(0))
    searching = Search(Counts(30, 2, 2), NEAR.most, np.inf, np.random.default_rng(0))
    for _ in range(40):
        verdict = searching.learn(machine.measure(searching.next), 0.0)
        if verdict is None:
            continue
        changed = [(old, new) for old, new in zip(verdict.stood, verdict.tried, strict=True) if old != new]
        assert len(changed) == 1
        old, new = changed[0]
        assert abs(new - old) in (1, round(old / 10))
        assert all(1 <= count <= most for count, most in zip(verdict.tried, NEAR.most, strict=True))


def test_faster_setting_with_too_much_policy_lag_is_not_kept_nor_tried_again():
    most = Counts(8, 1, 1)
    searching = Search(Counts(1, 1, 1), most, 3.0, np.random.default_rng(0))
    refused = []
    for _ in range(60):
        agents = searching.next.agents
        verdict = searching.learn(10.0 * agents, lag=float(agents))
        if verdict and not verdict.kept and "policy lag" in verdict.reason:
            refused.append(verdict.tried)
    assert refused == [Counts(4, 1, 1)]
    assert searching.best() == searching.current == Counts(3, 1, 1)


def test_start_with_too_much_policy_lag_is_left_for_less_of_it():
    searching = Search(Counts(40, 1, 1), Counts(40, 1, 1), 10.0, np.random.default_rng(0))
    for _ in range(100):
        agents = searching.next.agents
        searching.learn(10.0 * agents, lag=agents / 2)
    assert 18 <= searching.best().agents <= 20
    assert searching.current.agents <= 20


def test_search_rests_longer_and_longer_when_nothing_helps():
    searching = Search(Counts(4, 1, 1), Counts(8, 1, 1), np.inf, np.random.default_rng(0))
    pauses, since = [], 0
    for _ in range(300):
        verdict = searching.learn({4: 50.0}.get(searching.next.agents, 10.0), 0.0)
        if verdict:
            assert not verdict.kept
            pauses.append(since)
            since = 0
        else:
            since += 1
    assert max(pauses[:10]) <= 2
    assert min(pauses[-5:]) >= 8


def test_search_rests_on_a_plateau_although_the_measurements_are_noisy():
    random_numbers = np.random.default_rng(0)
    searching = Search(Counts(4, 1, 1), Counts(8, 2, 2), np.inf, random_numbers)
    verdicts = sum(
        searching.learn(50 * np.exp(random_numbers.normal(0, 0.1)), 0.0) is not None for _ in range(400)
    )
    assert verdicts < 100


def test_a_setting_with_too_much_policy_lag_all_around_is_left_nevertheless():
    searching = Search(Counts(2, 1, 1), Counts(3, 1, 1), 1.0, np.random.default_rng(0))
    seen = set()
    for _ in range(40):
        seen.add(searching.next)
        searching.learn(10.0, lag=5.0)
    assert searching.best() is None
    assert seen == {Counts(1, 1, 1), Counts(2, 1, 1), Counts(3, 1, 1)}


def test_nowhere_to_go_is_no_error():
    searching = Search(Counts(1, 1, 1), Counts(1, 1, 1), np.inf, np.random.default_rng(0))
    assert [searching.learn(5.0, 0.0) for _ in range(3)] == [None] * 3
    assert searching.best() == Counts(1, 1, 1)


def test_measurement_is_rates_with_their_spread():
    steady = [
        Counted(time=t, actions=100 * t, updates=2 * t, experiences=160 * t, lag=6 * t) for t in range(9)
    ]
    outcome = measure(steady)
    assert outcome == (160.0, 2.0, 0.0, 100.0, 0.0, 3.0)
    uneven = measure([Counted(0.0), Counted(1.0, updates=2, lag=2.0), Counted(2.0, updates=6, lag=6.0)])
    assert (uneven.tps, uneven.lag) == (3.0, 1.0)
    assert uneven.tps_spread == pytest.approx(1.0)


def trial(kept):
    stands = (2, 1, 1) if kept else (1, 1, 1)
    return Trial(1.0, 4, 1, 1, 1, 2, 1, 1, *stands, 30.0, 1.0, 2400.0, 80.0, 0.5, int(kept), "+10 %, or so")


@pytest.mark.parametrize(("kept", "stands"), [(True, Counts(2, 1, 1)), (False, Counts(1, 1, 1))])
def test_annealing_csv_says_what_stands(tmp_path, kept, stands):
    log = CsvLog(tmp_path / "annealing.csv", Trial._fields)
    assert standing(read_csv(tmp_path / "annealing.csv")) is None
    log.write([trial(kept)])
    log.close()
    columns = read_csv(tmp_path / "annealing.csv")
    assert standing(columns) == stands
    assert columns["reason"].tolist() == ["+10 %; or so"]


class Supervised:
    is_settled = True


class Machinery:
    """In the place of a System: counts are set at once, and time passes when told to."""

    def __init__(self, speed):
        self.supervisor, self.metrics = Supervised(), self
        self.counts, self.spare, self.speed = Counts(1, 1, 1), 0, speed
        self.now, self.reading = 0.0, Counted(0.0)
        self.frames, self.totals = 0, self
        self.seconds = 0.0

    def set_counts(self, counts, spare_agents=0):
        self.counts, self.spare = counts, spare_agents

    def counted(self):
        return self.reading

    def pass_time(self, seconds):
        self.now += seconds
        updates = seconds * self.speed(self.counts)
        self.reading = self.reading.plus(
            time=seconds, updates=updates, actions=80 * updates, experiences=80 * updates, lag=updates
        )


@pytest.fixture
def control():
    def make(speed, **knobs):
        given = {f"annealing.{name}": str(value) for name, value in knobs.items()}
        machinery = Machinery(speed)
        return machinery, Controller(load(None, given), machinery, clock=lambda: machinery.now)

    return make


def test_what_happens_before_the_system_has_settled_is_not_measured(control):
    machinery, controller = control(
        lambda counts: 10.0, interval_seconds=6, settling_seconds=2, initial_wait_seconds=5
    )
    changes = []
    for _ in range(400):
        before = machinery.counts
        machinery.supervisor.is_settled = not 3.0 < machinery.now < 8.0
        controller.step()
        if machinery.counts != before:
            changes.append(machinery.now)
        machinery.pass_time(0.5)
    assert changes[0] == 8.0 + 5.0 + 4.0
    assert min(np.diff(changes)) == 6.5  # the step that sets the counts, then an interval


def test_interval_without_an_update_goes_on_until_there_is_one(control):
    slow = [0.0]
    machinery, controller = control(
        lambda counts: slow[0], interval_seconds=5, settling_seconds=1, initial_wait_seconds=0
    )
    for _ in range(100):
        assert controller.step() == []
        machinery.pass_time(0.5)
    assert machinery.counts == Counts(1, 1, 1)
    slow[0] = 1.0
    for _ in range(2):
        machinery.pass_time(0.5)
        controller.step()
    assert machinery.counts != Counts(1, 1, 1)


def test_limits_are_kept_and_a_start_beyond_them_too(control):
    machinery, controller = control(
        lambda counts: 10.0 * sum(counts),
        max_agents=3,
        max_predictors=2,
        max_trainers=1,
        interval_seconds=2,
        settling_seconds=1,
        max_policy_lag=100,
    )
    seen = set()
    for _ in range(1000):
        controller.step()
        seen.add(machinery.counts)
        machinery.pass_time(0.5)
    assert max(counts.agents for counts in seen) == 3
    assert max(counts.predictors for counts in seen) == 2
    assert max(counts.trainers for counts in seen) == 1
    assert controller.best == Counts(3, 2, 1)
    assert machinery.counts.agents + machinery.spare == 4, "no agent starts or ends for a trial"


def decided(machinery, controller, seconds):
    trials = []
    for _ in range(round(seconds / 0.5)):
        trials += controller.step()
        machinery.pass_time(0.5)
    return trials


def test_a_trial_is_recorded_with_its_own_numbers(control):
    def speed(counts):
        return 40.0 if counts == Counts(1, 1, 1) else 40.5

    machinery, controller = control(speed, interval_seconds=4, settling_seconds=1)
    trials = decided(machinery, controller, 400)
    first = [trial for trial in trials if trial[2:5] == (1, 1, 1)]
    assert first
    assert all(trial.tps == pytest.approx(40.5) for trial in first)


def test_a_trial_that_cannot_be_measured_is_taken_back_and_not_made_again(control):
    machinery, controller = control(lambda counts: 10.0, interval_seconds=4, settling_seconds=1)

    def pass_time(seconds):
        machinery.supervisor.is_settled = machinery.counts == Counts(1, 1, 1)
        Machinery.pass_time(machinery, seconds)

    machinery.pass_time = pass_time
    trials = decided(machinery, controller, 1000)
    assert {trial[5:8] for trial in trials} == {(2, 1, 1), (1, 2, 1), (1, 1, 2)}
    assert len(trials) == 3
    assert all("not measured within" in trial.reason and not trial.kept for trial in trials)
    assert machinery.counts == Counts(1, 1, 1)


def test_counts_that_the_machine_cannot_start_are_taken_back(control):
    machinery, controller = control(lambda counts: 10.0, interval_seconds=4, settling_seconds=1)
    set_counts = machinery.set_counts

    def fail(counts, spare_agents=0):
        if counts != Counts(1, 1, 1):
            raise OSError("Too many open files")
        set_counts(counts, spare_agents)

    machinery.set_counts = fail
    trials = decided(machinery, controller, 100)
    assert [trial.reason for trial in trials] == ["cannot be started: Too many open files"] * 3
    assert machinery.counts == controller.best == Counts(1, 1, 1)


def test_a_long_initial_wait_is_waited_for(control):
    machinery, controller = control(
        lambda counts: 10.0, interval_seconds=4, settling_seconds=1, initial_wait_seconds=600
    )
    assert decided(machinery, controller, 590) == []
    assert machinery.counts == Counts(1, 1, 1)
    assert controller.best is None
    assert decided(machinery, controller, 60)


def test_unlimited_file_descriptors_are_no_limit(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_agents() == 8 * available_cores()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (140, 140))
    assert most_agents() == 5


def test_nothing_is_best_before_anything_is_measured(control):
    _, controller = control(lambda counts: 10.0)
    assert controller.best is None


KNOBS = {
    "game": "CartPole-v1",
    "agents.environments": "2",
    "training.min_batch_size": "10",
    "precision": "float32",
}


@pytest.fixture
def system():
    """A real system over CartPole that trains, watched by whoever asks."""
    from ga3c import agent, environments
    from ga3c.model import Model
    from ga3c.system import System

    config = load(None, KNOBS)
    spec = environments.describe(config)
    agent.start_fork_server()
    made = System(config, spec, Model(spec, config), pytest.fail)
    try:
        yield made
    finally:
        assert made.supervisor.stop() == []


def settle(system):
    def settled():
        system.supervisor.watch(0.01)
        return system.supervisor.is_settled

    wait_for(settled, 30)


def test_agents_pause_and_play_on_without_a_new_process(system):
    system.set_counts(Counts(3, 1, 1), spare_agents=1)
    settle(system)
    pids = system.supervisor.agent_pids
    assert len(pids) == 4
    for agents in (1, 4, 2, 3):
        system.set_counts(Counts(agents, 1, 1), spare_agents=4 - agents)
        settle(system)
        assert (system.supervisor.agents, system.supervisor.agent_pids) == (agents, pids)
    system.set_counts(Counts(0, 1, 1), spare_agents=4)
    settle(system)
    wait_for(lambda: not len(system.supervisor.predictions))
    before = wait_for_stillness(system)
    system.set_counts(Counts(2, 1, 1), spare_agents=2)
    wait_for(lambda: system.metrics.totals.updates > before + 10)


def wait_for_stillness(system):
    """Updates, when no more come."""
    seen = [-1]

    def still():
        system.supervisor.watch(0.2)
        seen.append(system.metrics.totals.updates)
        return seen[-1] == seen[-2]

    wait_for(still, 30)
    return seen[-1]


def test_thousand_changes_leave_nothing_behind(system):
    import os
    import threading

    def possessions():
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(system.supervisor.agent_pids)

    chance = random.Random(1)
    system.set_counts(Counts(2, 1, 1), spare_agents=1)
    settle(system)
    before = possessions()
    for _ in range(1000):
        agents = chance.choice((1, 2, 2, 2, 3))
        counts = Counts(agents, chance.randint(1, 3), chance.randint(1, 3))
        system.set_counts(counts, spare_agents=min(1, 3 - agents) if chance.random() < 0.02 else 3 - agents)
        system.supervisor.watch(0)
        assert system.counts == counts
    system.set_counts(Counts(2, 1, 1), spare_agents=1)
    settle(system)
    updates = system.metrics.totals.updates
    wait_for(lambda: system.metrics.totals.updates > updates + 10)
    wait_for(lambda: possessions() == before)
    assert len(system.supervisor.channels) <= 8
