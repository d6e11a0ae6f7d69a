"""Partitions that clients send to and poll from: what does that, and the generators that draw it.

After jepsen.tests.kafka. A partition is a log, named by a whole number, its key. A transaction is a
sequence of micro-operations, ``("send", key, value)`` and ``("poll",)``; no value is sent twice. A
client polls the keys that it was assigned, each on from where its last poll ended; another
assignment replaces the one before, and a client that crashed comes back as another process, with
none. What was sent and polled stands in the history as the ``value`` of ``extra``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_float, stream_key

SEND, POLL, TXN, ASSIGN, CRASH = "send", "poll", "txn", "assign", "crash"
EMPTY = "empty"  # why a poll failed that was to tell when there is nothing more
ANY = -1  # the process that asks next
RETRY_PAUSE_NS = 200_000_000
ASSIGN_SHARE = 1 / 32

Mop = tuple[object, ...]  # ("send", key, value), ("poll",)
Pairs = Sequence[tuple[int, int]]  # offset and value


class Partitioned(Protocol):
    """A client of one node that sends to partitions and polls them; not open yet when made."""

    async def open(self) -> None: ...

    async def transact(
        self, mops: Sequence[Mop], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Pairs]]:
        """Do all of it at once. ``places``: of each key that is polled, the offset from which on.

        Returns for each send its offset and value, for each poll the messages of each key, in
        order; a second poll goes on behind the first. Raises Definite if nothing of it was done,
        Unreachable if nothing was asked, Indefinite if it may have been done, and may yet be.
        """
        ...

    async def close(self) -> None: ...


class MakePartitioned(Protocol):
    """A Partitioned of the node that listens there."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Partitioned: ...


def mops_of(invocation: Invocation) -> tuple[Mop, ...]:
    assert invocation.extra is not None
    return tuple(invocation.extra["value"])


def f_of(mops: Sequence[Mop]) -> str:
    kinds = {mop[0] for mop in mops}
    return TXN if len(kinds) > 1 else str(*kinds)


def _assign(keys: Sequence[int]) -> Invocation:
    return Invocation(f=ASSIGN, extra={"value": list(keys)})


class PartitionMix(msgspec.Struct, frozen=True):
    """Sends, polls and transactions for ever, as the seed draws them; a process that has no keys
    is assigned some first. ``assigned``: the processes that have keys."""

    keys: int
    longest: int
    send_share: float
    crash_share: float
    stream: int
    count: int = 0
    values: int = 0
    assigned: frozenset[int] = frozenset()

    def next(self, context: Context) -> tuple[Answer, Generator]:
        draws = stream_key(self.stream, self.count)
        successor = msgspec.structs.replace(self, count=self.count + 1)
        drawn = draw_float(draws, 0)
        if drawn < self.crash_share:
            return Scheduled(context.now_ns, Invocation(f=CRASH)), successor
        if context.process not in self.assigned or drawn < self.crash_share + ASSIGN_SHARE:
            return Scheduled(context.now_ns, _assign(self._some_keys(draws))), successor
        length = 1 + draw_below(draws, 1, self.longest)
        mops: list[Mop] = []
        values = self.values
        for at in range(length):
            if draw_float(draws, 2 + 2 * at) < self.send_share:
                values += 1
                mops.append((SEND, draw_below(draws, 3 + 2 * at, self.keys), values))
            else:
                mops.append((POLL,))
        successor = msgspec.structs.replace(successor, values=values)
        return Scheduled(context.now_ns, Invocation(f=f_of(mops), extra={"value": mops})), successor

    def _some_keys(self, draws: int) -> list[int]:
        """Each with even chance, and one at least."""
        chosen = 1 + draw_below(draws, 1, (1 << self.keys) - 1)
        return [key for key in range(self.keys) if chosen >> key & 1]

    def update(self, event: Completed) -> Generator:
        if event.kind == "info":
            return msgspec.structs.replace(self, assigned=self.assigned - {event.process})
        if event.invocation.f == ASSIGN and event.kind == "ok":
            return msgspec.structs.replace(self, assigned=self.assigned | {event.process})
        return self


class PollAll(msgspec.Struct, frozen=True):
    """At every node a process crashes, and then each key is polled, until there is no more.

    ``stages``: by node, which process does it, and what comes next: crash, assign, poll, done.
    """

    keys: int
    nodes: tuple[str, ...]
    stages: Mapping[str, tuple[int, str]] = {}
    free_ns: Mapping[str, int] = {}  # a node that refused is left alone until then

    def next(self, context: Context) -> tuple[Answer, Generator]:
        node = context.node
        if node not in self.nodes:
            return None, self
        owner, stage = self.stages.get(node, (ANY, CRASH))
        if stage == "done":
            return (Pending(), self) if context.in_flight else (None, self)
        owner = context.process if owner == ANY else owner
        if owner != context.process:
            return Pending(), self
        if context.now_ns < (free_ns := self.free_ns.get(node, 0)):
            return Pending(free_ns), self
        asked = (
            Invocation(f=CRASH) if stage == CRASH
            else _assign(range(self.keys)) if stage == ASSIGN
            else Invocation(f=POLL, extra={"value": [(POLL,)], "to_the_end": True})
        )  # fmt: skip
        return Scheduled(context.now_ns, asked), self._at(node, owner, stage)

    def _at(self, node: str, owner: int, stage: str) -> PollAll:
        return msgspec.structs.replace(self, stages={**self.stages, node: (owner, stage)})

    def update(self, event: Completed) -> Generator:
        node = event.node
        owner, _ = self.stages.get(node, (ANY, CRASH))
        if event.process != owner:
            return self
        if event.kind == "info":
            return self._at(node, ANY, ASSIGN)
        if event.kind == "ok":
            return self._at(node, owner, POLL)
        if event.error == EMPTY:
            return self._at(node, owner, "done")
        free_ns = {**self.free_ns, node: event.now_ns + RETRY_PAUSE_NS}
        return msgspec.structs.replace(self, free_ns=free_ns)


def partition_mix(
    *, keys: int, longest: int, send_share: float, crash_share: float, seed: int
) -> PartitionMix:
    return PartitionMix(
        keys=keys,
        longest=longest,
        send_share=send_share,
        crash_share=crash_share,
        stream=stream_key(seed, "partitions"),
    )
