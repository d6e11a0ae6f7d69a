"""GroupTransferService: who waits until enough copies of the log's tail exist.

After store/ha/GroupTransferService.java; docs/protocols.md 1.5. Upstream keeps requests in two
lists that a thread swaps and looks at every 10 ms; here a request is looked at again whenever its
owner says that an acknowledgement has come (``notify``), in order of arrival: the same outcome.

Two ways to count, as upstream has them:
- ``ack_nums`` copies, the master's own among them: distinct slaves that acknowledged enough.
  Upstream counts connections, so that a slave with an old half-open connection beside its new one
  counts twice; here acknowledgements name their slave, and one slave counts once. How well a slave
  can be named is its owner's business (2.1 has no identity on the wire: see server.py).
- ``ALL_ACK_IN_SYNC_STATE_SET``: every member of the set at the moment of counting, the master
  left out. A member without a connection has acknowledged nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

ALL_ACK_IN_SYNC_STATE_SET = -1
NOTHING_ACKNOWLEDGED = -1


@dataclass(frozen=True, slots=True)
class Ack:
    """What a slave says to have. One slave may appear several times, once a connection."""

    slave: str
    offset: int  # the end of its log; NOTHING_ACKNOWLEDGED without a connection


Acks = Callable[[], Iterable[Ack]]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    next_offset: int
    ack_nums: int
    done: asyncio.Future[bool]


def none() -> Iterable[Ack]:
    return ()


class GroupTransferService:
    """One master's. ``connections`` lists the slaves that are connected; ``members`` lists the
    members of the SyncStateSet besides the master, with NOTHING_ACKNOWLEDGED where there is no
    connection.
    """

    def __init__(self, connections: Acks, *, members: Acks = none) -> None:
        self._connections = connections
        self._members = members
        self._requests: list[Request] = []

    def is_replicated(self, next_offset: int, ack_nums: int) -> bool:
        """Whether everything before ``next_offset`` has enough copies now."""
        if ack_nums == ALL_ACK_IN_SYNC_STATE_SET:
            return all(ack.offset >= next_offset for ack in self._members())
        if ack_nums <= 1:
            return True
        having = dict.fromkeys(
            ack.slave for ack in self._connections() if ack.offset >= next_offset
        )
        return 1 + len(having) >= ack_nums

    async def replicated(self, next_offset: int, *, ack_nums: int, timeout_ms: float) -> bool:
        """Wait for enough copies; False when time is up, or when the master is one no more."""
        if self.is_replicated(next_offset, ack_nums):
            return True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        request = Request(next_offset, ack_nums, done)
        self._requests.append(request)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError:
            return False
        finally:
            if request in self._requests:
                self._requests.remove(request)

    def notify(self) -> None:
        """An acknowledgement has come, a connection or the set has changed: count again."""
        waiting: list[Request] = []
        for request in self._requests:
            if self.is_replicated(request.next_offset, request.ack_nums):
                _answer(request, True)
            else:
                waiting.append(request)
        self._requests = waiting

    def give_up(self) -> None:
        """The role has changed: no producer that waits now is told that its message is
        replicated."""
        requests, self._requests = self._requests, []
        for request in requests:
            _answer(request, False)

    @property
    def waiting(self) -> int:
        return len(self._requests)


def _answer(request: Request, replicated: bool) -> None:
    if not request.done.done():
        request.done.set_result(replicated)
