"""One agent as the server sees it: its process, its channel, and the orders it can be given."""

import signal
import time
from multiprocessing.context import ForkServerProcess

from ga3c import agent
from ga3c.channels import AgentChannel, Reply
from ga3c.config import Config

_LEAVE_SECONDS = 5.0
_UNREAD_ORDERS = 10


class AgentProcess:
    """One agent process and the server's ends of its channels."""

    def __init__(self, config: Config, channel: AgentChannel) -> None:
        self.channel = channel
        self.process: ForkServerProcess = agent.start(config, channel.ends)
        channel.started()
        self.is_spare = False
        self.leave_by: float | None = None

    def play(self) -> None:
        self.is_spare = False
        self._order(Reply.PLAY)

    def pause(self) -> None:
        """Wait, after the rollout it is playing, until it is told to play or to leave."""
        self.is_spare = True
        self._order(Reply.PAUSE)

    def leave(self) -> None:
        """End after the rollout it is playing."""
        self.is_spare = False
        self.leave_by = time.monotonic() + _LEAVE_SECONDS
        self._order(Reply.LEAVE)

    def _order(self, order: Reply) -> None:
        """Orders pile up before an agent that hangs: kill it rather than wait until its pipe has room."""
        if self.channel.unread() > self.channel.layout.slots + _UNREAD_ORDERS:
            self.process.kill()
        else:
            self.channel.reply(order)


def how_it_ended(exitcode: int | None) -> str:
    """An exit code of a process, in words."""
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was killed by {name}{hint}"
    if exitcode == 1:
        return "raised an error"
    return f"ended with exit code {exitcode}"
