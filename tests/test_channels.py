"""Tokens, replies and slots: whole, once, and over when the other side is gone."""

import errno
import os
import random
import resource
import select
import signal
import threading
from collections import Counter

import numpy as np
import pytest

from ga3c.channels import AgentChannel, Reply, ServerGone, Stop, Token, TokenQueue
from ga3c.environments import Spec
from ga3c.slots import Layout, allocate
from tests.conftest import wait_for

LAYOUT = Layout(Spec((3,), "float32", 2, 1), slots=2, t_max=5, environments=4)


@pytest.fixture
def queue():
    queue = TokenQueue()
    yield queue
    queue.close()


@pytest.fixture
def stop():
    stop = Stop()
    yield stop
    stop.close()


@pytest.fixture
def channel(queue):
    channel = AgentChannel(7, LAYOUT, queue, queue)
    yield channel
    channel.close()
    del channel.slots  # pytest keeps the channel longer than the check for leftovers allows


def test_take_gives_all_that_wait_up_to_the_most_in_their_order(queue, stop):
    for row in range(5):
        queue.put(Token(1, 2, row))
    assert len(queue) == 5
    assert queue.take(3, stop) == [Token(1, 2, 0), Token(1, 2, 1), Token(1, 2, 2)]
    assert queue.take(100, stop) == [Token(1, 2, 3), Token(1, 2, 4)]
    assert len(queue) == 0


def test_stop_ends_a_wait_and_leaves_the_tokens(queue, stop):
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(queue.take(1, stop)))
    waiting.start()
    stop.set()
    waiting.join(10)
    assert taken == [[]]
    queue.put(Token(1, 0))
    assert queue.take(1, stop) == []
    assert len(queue) == 1


def test_every_token_reaches_one_reader_whole_while_writers_are_killed(queue, stop):
    """Forked writers, several readers, random SIGKILL: no token torn, none twice, none of the living lost."""
    chance = random.Random(0)
    seen, lock = Counter(), threading.Lock()

    def read():
        while tokens := queue.take(64, stop):
            with lock:
                seen.update(tokens)

    def fork_writer(number, tokens):
        pid = os.fork()
        if pid == 0:
            try:
                for count in range(tokens):
                    queue.put(Token(number, count & 0xFFFF, count >> 16))
            finally:
                os._exit(0)
        return pid

    # Forked before the readers' threads exist; a fork beside threads may deadlock.
    living = {number: fork_writer(number, 20_000) for number in range(4)}
    doomed = {number: fork_writer(number, 2**30) for number in range(4, 12)}
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        while doomed:
            number = chance.choice(list(doomed))
            wait_for(lambda number=number: any(token.agent == number for token in list(seen)), 60)
            pid = doomed.pop(number)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for pid in living.values():
            os.waitpid(pid, 0)
        wait_for(lambda: len(queue) == 0, 60)
    finally:
        for pid in doomed.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        stop.set()
        for reader in readers:
            reader.join()
    assert set(seen.values()) == {1}
    by_writer = Counter(token.agent for token in seen)
    assert set(by_writer) == set(range(12)), "a token of nobody is a torn one"
    assert [by_writer[number] for number in range(4)] == [20_000] * 4
    for number in range(4, 12):
        counts = sorted(token.row << 16 | token.slot for token in seen if token.agent == number)
        assert counts == list(range(len(counts))), "what a killed writer wrote arrived without a gap"


def test_reply_arrives_as_it_was_sent(channel):
    payload = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    channel.reply(Reply.PREDICTION, slot=1, version=2**40, payload=payload)
    channel.reply(Reply.SLOT_IS_FREE, slot=1)
    message = channel.ends.receive()
    assert (message.kind, message.slot, message.version) == (Reply.PREDICTION, 1, 2**40)
    assert np.array_equal(message.payload, payload)
    assert channel.ends.receive().kind == Reply.SLOT_IS_FREE


def test_largest_reply_is_written_in_one_piece():
    largest = Layout(Spec((3,), "float32", 2, 1), slots=2, t_max=5, environments=256)
    assert 16 + 3 * 4 * largest.environments <= select.PIPE_BUF


def test_agent_that_waits_hears_that_the_server_hung_up(channel):
    channel.hang_up()
    with pytest.raises(ServerGone):
        channel.ends.receive()


def test_agent_that_plays_hears_that_the_server_is_gone():
    queue = TokenQueue()
    channel = AgentChannel(7, LAYOUT, queue, queue)
    try:
        os.close(queue._reader)
        with pytest.raises(ServerGone):
            channel.ends.request(0, 0)
    finally:
        os.close(queue.writer)
        channel.close()


def test_reply_to_an_agent_that_is_gone_is_dropped(channel):
    channel.started()
    channel.reply(Reply.LEAVE)
    assert not channel.is_open
    channel.reply(Reply.LEAVE)


def test_report_of_a_failure_keeps_its_end(channel):
    assert channel.report() == ""
    channel.ends.report("x" * 10_000 + "ValueError: boom")
    report = channel.report()
    assert len(report) == select.PIPE_BUF
    assert report.endswith("ValueError: boom")


def test_what_the_agent_writes_is_what_the_server_reads(channel):
    agent_side = channel.ends.open_slots()
    agent_side.observations[1, 5] = 3.5
    agent_side.rewards[0, 4, 3] = -2.0
    assert channel.slots.observations[1, 5].tolist() == [[3.5] * 3] * 4
    assert channel.slots.rewards.sum() == -2.0


def test_arrays_of_a_slot_do_not_overlap(channel):
    slots = channel.slots
    names = list(LAYOUT.places)
    for number, name in enumerate(names):
        getattr(slots, name)[...] = number % 2 if name in ("terminated", "truncated") else number
    for number, name in enumerate(names):
        expected = number % 2 if name in ("terminated", "truncated") else number
        assert (getattr(slots, name) == expected).all(), name


def test_too_little_memory_is_an_error_at_once_that_says_what_to_lower():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(MemoryError, match=r"MiB of shared memory .* lower agents\.count"):
            allocate(2**20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_other_failures_of_allocation_keep_their_own_error(monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(PermissionError):
        allocate(1)


def test_memory_without_a_name_serves_where_memfd_is_missing(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delattr(os, "posix_fallocate")
    descriptor = allocate(5000)
    try:
        assert os.fstat(descriptor).st_size == 5000
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)
