"""Order: what happened after what in one simulation, by kinds of events.

A kind came after another if the first may have been a cause of the second: both at one node, or
with a message, or a chain of them, from one to the other (Lamport's happened-before). What lies
further back than ``WINDOW_NS`` is forgotten, or soon all would have come after all. Nodes, epochs
and groups are left out of the kinds, so two runs show the same pairs if masters change places.
After Mallory's summaries of timelines (Meng et al., "Greybox fuzzing of distributed systems",
CCS 2023).

A set of kinds is a number with a bit for each, which is all that travels with a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

WINDOW_NS = 1_000_000_000


class Clocked(Protocol):
    """The loop (loop.py): it knows the time."""

    now_ns: int


class _Known:
    """What happened before now, at one node: in this window and in the one before."""

    __slots__ = ("now", "older", "since_ns")

    def __init__(self, since_ns: int) -> None:
        self.now = self.older = 0
        self.since_ns = since_ns


class Order:
    def __init__(self, loop: Clocked) -> None:
        self._loop = loop
        self._bits: dict[str, int] = {}
        self._before: dict[str, int] = {}  # by kind
        self._nodes: dict[str, _Known] = {}

    def happened(self, node: str, kind: str) -> None:
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = _Known(self._loop.now_ns)
        self._move(known)
        bit = self._bits.setdefault(kind, 1 << len(self._bits))
        self._before[kind] = self._before.get(kind, 0) | known.now | known.older
        known.now |= bit

    def told(self, node: str) -> int:
        """What a message from there takes along."""
        known = self._nodes.get(node)
        if known is None:
            return 0
        if self._loop.now_ns - known.since_ns >= WINDOW_NS:
            self._move(known)
        return known.now | known.older

    def heard(self, node: str, told: int) -> None:
        """A message has come that took this along. Clients are no nodes: by way of them all would
        come after all."""
        if told and (known := self._nodes.get(node)) is not None:
            if self._loop.now_ns - known.since_ns >= WINDOW_NS:
                self._move(known)
            known.now |= told

    def pairs(self) -> Iterator[tuple[str, str]]:
        """(a kind, one that came after it); ("", a kind) for each that happened at all."""
        for kind, before in self._before.items():
            yield "", kind
            for earlier, bit in self._bits.items():
                if before & bit:
                    yield earlier, kind

    def _move(self, known: _Known) -> None:
        """Into the window of now."""
        passed_ns = self._loop.now_ns - known.since_ns
        if passed_ns >= WINDOW_NS:
            known.older = known.now if passed_ns < 2 * WINDOW_NS else 0
            known.now, known.since_ns = 0, self._loop.now_ns
