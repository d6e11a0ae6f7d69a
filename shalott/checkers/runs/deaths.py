"""deaths: no node ends that nothing ended.

The backend tells of every end of a node's process that the harness did not ask for (the row
``died`` of the history, cluster/cluster.py: on_exit): a crash, a signal from outside, the kernel's
OOM killer, an exit of its own, also if the node was started again at once. A broker that restarts
itself within its process is seen by its events, whose incarnation grows though nothing ended it.

A fault excuses what it does to its own nodes: one that ends processes, while it lasts; one that
fills, breaks or damages a disk, as long as what it spoiled may be met, and one that starves a
machine (``Crashes``).
An operator who restarts nodes to mend a partition excuses their ends too. A system may name exit
codes with which its nodes may end.

An end of a process of the harness's own that serves nodes excuses what ended from then on: a node
whose disk is gone, or its network, gives up. The run is unknown then (harness_failures.py).

A system that promises to stay up makes the run invalid by a death; of others it is told.

crashes: no process of the broker ends by an exception of its own.

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
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.faults import Fault, Surroundings, decode_object, read_surroundings
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History
from shalott.core.op import NEMESIS
from shalott.core.plan import Effect

S = 1_000_000_000
# As our own broker names them, and as the C library does.
STORAGE_ERROR = re.compile(
    r"\b(StorageError|DiskFull|OSError|the disk|damaged|Input/output error"
    r"|No space left on device)\b"
)
# As Python, the JVM, Erlang and the C library say that there is no more of something.
STARVATION = re.compile(
    r"\b(StorageError|DiskFull|OSError|MemoryError|BlockingIOError|OutOfMemoryError"
    r"|can't start new thread|unable to create (new )?native thread|Too many open files"
    r"|Cannot allocate memory|Resource temporarily unavailable|No space left on device"
    r"|emfile|enfile|enomem|eagain|enospc|system_limit)\b"
)
FOR_EVER_NS = 1 << 62
HELPER_TOLD_NS = 5 * S
INSTANT_NS = 1_000  # a fault in a moment has its row after what else happened in that instant
# How long after its end a fault with that effect on a node still excuses.
EXCUSES_NS: Mapping[Effect, int] = {
    "fills-disk": S,
    "starves": S,
    "breaks-disk": FOR_EVER_NS,
    "damages-data": FOR_EVER_NS,
}


@dataclass(frozen=True, slots=True)
class Death:
    """``operation`` is the index of its row, ``event`` the row of the life that followed."""

    node: str
    at_ns: int
    how: str
    exit_code: int | None = None
    output: str = ""
    operation: int | None = None
    event: int | None = None


@dataclass(frozen=True, slots=True)
class Deaths:
    """``is_promised``: that nodes stay up. ``orderly``: exit codes that are no death."""

    is_promised: bool = True
    orderly: tuple[int, ...] = ()
    name: str = "deaths"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        told = list(_told(history))
        found = [*told, *_unseen_restarts(history, told, around)]
        own = [
            death
            for death in sorted(found, key=lambda death: death.at_ns)
            if not is_excused(death, around.injected)
            and not is_after_helper(death.at_ns, around)
            and (death.exit_code is None or death.exit_code not in self.orderly)
        ]
        sentences = tuple(f"{sentence(death)}." for death in own)
        return Result(
            checker=self.name,
            valid=not (own and self.is_promised),
            counts={"died-count": len(own), "excused-died-count": len(found) - len(own)},
            anomalies=tuple(_anomaly(death) for death in own),
            notes=() if self.is_promised else sentences,
        )


def how_it_ended(exit_code: int | None, out_of_memory: bool = False) -> str:
    """In words: "signal 9 (SIGKILL)", "exit code 1"."""
    if out_of_memory:
        return "the kernel ended it for want of memory"
    if exit_code is None:
        return "for an unknown reason"
    if exit_code > 128:
        number = exit_code - 128
        names = {int(each): each.name for each in signal.Signals}
        return f"signal {number} ({names.get(number, 'unknown')})"
    return f"exit code {exit_code}"


def sentence(death: Death) -> str:
    return f"{death.node} died at {death.at_ns / S:.3f} s: {death.how}"


def is_excused(death: Death, faults: Sequence[Fault]) -> bool:
    """Whether a fault on the same node brought it about."""
    return any(
        death.node in fault.nodes and _begin_ns(fault) <= death.at_ns <= _excuses_until(fault)
        for fault in faults
    )


def is_after_helper(at_ns: int, around: Surroundings) -> bool:
    """Whether a helper of the harness's own had ended by then, told at most HELPER_TOLD_NS late."""
    return any(ended.at_ns - HELPER_TOLD_NS <= at_ns for ended in around.helper_ends)


