"""Partitions that clients send to and poll from: what does that, and the generators that draw it.

After jepsen.tests.kafka. A partition is a log, named by a whole number, its key. A transaction is a
sequence of micro-operations, ``("send", key, value)`` and ``("poll",)``; no value is sent twice. A
client polls the keys that it was assigned, each on from where its last poll ended; another
assignment replaces the one before, and a client that crashed comes back as another process, with
none. Where a system has groups of consumers (``Grouped``), a client may subscribe instead: all that
do are one group, which shares the keys, and goes on where it committed. What was sent and polled
stands in the history as the ``value`` of ``extra``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_float, stream_key

SEND, POLL, TXN, ASSIGN, CRASH = "send", "poll", "txn", "assign", "crash"
SUBSCRIBE, COMMIT = "subscribe", "commit"
EMPTY = "empty"  # why a poll failed that was to tell when there is nothing more
ANY = -1  # the process that asks next
RETRY_PAUSE_NS = 200_000_000
ASSIGN_SHARE = 1 / 32
COMMIT_SHARE = 1 / 8  # of what a subscribed process does
SUBSCRIBE_DRAW, COMMIT_DRAW = 100, 101  # positions in a draw's stream, behind all others
QUIET_NS = 10_000_000_000  # a group is read to its end when it gave nothing for so long

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


@runtime_checkable
class Grouped(Protocol):
    """A Partitioned that can join the run's one group of consumers, which begins at offset 0.

    While it is subscribed ``transact`` is given no places: it polls what the group gives it, from
    where the group committed. What a poll did not return comes again. ``close`` leaves the group; a
    member that is gone without a word must be missed within 10 s (``QUIET_NS``).
    """

    async def subscribe(self, keys: Sequence[int]) -> None:
        """Join for these keys, in place of those before; leave if there are none."""
        ...

    async def commit(self, places: Mapping[int, int]) -> None:
        """Let the group go on there: by key, the offset behind what was polled. Definite: it will
        not, as when the key is another member's now."""
        ...

    def moved(self) -> Sequence[int]:
        """The keys that the group took from this client, or gave it, since this was last asked. It
        may do so between two polls of one transaction."""
        ...


