"""crashes: no process of the broker ends by an exception of its own.

Supervisors start such a process again within milliseconds, so clients may never notice; but what it
held in memory is gone, and its code met a state that its author thought impossible. Nodes tell of
it by the event ``crashed`` (detail: ``process``, ``reason`` = "crash: <exception>: ...").

A broken disk is no such state. A node whose disk returns errors or holds rotten bytes is right to
give up rather than to promise what it can't keep, so a crash by a storage error is excused from the
moment when such a fault hit that node. Full disks recover: the excuse ends soon after the fault.
Failed syncs and rot don't: what was dropped or damaged may be met at any later time. Slow disks and
short reads and writes excuse nothing. The same holds of a machine that has no memory, files or
processes left: a call that asks for more fails, and the excuse ends soon after the fault.

``text`` narrows it to crashes of one kind, whose reason contains it. A search for one bug that
shows only beside another, which crashes as well, needs that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import Fault, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History
from shalott.core.plan import Effect

S = 1_000_000_000
# As our own broker names them, and as the C library does.
STORAGE_ERROR = re.compile(
    r"\b(StorageError|DiskFull|OSError|the disk|Input/output error|No space left on device)\b"
)
# As Python, the JVM, Erlang and the C library say that there is no more of something.
STARVATION = re.compile(
    r"\b(StorageError|DiskFull|OSError|MemoryError|BlockingIOError|OutOfMemoryError"
    r"|can't start new thread|unable to create (new )?native thread|Too many open files"
    r"|Cannot allocate memory|Resource temporarily unavailable|No space left on device"
    r"|emfile|enfile|enomem|eagain|enospc|system_limit)\b"
)
FOR_EVER_NS = 1 << 62
# How long after its end a fault with that effect on a node still excuses.
EXCUSES_NS: Mapping[Effect, int] = {
    "fills-disk": S,
    "starves": S,
    "breaks-disk": FOR_EVER_NS,
    "damages-data": FOR_EVER_NS,
}


@dataclass(frozen=True, slots=True)
class Crashes:
    """``is_promised``: that there are none; else they are told, and break nothing."""

    text: str = ""
    is_promised: bool = True
    name: str = "crashes"

    def check(self, history: History) -> Result:
        faults = read_surroundings(history).injected
        events = [event for event in read_events(history) if event.kind == "crashed"]
        crashed = [event for event in events if self.text in str(event.detail.get("reason", ""))]
        own = [event for event in crashed if not is_excused(event, faults)]
        anomalies = tuple(_anomaly(event) for event in own)
        return Result(
            checker=self.name,
            valid=not (own and self.is_promised),
            counts={"crashed-count": len(own), "excused-crash-count": len(crashed) - len(own)},
            anomalies=anomalies,
            notes=() if self.is_promised else tuple(f"{each.summary}." for each in anomalies),
        )


def is_excused(crash: NodeEvent, faults: Sequence[Fault]) -> bool:
    """Whether a fault of the node's disk or machine explains it."""
    reason = str(crash.detail.get("reason", ""))
    return any(
        crash.node in fault.nodes
        and effect in fault.effects
        and (STARVATION if effect == "starves" else STORAGE_ERROR).search(reason) is not None
        and fault.invoke_ns <= crash.run_ns <= fault.end_ns + lasting_ns
        for fault in faults
        for effect, lasting_ns in EXCUSES_NS.items()
    )


def _anomaly(event: NodeEvent) -> Anomaly:
    process = str(event.detail.get("process") or "a process")
    reason = str(event.detail.get("reason") or "no reason").removeprefix("crash: ")
    return Anomaly(
        kind="crashed",
        summary=f"{process} on {event.node} at {event.run_ns / S:.3f} s: {reason}",
        detail={
            "events": [event.row],
            "node": event.node,
            "process": process,
            "reason": reason,
            "at_ns": event.run_ns,
        },
    )
