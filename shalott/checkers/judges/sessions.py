"""Sessions' guarantees (Terry et al., PDIS 1994), each a judge of its own. A session is a process.

- ``read-your-writes``: what a session wrote is in what it reads afterwards.
- ``monotonic-reads``: what a session has read is in what it reads afterwards.
- ``monotonic-writes``: where a session's later write is, its earlier ones are, too.
- ``writes-follow-reads``: where a write is, there is what its session had read before it.

Of sets and logs a read shows which writes it is based on, so all four are decided
(checkers/judges/session_sets.py); in a log what is earlier also stands before. Of a register a read
shows one write, and which others it covers depends on their order
(checkers/judges/session_registers.py): there ``order`` says what is taken for older.

A write that crashed or failed is not demanded, and a judge that found no pair of operations that
its guarantee is about says unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.judges.passes import (
    Case,
    Operation,
    conclude,
    counted,
    elements_of,
    judge_objects,
)
from shalott.checkers.judges.session_registers import Registers
from shalott.checkers.judges.session_sets import (
    CAUSE_MISSING,
    OVERTAKEN,
    UNREAD_WRITE,
    WENT_BACK,
    Collections,
)
from shalott.checkers.models.model import one_of
from shalott.checkers.reading.entries import EntrySource

_TO_SETS: Final = ("add",)
_TO_LOGS: Final = ("append", "send", "enqueue", "publish")
_TO_REGISTERS: Final = ("write", "put", "w")
_READS: Final = ("read", "get", "r")
_REMOVALS: Final = ("remove", "delete", "dequeue", "pop", "cas")
_FS: Final = (*_TO_SETS, *_TO_LOGS, *_TO_REGISTERS, *_READS, *_REMOVALS)
_WORDS: Final = {
    UNREAD_WRITE: ("a session did not see its own write", "own writes were not seen, {n} times"),
    WENT_BACK: ("a session's read went back", "reads of sessions went back, {n} times"),
    OVERTAKEN: (
        "a session's later write was seen without an earlier one",
        "later writes of sessions were seen without earlier ones, {n} times",
    ),
    CAUSE_MISSING: (
        "a write was seen without what its session had read before",
        "writes were seen without what their sessions had read before, {n} times",
    ),
}


@dataclass(frozen=True, slots=True)
class SessionGuarantee:
    """``kind``: what breaks it. ``order``: of registers, what is older than what: "sessions", an
    earlier write of the same session, and nil; "realtime", one that had ended before the other was
    invoked, too; "numbers", the smaller value."""

    name: str
    kind: str
    order: str = "realtime"

    def __post_init__(self) -> None:
        one_of("order", self.order, "sessions", "realtime", "numbers")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        return judge_objects(
            self.name, source, limits, fs=_FS, asks=_READS,
            begin=lambda case: _Object(case, self.kind, self.order),
            conclude=self._conclude, invocations=True,
        )  # fmt: skip

    def _conclude(self, case: Case) -> Result:
        judged = case.counts["judged-count"]
        if not judged and not case.doubts:
            case.doubts.append(f"No process did what {self.name} is about.")
        return conclude(
            self.name,
            case,
            headline=f"{self.name.replace('-', ' ')} in {counted(judged, 'read')}",
            words=_WORDS,
            broken=() if case.counts["removal-count"] else (self.kind,),
        )


@dataclass(slots=True)
class _Object:
    """A register, or a set or log, as its operations say."""

    case: Case
    kind: str
    order: str
    collection: Collections = field(init=False)
    register: Registers = field(init=False)

    def __post_init__(self) -> None:
        self.collection = Collections(self.case, self.kind)
        self.register = Registers(self.case, self.kind, self.order)

    def take(self, op: Operation) -> None:
        if op.f in _REMOVALS:
            self._note_removal(op)
        elif op.f in _TO_REGISTERS:
            self.register.write(op)
        elif op.f not in _READS:
            self.collection.is_log |= op.f in _TO_LOGS
            self.collection.write(op)
        elif op.type == "ok":
            elements = None if self.register.written else elements_of(op.result)
            if elements is None:
                self.register.read(op)
            else:
                self.collection.read(op, elements)

    def _note_removal(self, op: Operation) -> None:
        counts = self.case.counts
        if op.type != "invoke" and not counts["removal-count"]:
            self.case.doubts.append(
                f"What {self.case.shown(op.f)} takes away ({self.case.at(op.place)}) may be missing"
                " rightly: sessions are judged where values are only added or written."
            )
        counts["removal-count"] += op.type != "invoke"

    def end(self) -> None:
        self.register.end()


def read_your_writes(order: str = "realtime") -> SessionGuarantee:
    """add, append or write, and read: what a process wrote is in what it reads afterwards.

    ``order``: of registers, what is older: "sessions", "realtime" or "numbers".
    """
    return SessionGuarantee("read-your-writes", UNREAD_WRITE, order)


def monotonic_reads(order: str = "realtime") -> SessionGuarantee:
    """add, append or write, and read: what a process has read is in what it reads afterwards.

    ``order``: of registers, what is older: "sessions", "realtime" or "numbers".
    """
    return SessionGuarantee("monotonic-reads", WENT_BACK, order)


def monotonic_writes() -> SessionGuarantee:
    """add, append or write, and read: where a process's later write is, its earlier ones are."""
    return SessionGuarantee("monotonic-writes", OVERTAKEN)


def writes_follow_reads() -> SessionGuarantee:
    """add, append or write, and read: where a write is, there is what its process had read before
    it."""
    return SessionGuarantee("writes-follow-reads", CAUSE_MISSING)


def _record(make: Callable[..., SessionGuarantee], summary: str, promise: str) -> JudgeRecord:
    return JudgeRecord(
        name=make.__name__.replace("_", "-"),
        summary=summary,
        make=make,
        promise=promise,
        source="Terry et al., Session Guarantees for Weakly Consistent Replicated Data, PDIS 1994",
        fs=_FS,
        by_key=True,
    )


READ_YOUR_WRITES = _record(
    read_your_writes,
    "a process reads what it wrote before",
    "What a process wrote and was acknowledged is in all that it reads afterwards.",
)
MONOTONIC_READS = _record(
    monotonic_reads,
    "a process reads what it read before",
    "What a process has read is in all that it reads afterwards.",
)
MONOTONIC_WRITES = _record(
    monotonic_writes,
    "a process's writes are seen in the order in which it made them",
    "A read that covers a write covers what its process had written before it.",
)
WRITES_FOLLOW_READS = _record(
    writes_follow_reads,
    "a write is seen with what its process had read",
    "A read that covers a write covers what its process had read before it.",
)
