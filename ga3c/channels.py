"""All that crosses a process: tokens on pipes, replies, and the experience slots of slots.py.

    agent process                                            server process
    ┌────────────┐  token (agent, slot, row)  ┌──────────────────┐
    │            │ ──── prediction queue ───▶ │ predictors       │
    │  writes    │ ◀─── reply pipe ────────── │                  │
    │  its slots │  token (agent, slot)       │                  │
    │            │ ──── training queue ─────▶ │ trainers         │
    │            │ ◀─── reply: slot is free ─ │                  │
    └────────────┘                            └──────────────────┘

Slots have one writer, their agent; the server reads a part of them only after the token that names
it. A token is one write of at most PIPE_BUF bytes, which the kernel makes atomic: an agent killed at
any instruction leaves no lock held and no message torn. Every agent process has a number that is
never used again, so nothing meant for a dead agent reaches its successor. A closed pipe is the end
of whoever held its other end: agents that read it leave. Nothing in this file imports torch.
"""

import enum
import fcntl
import mmap
import os
import select
import struct
import termios
import threading
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from ga3c.slots import Layout, Slots, allocate

_TOKEN = struct.Struct("<IHH")
_REPLY = struct.Struct("<BxHHxxq")


class ServerGone(Exception):
    """The server has ended, or has hung up on this agent."""


class Token(NamedTuple):
    """``row`` t of ``slot`` of ``agent``; a training token means the whole slot."""

    agent: int
    slot: int
    row: int = 0


LAST_SLOT = 0xFFFF
"""The slot of the token that follows all of a dead agent's tokens on the training queue."""


class Stop:
    """Ends the waits of one thread, from any thread, at once and for good."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._is_set = False

    def set(self) -> None:
        with self._lock:
            if not self._is_set:
                self._is_set = True
                os.close(self._writer)

    def is_set(self) -> bool:
        return self._is_set

    def fileno(self) -> int:
        """Readable once it is set."""
        return self._reader

    def close(self) -> None:
        """Give the descriptors back; the thread must have ended."""
        self.set()
        os.close(self._reader)


class TokenQueue:
    """A pipe of tokens with many writers (processes) and many readers (threads of the server)."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def put(self, token: Token) -> None:
        os.write(self.writer, _TOKEN.pack(*token))

    def take(self, most: int, stop: Stop) -> list[Token]:
        """Wait for a token, then take all that are there, up to ``most``. Empty once stopped."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(stop.fileno(), select.POLLIN)
        while not stop.is_set():
            poll.poll()
            try:
                data = os.read(self._reader, _TOKEN.size * most)
            except BlockingIOError:
                continue
            return [Token(*fields) for fields in _TOKEN.iter_unpack(data)]
        return []

    def __len__(self) -> int:
        return _waiting(self._reader) // _TOKEN.size

    def close(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            os.close(self.writer)
            self._reader = -1


class Reply(enum.IntEnum):
    PREDICTION = 1
    SLOT_IS_FREE = 2
    LEAVE = 3
    PAUSE = 4
    PLAY = 5


class Message(NamedTuple):
    """One reply. ``payload`` is float32 [3, environments]: actions, their probabilities, values."""

    kind: Reply
    slot: int
    version: int
    payload: np.ndarray


class AgentEnds:
    """An agent's ends of its channels; pickled once, to the process that it is for."""

    def __init__(self, agent: int, layout: Layout, descriptors: dict[str, int]) -> None:
        self.agent, self._layout = agent, layout
        self._descriptors = descriptors

    def __getstate__(self) -> dict[str, Any]:
        sent = {name: reduction.DupFd(number) for name, number in self._descriptors.items()}
        return {"agent": self.agent, "_layout": self._layout, "_descriptors": sent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._descriptors = {name: sent.detach() for name, sent in state["_descriptors"].items()}

    def open_slots(self) -> Slots:
        return Slots(mmap.mmap(self._descriptors["memory"], self._layout.size), self._layout)

    def request(self, slot: int, row: int) -> None:
        """Ask for a prediction on a row of observations. Raises ServerGone."""
        self._put("predictions", Token(self.agent, slot, row))

    def submit(self, slot: int) -> None:
        """Hand a whole slot to the trainers. Raises ServerGone."""
        self._put("trainings", Token(self.agent, slot))

    def receive(self) -> Message:
        """Wait for the next reply. Raises ServerGone."""
        data = os.read(self._descriptors["replies"], _reply_size(self._layout))
        if not data:
            raise ServerGone
        kind, slot, _, version = _REPLY.unpack_from(data)
        payload = np.frombuffer(data, np.float32, offset=_REPLY.size).reshape(3, -1)
        return Message(Reply(kind), slot, version, payload)

    def _put(self, queue: str, token: Token) -> None:
        try:
            os.write(self._descriptors[queue], _TOKEN.pack(*token))
        except BrokenPipeError:
            raise ServerGone from None

    def report(self, text: str) -> None:
        """Leave the reason of a failure for the supervisor, at most one page of it, never waiting."""
        os.set_blocking(self._descriptors["reports"], False)
        os.write(self._descriptors["reports"], text.encode()[-select.PIPE_BUF :])


class AgentChannel:
    """The server's ends of one agent's channels."""

    def __init__(self, agent: int, layout: Layout, predictions: TokenQueue, trainings: TokenQueue) -> None:
        self.agent, self.layout = agent, layout
        self.is_open = True
        self.has_asked = False
        self._lock = threading.Lock()
        memory = allocate(layout.size)
        self.slots = Slots(mmap.mmap(memory, layout.size), layout)
        replies, self._replies = os.pipe()
        self._reports, reports = os.pipe()
        os.set_blocking(self._reports, False)
        self._given = [memory, replies, reports]
        self.ends = AgentEnds(
            agent,
            layout,
            {
                "memory": memory,
                "predictions": predictions.writer,
                "trainings": trainings.writer,
                "replies": replies,
                "reports": reports,
            },
        )

    def started(self) -> None:
        """The agent has its ends: close the server's copies, so that end-of-file means what it says."""
        for descriptor in self._given:
            os.close(descriptor)
        self._given = []

    def reply(self, kind: Reply, slot: int = 0, version: int = 0, payload: np.ndarray | None = None) -> None:
        """Send one reply; an agent that is gone misses it."""
        if payload is None:
            payload = np.zeros((3, self.layout.environments), np.float32)
        data = _REPLY.pack(kind, slot, 0, version) + payload.tobytes()
        with self._lock:
            if self.is_open:
                try:
                    os.write(self._replies, data)
                except BrokenPipeError:
                    self.is_open = False

    def unread(self) -> int:
        """Replies that the agent has not read yet."""
        with self._lock:
            return _waiting(self._replies) // _reply_size(self.layout) if self.is_open else 0

    def report(self) -> str:
        """What the agent left as the reason of its failure; empty when there is none."""
        try:
            return os.read(self._reports, select.PIPE_BUF).decode(errors="replace")
        except BlockingIOError:
            return ""

    def hang_up(self) -> None:
        """Close the reply pipe: the agent leaves as soon as it waits for anything."""
        with self._lock:
            self.is_open = False
            if self._replies >= 0:
                os.close(self._replies)
                self._replies = -1

    def close(self) -> None:
        """Give every descriptor back; the slots live as long as somebody reads them."""
        self.hang_up()
        self.started()
        os.close(self._reports)


def _waiting(pipe: int) -> int:
    """Bytes in a pipe."""
    waiting = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return int.from_bytes(waiting, "little")


def _reply_size(layout: Layout) -> int:
    return _REPLY.size + 3 * 4 * layout.environments
