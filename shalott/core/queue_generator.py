"""Generators of queue workloads: the mix of enqueues and dequeues, and the final drain.

Every enqueue carries a run-unique id: twenty bits drawn from the seed, which tell this run's
messages from any other's, above a counter. Ids stay below 2**52, so that no reader of JSON rounds
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_float, draw_u64, stream_key

COUNTER_BITS = 32
EMPTY = "empty"  # the error of a dequeue that found nothing
EMPTY_PAUSE_NS = 100_000_000  # between two questions to a node that said empty
RETRY_PAUSE_NS = 200_000_000  # after a node could not answer
EMPTIES_WANTED = 2


class QueueMix(msgspec.Struct, frozen=True):
    """Enqueues and dequeues for ever, as the seed draws them.

    ``threads``: not 0 if each queue has one consumer, the thread with its number among so many. The
    consumers then dequeue the more, so that the whole has its share of enqueues as far as it can.

    ``depth``: not 0 if every queue is to hold so many messages, so that a fault meets queues with
    something in them. No dequeue goes to a queue that may hold fewer: an enqueue goes to it
    instead. ``held`` counts what clients were told: an enqueue counts when it is acknowledged, a
    dequeue from its invocation until it is known to have taken nothing. What a fault loses is still
    counted, so a queue may then be emptier than that.
    """

    keys: tuple[str, ...]
    enqueue_fraction: float
    mix_key: int
    queue_key: int
    value_base: int
    threads: int = 0
    count: int = 0
    enqueued: int = 0
    depth: int = 0
    held: Mapping[str, int] = {}

    def next(self, context: Context) -> tuple[Answer, Generator]:
        count = self.count
        own = self._consumed_by(context.process)
        enqueues = draw_float(self.mix_key, count) < self._enqueue_fraction(len(own))
        keys = self.keys if enqueues else own
        key = keys[draw_below(self.queue_key, count, len(keys))]
        held = self.held
        if self.depth and not enqueues:
            enqueues = held.get(key, 0) <= self.depth
            held = held if enqueues else _counted(held, key, -1)
        if enqueues:
            invocation = Invocation(f="enqueue", key=key, value=self.value_base + self.enqueued)
        else:
            invocation = Invocation(f="dequeue", key=key)
        successor = QueueMix(
            self.keys,
            self.enqueue_fraction,
            self.mix_key,
            self.queue_key,
            self.value_base,
            self.threads,
            count + 1,
            self.enqueued + enqueues,
            self.depth,
            held,
        )
        return Scheduled(context.now_ns, invocation), successor

    def _consumed_by(self, process: int) -> tuple[str, ...]:
        """The queues that a process may dequeue from."""
        if not self.threads:
            return self.keys
        return self.keys[process % self.threads :: self.threads]

    def _enqueue_fraction(self, own: int) -> float:
        """Of a process that consumes so many queues."""
        if not self.threads:
            return self.enqueue_fraction
        consumers = min(len(self.keys), self.threads)
        return 1 - (1 - self.enqueue_fraction) * self.threads / consumers if own else 1.0

    def update(self, event: Completed) -> Generator:
        if not self.depth:
            return self
        came = event.invocation.f == "enqueue" and event.kind == "ok"
        stayed = event.invocation.f == "dequeue" and event.kind == "fail"
        if not came and not stayed:
            return self
        return msgspec.structs.replace(self, held=_counted(self.held, event.invocation.key, 1))


def _counted(held: Mapping[str, int], key: str, change: int) -> Mapping[str, int]:
    return {**held, key: held.get(key, 0) + change}


def queue_mix(
    keys: Sequence[str], enqueue_fraction: float, seed: int, *, threads: int = 0, depth: int = 0
) -> QueueMix:
    """The mix of one run; ``threads`` is its concurrency if each queue has one consumer, ``depth``
    how many messages each queue is to hold."""
    return QueueMix(
        keys=tuple(keys),
        enqueue_fraction=enqueue_fraction,
        mix_key=stream_key(seed, "queue", "mix"),
        queue_key=stream_key(seed, "queue", "key"),
        value_base=(draw_u64(stream_key(seed, "queue", "run"), 0) >> 44) << COUNTER_BITS,
        threads=threads,
        depth=depth,
    )


class Drain(msgspec.Struct, frozen=True):
    """Dequeue on every node until every node said twice in a row that every queue is empty.

    A message that still comes out resets its queue on every node: what was requeued behind it, or
    was held by another client, may come out elsewhere.
    """

    nodes: tuple[str, ...]
    keys: tuple[str, ...]
    empties: Mapping[tuple[str, str], int]
    retry_ns: Mapping[tuple[str, str], int]  # not before
    count: int = 0

    @property
    def finished(self) -> bool:
        return all(count >= EMPTIES_WANTED for count in self.empties.values())

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.finished:
            return None, self
        node = context.node
        if node not in self.nodes:
            return Pending(), self
        open_keys = [key for key in self.keys if self.empties[node, key] < EMPTIES_WANTED]
        if not open_keys:
            return Pending(), self
        turn = self.count % len(open_keys)
        rotated = open_keys[turn:] + open_keys[:turn]
        key = min(rotated, key=lambda key: self.retry_ns.get((node, key), 0))
        at_ns = max(context.now_ns, self.retry_ns.get((node, key), 0))
        successor = Drain(self.nodes, self.keys, self.empties, self.retry_ns, self.count + 1)
        return Scheduled(at_ns, Invocation(f="dequeue", key=key)), successor

    def update(self, event: Completed) -> Generator:
        empties, key, place = self.empties, event.invocation.key, (event.node, event.invocation.key)
        if event.kind == "ok":
            if not any(empties[node, key] for node in self.nodes):
                return self
            empties = {at: 0 if at[1] == key else count for at, count in empties.items()}
            return Drain(self.nodes, self.keys, empties, self.retry_ns, self.count)
        if event.now_ns < self.retry_ns.get(place, 0):
            return self  # another worker asked at the same time: one answer, not two
        if event.kind == "fail" and event.error == EMPTY:
            empties = {**empties, place: empties[place] + 1}
            retry_ns = event.now_ns + EMPTY_PAUSE_NS
        else:
            empties = {**empties, place: 0}
            retry_ns = event.now_ns + RETRY_PAUSE_NS
        retries = {**self.retry_ns, place: retry_ns}
        return Drain(self.nodes, self.keys, empties, retries, self.count)


def drain(nodes: Sequence[str], keys: Sequence[str]) -> Drain:
    empties = {(node, key): 0 for node in nodes for key in keys}
    return Drain(tuple(nodes), tuple(keys), empties, {})
