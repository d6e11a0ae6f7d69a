"""Watch: what the oracles of one simulation share: the machines, what is promised, what they found.

Findings go among the events of the machine that was asked, and not into the trace: an oracle looks
and changes nothing, so a run has the same digest with it and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from shalott.broker.base.events import Event
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.disk.survival import Survival
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.oracles import ASKED, VIOLATED, Oracle

VIOLATIONS_MAX = 20  # of one oracle at one node: who breaks a promise once breaks it often
NAME_DIGITS = 20  # of a segment's file


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """What a plan's profile promises of what was acknowledged. ``disks``: on how many it is, in
    case of power losses; 0: on none for sure. ``copies``: how many nodes have it, in memory at
    least. ``own``: one of the disks is the acknowledging node's. ``by_set``: every member of the
    SyncStateSet has it on its disk, too. ``f``: the clients' operation that is acknowledged; its
    message has ``body_bytes``.
    """

    disks: int = 0
    copies: int = 0
    own: bool = True
    by_set: bool = False
    f: str = ""
    body_bytes: int = 0


NOTHING = Promised()


class Watched(Protocol):
    """A machine (cluster/sim/machine.py), as far as oracles look at it."""

    disk: SimDisk
    clock: NodeClock
    process: SimProcess | None
    events: list[Event]

    @property
    def wall_ns(self) -> Callable[[], int]: ...


class Watch:
    def __init__(
        self, loop: SimLoop, machines: Mapping[str, Watched], promised: Promised = NOTHING
    ) -> None:
        self.loop = loop
        self.machines = machines
        self.promised = promised
        self._counts: dict[tuple[str, str], dict[str, object]] = {}
        self._asked: dict[tuple[str, str], int] = {}
        self._violations: dict[tuple[Oracle, str], int] = {}

    def disk(self, node: str) -> Survival:
        return self.machines[node].disk.survival

    def asked(self, oracle: Oracle, node: str) -> None:
        """One question more. The count stands in an event that is written once."""
        key = (oracle.name, node)
        count = self._asked[key] = self._asked.get(key, 0) + 1
        if count == 1:
            self._counts[key] = {"oracle": oracle.name}
            self._tell(node, ASKED, self._counts[key])
        self._counts[key]["count"] = count

    def broken(self, oracle: Oracle, node: str, summary: str, **where: object) -> None:
        """``where``: the offset, index or number that it is about."""
        told = self._violations.get((oracle, node), 0)
        self._violations[oracle, node] = told + 1
        if told < VIOLATIONS_MAX:
            now_ns = self.loop.now_ns
            detail = {"oracle": oracle.name, "summary": summary, "virtual_ns": now_ns, **where}
            self._tell(node, VIOLATED, detail)

    def _tell(self, node: str, kind: str, detail: dict[str, object]) -> None:
        machine = self.machines[node]
        event = Event(
            at_ns=machine.clock.monotonic_ns(),
            wall_ns=machine.wall_ns(),
            node=node,
            incarnation=0 if machine.process is None else machine.process.incarnation,
            group="",
            kind=kind,
            detail=detail,
        )
        machine.events.append(event)


def pieces(
    directory: str, segment_bytes: int, begin: int, end: int
) -> Iterator[tuple[str, int, int]]:
    """A stretch of a segmented log, by file: (path, from, to)."""
    while begin < end:
        start = begin - begin % segment_bytes
        upto = min(end, start + segment_bytes)
        yield f"{directory}/{start:0{NAME_DIGITS}d}", begin - start, upto - start
        begin = upto