def _begin_ns(fault: Fault) -> int:
    return fault.invoke_ns - INSTANT_NS


def _excuses_until(fault: Fault) -> int:
    lasting = [EXCUSES_NS[effect] for effect in EXCUSES_NS if effect in fault.effects]
    if lasting:
        return fault.end_ns + max(lasting)
    return fault.end_ns if fault.takes_processes else -1


def _told(history: History) -> Iterator[Death]:
    is_death = pc.and_(
        pc.equal(history.ops["process"], NEMESIS), pc.equal(history.ops["f"], "died")
    )
    for row in history.ops.filter(is_death).to_pylist():
        extra = decode_object(row["extra"])
        code = extra.get("exit_code")
        yield Death(
            node=str(row["node"]),
            at_ns=row["invoke_ns"],
            how=how_it_ended(code, bool(extra.get("out_of_memory"))),
            exit_code=code,
            output=str(extra.get("output") or ""),
            operation=row["index"],
        )


def _unseen_restarts(
    history: History, told: Sequence[Death], around: Surroundings
) -> Iterator[Death]:
    """Lives that follow another one though neither a fault, an operator nor a death lies between
    them.

    RabbitMQ stops and starts within its process when it is in a minority, and to heal a partition.
    It says so, and once a fault was injected that is no death.
    """
    last: dict[str, NodeEvent] = {}
    announced: dict[str, bool] = {}  # by node, whether it said that it stops
    begins = [_begin_ns(fault) for fault in around.injected]
    for event in read_events(history):
        if event.kind == "replica":
            continue  # the harness's own row on a node's copy: it has no life
        before = last.get(event.node)
        last[event.node] = event
        is_orderly = announced.get(event.node, False) and any(at <= event.run_ns for at in begins)
        if not event.group and event.kind == "role":
            announced[event.node] = event.role in ("stopped", "paused")
        if before is None or event.incarnation <= before.incarnation or is_orderly:
            continue
        ended = [
            (_begin_ns(fault), _excuses_until(fault))
            for fault in around.injected
            if event.node in fault.nodes
        ]
        ended += [
            (_begin_ns(fault), fault.end_ns)
            for fault in around.injected
            if event.node in fault.restarted
        ]
        ended += [
            (each.begin_ns, each.end_ns)
            for each in around.operator_restarts
            if event.node in each.nodes
        ]
        ended += [(death.at_ns, death.at_ns) for death in told if death.node == event.node]
        if not any(begin <= event.run_ns and before.run_ns <= end for begin, end in ended):
            yield Death(
                node=event.node,
                at_ns=event.run_ns,
                how=f"it began its life {event.incarnation}, and nothing had ended the last one",
                event=event.row,
            )


def _anomaly(death: Death) -> Anomaly:
    detail: dict[str, object] = {"node": death.node, "reason": death.how, "at_ns": death.at_ns}
    if death.output:
        detail["output"] = death.output
    if death.operation is not None:
        detail["operations"] = [death.operation]
    if death.event is not None:
        detail["events"] = [death.event]
    return Anomaly(kind="died", summary=sentence(death), detail=detail)


@dataclass(frozen=True, slots=True)
class Crashes:
    """``is_promised``: that there are none; else they are told, and break nothing."""

    text: str = ""
    is_promised: bool = True
    name: str = "crashes"

    def check(self, history: History) -> Result:
        around = read_surroundings(history)
        faults = around.injected
        events = [event for event in read_events(history) if event.kind == "crashed"]
        crashed = [event for event in events if self.text in str(event.detail.get("reason", ""))]
        own = [
            event
            for event in crashed
            if not is_crash_excused(event, faults) and not is_after_helper(event.run_ns, around)
        ]
        anomalies = tuple(_crash_anomaly(event) for event in own)
        return Result(
            checker=self.name,
            valid=not (own and self.is_promised),
            counts={"crashed-count": len(own), "excused-crash-count": len(crashed) - len(own)},
            anomalies=anomalies,
            notes=() if self.is_promised else tuple(f"{each.summary}." for each in anomalies),
        )


def is_crash_excused(crash: NodeEvent, faults: Sequence[Fault]) -> bool:
    """Whether a fault of the node's disk or machine explains it."""
    reason = str(crash.detail.get("reason", ""))
    return any(
        crash.node in fault.nodes
        and effect in fault.effects
        and (STARVATION if effect == "starves" else STORAGE_ERROR).search(reason) is not None
        and _begin_ns(fault) <= crash.run_ns <= fault.end_ns + lasting_ns
        for fault in faults
        for effect, lasting_ns in EXCUSES_NS.items()
    )


def _crash_anomaly(event: NodeEvent) -> Anomaly:
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
