"""Priorities: who goes first of those that are due at nearly the same time.

Theory. Probabilistic concurrency testing (Burckhardt et al., "A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs", ASPLOS 2010): every thread has a random priority, the
first one that can run does, and at d - 1 random steps who runs becomes the last. A bug that needs d
events in one order is found with a probability that does not sink with the number of all orders.
Here what is due within ``window_ns`` of the first counts as able to run: who goes later is late by
no more than that, as a process or a segment may be. By ``process`` wake-ups and messages of one
node go together. By ``message`` (Ozkan et al., "Trace Aware Random Testing for Distributed
Systems", OOPSLA 2019) each chain of messages has a priority, where a message follows the one that
its sender has received last, and timers come on time.

What belongs to no node, and to the harness, comes on time. A process's own events and a
connection's segments keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop
from typing import Literal, Protocol

from shalott.cluster.sim.loop.processes import SimHandle, SimProcess
from shalott.core.rng import draw_u64, stream_key

By = Literal["process", "message"]
Timer = tuple[int, int, SimHandle]  # when, its number, what
Rank = tuple[int, int]


class _Peer(Protocol):
    process: SimProcess | None


class _Receiver(Protocol):
    """The end of a connection at which a segment arrives (network/tcp.py)."""

    number: int

    @property
    def peer(self) -> _Peer: ...


class Priorities:
    """Of one run. ``points``: the steps at which who goes becomes the last of all."""

    def __init__(self, seed: int, *, by: By, window_ns: int, points: Sequence[int]) -> None:
        self.window_ns = window_ns
        self.waiting: list[SimHandle] = []  # due within the window
        self._key = stream_key(seed, "priorities", by)
        self._by_process = by == "process"
        self._points = {step: number for number, step in enumerate(points)}
        self._steps = 0
        self._ranks: dict[object, Rank] = {}
        self._chains: dict[int, int] = {}  # by the number of the handle that brings a message
        self._chain_count = 0
        self._tails: dict[SimProcess, int] = {}  # the chain of what a process received last

    def next_of(self, timers: list[Timer]) -> SimHandle | None:
        """Who goes next, of the timers and who is waiting already; None if there is none."""
        self.waiting = waiting = [each for each in self.waiting if not each._cancelled]
        due_ns = [handle.when_ns for handle in waiting] + [timers[0][0]] * bool(timers)
        if not due_ns:
            return None
        until_ns = min(due_ns) + self.window_ns
        while timers and timers[0][0] <= until_ns:
            handle = heappop(timers)[2]
            if not handle._cancelled:
                waiting.append(handle)
        return self.take()

    def take(self) -> SimHandle:
        """Who goes next, of those that are waiting; there is one."""
        chosen, whose = None, None
        heads: dict[object, tuple[SimHandle, object]] = {}
        for handle, what in self._ranked(sorted(self.waiting, key=_due)):
            if what is not None:
                heads.setdefault(self._order_of(handle, what), (handle, what))
            elif chosen is None:
                chosen = handle  # on time, unless another is due before
        if heads:
            best, what = min(heads.values(), key=lambda head: (self._rank(head[1]), _due(head[0])))
            if chosen is None or _due(best) < _due(chosen):
                chosen, whose = best, what
        assert chosen is not None
        if whose is not None:
            self._step(chosen, whose)
        self.waiting.remove(chosen)
        return chosen

    def _ranked(self, waiting: Sequence[SimHandle]) -> Iterator[tuple[SimHandle, object]]:
        """Each with the thread that it belongs to; None: it comes on time."""
        for handle in waiting:
            process = handle.process
            if process is None or not process.fenced:
                yield handle, None
            elif self._by_process:
                yield handle, process.name
            else:
                receiver = _receiver(handle)
                yield handle, None if receiver is None else self._chain(handle, receiver)

    def _chain(self, handle: SimHandle, receiver: _Receiver) -> int:
        chain = self._chains.get(handle.seq)
        if chain is None:
            sender = receiver.peer.process
            chain = self._tails.pop(sender, None) if sender is not None else None
            if chain is None:
                self._chain_count += 1
                chain = self._chain_count
            self._chains[handle.seq] = chain
        return chain

    def _order_of(self, handle: SimHandle, what: object) -> object:
        """What must not overtake itself."""
        receiver = None if self._by_process else _receiver(handle)
        return what if receiver is None else ("lane", receiver.number)

    def _rank(self, what: object) -> Rank:
        rank = self._ranks.get(what)
        if rank is None:
            rank = self._ranks[what] = (0, draw_u64(self._key, len(self._ranks)))
        return rank

    def _step(self, chosen: SimHandle, what: object) -> None:
        number = self._points.get(self._steps)
        self._steps += 1
        if number is not None:
            self._ranks[what] = (1, number)
        chain = self._chains.pop(chosen.seq, None)
        if chain is not None and chosen.process is not None:
            self._tails[chosen.process] = chain


def _due(handle: SimHandle) -> tuple[int, int]:
    return handle.when_ns, handle.seq


def _receiver(handle: SimHandle) -> _Receiver | None:
    callback = handle._callback
    is_segment = getattr(callback, "__name__", "") == "arrive"
    return getattr(callback, "__self__", None) if is_segment else None