class MakePartitioned(Protocol):
    """A Partitioned of the node that listens there."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Partitioned: ...


def mops_of(invocation: Invocation) -> tuple[Mop, ...]:
    assert invocation.extra is not None
    return tuple(invocation.extra["value"])


def f_of(mops: Sequence[Mop]) -> str:
    kinds = {mop[0] for mop in mops}
    return TXN if len(kinds) > 1 else str(*kinds)


def _assign(keys: Sequence[int], f: str = ASSIGN) -> Invocation:
    return Invocation(f=f, extra={"value": list(keys)})


class PartitionMix(msgspec.Struct, frozen=True):
    """Sends, polls and transactions for ever, as the seed draws them; a process that has no keys
    is assigned some first. ``assigned``: the processes that have keys. ``subscribe_share``: of
    those, how many subscribe to them; ``subscribed``: the processes that did."""

    keys: int
    longest: int
    send_share: float
    crash_share: float
    stream: int
    count: int = 0
    values: int = 0
    assigned: frozenset[int] = frozenset()
    subscribe_share: float = 0.0
    subscribed: frozenset[int] = frozenset()

    def next(self, context: Context) -> tuple[Answer, Generator]:
        draws = stream_key(self.stream, self.count)
        successor = msgspec.structs.replace(self, count=self.count + 1)
        drawn = draw_float(draws, 0)
        if drawn < self.crash_share:
            return Scheduled(context.now_ns, Invocation(f=CRASH)), successor
        if context.process not in self.assigned or drawn < self.crash_share + ASSIGN_SHARE:
            f = SUBSCRIBE if self._draws(draws, SUBSCRIBE_DRAW, self.subscribe_share) else ASSIGN
            return Scheduled(context.now_ns, _assign(self._some_keys(draws), f)), successor
        if context.process in self.subscribed and self._draws(draws, COMMIT_DRAW, COMMIT_SHARE):
            return Scheduled(context.now_ns, Invocation(f=COMMIT)), successor
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

    def _draws(self, draws: int, position: int, share: float) -> bool:
        return share > 0 and draw_float(draws, position) < share

    def _some_keys(self, draws: int) -> list[int]:
        """Each with even chance, and one at least."""
        chosen = 1 + draw_below(draws, 1, (1 << self.keys) - 1)
        return [key for key in range(self.keys) if chosen >> key & 1]

    def update(self, event: Completed) -> Generator:
        own, f = frozenset({event.process}), event.invocation.f
        assigned, subscribed = self.assigned, self.subscribed
        if event.kind == "info":
            assigned, subscribed = assigned - own, subscribed - own
        elif event.kind == "ok" and f in (ASSIGN, SUBSCRIBE):
            assigned = assigned | own
            subscribed = subscribed | own if f == SUBSCRIBE else subscribed - own
        else:
            return self
        return msgspec.structs.replace(self, assigned=assigned, subscribed=subscribed)


class CrashAll(msgspec.Struct, frozen=True):
    """Each of so many threads crashes once, so that a group has no members."""

    threads: int
    asked: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()

    def next(self, context: Context) -> tuple[Answer, Generator]:
        thread = context.process % self.threads
        if len(self.ended) == self.threads:
            return None, self
        if thread in self.asked:
            return Pending(), self
        successor = msgspec.structs.replace(self, asked=self.asked | {thread})
        return Scheduled(context.now_ns, Invocation(f=CRASH)), successor

    def update(self, event: Completed) -> Generator:
        return msgspec.structs.replace(self, ended=self.ended | {event.process % self.threads})


class PollAll(msgspec.Struct, frozen=True):
    """At every node a process crashes, and then each key is polled, until there is no more.

    ``stages``: by node, which process does it, and what comes next: crash, assign, poll, done.
    ``begins``: how it comes by the keys. With ``quiet_ns`` there is no more when polls found
    nothing for so long; ``since_ns``: by node, since when. ``is_phase``: of several (``Phases``),
    so it is exhausted for all nodes at once.
    """

    keys: int
    nodes: tuple[str, ...]
    begins: str = ASSIGN
    quiet_ns: int = 0
    since_ns: Mapping[str, int] = {}
    is_phase: bool = False
    stages: Mapping[str, tuple[int, str]] = {}
    free_ns: Mapping[str, int] = {}  # a node that refused is left alone until then

    def next(self, context: Context) -> tuple[Answer, Generator]:
        node = context.node
        others = self.is_phase and any(self._stage(each)[1] != "done" for each in self.nodes)
        if node not in self.nodes:
            return Pending() if others else None, self
        owner, stage = self._stage(node)
        if stage == "done":
            return (Pending(), self) if context.in_flight or others else (None, self)
        owner = context.process if owner == ANY else owner
        if owner != context.process:
            return Pending(), self
        if context.now_ns < (free_ns := self.free_ns.get(node, 0)):
            return Pending(free_ns), self
        asked = (
            Invocation(f=CRASH) if stage == CRASH
            else _assign(range(self.keys), self.begins) if stage == ASSIGN
            else Invocation(f=POLL, extra={"value": [(POLL,)], "to_the_end": True})
        )  # fmt: skip
        return Scheduled(context.now_ns, asked), self._at(node, owner, stage)

    def _stage(self, node: str) -> tuple[int, str]:
        return self.stages.get(node, (ANY, CRASH))

    def _at(self, node: str, owner: int, stage: str) -> PollAll:
        return msgspec.structs.replace(self, stages={**self.stages, node: (owner, stage)})

    def update(self, event: Completed) -> Generator:
        node = event.node
        owner, _ = self._stage(node)
        if event.process != owner:
            return self
        if event.kind == "info":
            return self._at(node, ANY, ASSIGN)
        if event.kind == "ok":
            since_ns = {**self.since_ns, node: event.now_ns}
            return msgspec.structs.replace(self._at(node, owner, POLL), since_ns=since_ns)
        quiet_ns = event.now_ns - self.since_ns.get(node, event.now_ns)
        if event.error == EMPTY and quiet_ns >= self.quiet_ns:
            return self._at(node, owner, "done")
        free_ns = {**self.free_ns, node: event.now_ns + RETRY_PAUSE_NS}
        return msgspec.structs.replace(self, free_ns=free_ns)


def read_group(threads: int, keys: int, nodes: Sequence[str]) -> tuple[Generator, ...]:
    """Phases in which the group gets one member, at the first node, which polls what is left."""
    first = tuple(nodes[:1])
    member = PollAll(keys, first, begins=SUBSCRIBE, quiet_ns=QUIET_NS, is_phase=True)
    return CrashAll(threads), member


def partition_mix(
    *,
    keys: int,
    longest: int,
    send_share: float,
    crash_share: float,
    seed: int,
    subscribe_share: float = 0.0,
) -> PartitionMix:
    return PartitionMix(
        keys=keys,
        longest=longest,
        send_share=send_share,
        crash_share=crash_share,
        stream=stream_key(seed, "partitions"),
        subscribe_share=subscribe_share,
    )
