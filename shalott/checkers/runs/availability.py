"""Availability: how long no client got an acknowledgement, over the run and around each fault.

For a fault, recovery is the time from when it took hold to the first operation that was invoked
after that and acknowledged: operations already under way don't count. The longest gap is between
two acknowledgements of one queue that the fault's time in force touches, measured in full, also
where it reaches beyond the fault; so it sees one queue's outage while the others go on. The whole
run's gap is taken over the load phase.

While the harness stood still, and until its clients are back, none asked for anything: that time
is taken off every recovery and every gap (checkers/runs/stalls.py tells of it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.columns import (
    EXCHANGE,
    UNANSWERED,
    Ints,
    Operations,
    asked_operations,
)
from shalott.checkers.history.faults import (
    Fault,
    Stall,
    Surroundings,
    read_surroundings,
    stalled_ns,
)
from shalott.core.history import History

MS = 1_000_000
BACK_AFTER_NS = 2_000 * MS  # after a stall: clients whose time was up meanwhile connect anew


@dataclass(frozen=True, slots=True)
class Availability:
    """``max_rto_ms``: no fault's recovery and no queue's gap in a fault may exceed it."""

    max_rto_ms: int | None = None
    name: str = "availability"

    def check(self, history: History) -> Result:
        ops = asked_operations(history)
        ops = ops.take(~ops.f.among(UNANSWERED))
        around = read_surroundings(history)
        service = Service.read(ops, around)
        faults = [service.around_fault(fault) for fault in around.injected]
        load_gaps = service.gaps_in(service.begin_ns, service.end_ns)
        worst = max(load_gaps, key=lambda gap: gap.length_ns, default=None)
        broken = [row for row in faults if self._breaks(row)]
        recoveries = [row["recovery_ms"] for row in faults if row["recovery_ms"] is not None]
        return Result(
            checker=self.name,
            valid=not broken,
            counts={
                "longest-gap-ms": worst.length_ns / MS if worst else 0,
                "recovery-ms-max": max(recoveries, default=0),
                "fault-gap-ms-max": max((row["longest_gap_ms"] for row in faults), default=0),
                "never-recovered-count": sum(row["recovery_ms"] is None for row in faults),
                "acknowledged-fraction": service.acknowledged_fraction(),
            },
            anomalies=tuple(self._anomaly(row) for row in broken),
            notes=tuple(
                f"No operation was acknowledged after fault {row['fault']} took hold."
                for row in faults
                if row["recovery_ms"] is None
            ),
            detail={
                "faults": faults,
                "longest-gap": worst.detail() if worst else None,
                "max_rto_ms": self.max_rto_ms,
            },
        )

    def _breaks(self, row: FaultOutage) -> bool:
        if self.max_rto_ms is None:
            return False
        recovery_ms = row["recovery_ms"]
        late = recovery_ms is None or recovery_ms > self.max_rto_ms
        return bool(late or row["longest_gap_ms"] > self.max_rto_ms)

    def _anomaly(self, row: FaultOutage) -> Anomaly:
        recovery_ms = row["recovery_ms"]
        what = (
            "nothing was ever acknowledged again"
            if recovery_ms is None
            else f"{max(recovery_ms, row['longest_gap_ms']):.0f} ms without an acknowledgement"
        )
        return Anomaly(
            kind="unavailable",
            summary=f"{what} after fault {row['fault']}; at most {self.max_rto_ms} ms are allowed",
            operations=(row["operation"],),
            detail=dict(row),
        )


class GapDetail(TypedDict):
    queue: str
    begin_ns: int
    end_ns: int
    ms: float
    stalled_ms: NotRequired[float]


class FaultOutage(TypedDict):
    """What clients got around one fault. ``recovery_ms``: None if nothing was ever acknowledged."""

    fault: str
    operation: int
    recovery_ms: float | None
    longest_gap_ms: float
    longest_gap: GapDetail | None
    queues: dict[str, float]
    operations: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without an acknowledgement for one queue."""

    queue: str
    begin_ns: int
    end_ns: int
    stalled_ns: int = 0  # of it: charged to none

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns - self.stalled_ns

    def detail(self) -> GapDetail:
        told: GapDetail = {
            "queue": self.queue,
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "ms": self.length_ns / MS,
        }
        if self.stalled_ns:
            told["stalled_ms"] = self.stalled_ns / MS
        return told


@dataclass(frozen=True, slots=True)
class Service:
    """The acknowledgements that clients got, and when the load began and ended."""

    ops: Operations
    acked: Ints  # positions of acknowledged operations, in order of invocation
    times: dict[str, Ints]  # queue -> when its operations of the load were acknowledged, sorted
    begin_ns: int
    end_ns: int
    stalls: tuple[Stall, ...] = ()

    @staticmethod
    def read(ops: Operations, around: Surroundings) -> Service:
        load = around.phase("load")
        begin_ns = load.begin_ns if load else (int(ops.invoke_ns.min()) if len(ops) else 0)
        end_ns = load.end_ns if load and load.end_ns is not None else around.end_ns
        # A poll is no acknowledgement: slaves answer polls while none takes a send.
        acked = np.flatnonzero(ops.type.equal("ok") & ~ops.f.equal("poll"))
        acked = acked[np.argsort(ops.invoke_ns[acked], kind="stable")]
        loaded = acked[(ops.invoke_ns[acked] >= begin_ns) & (ops.complete_ns[acked] <= end_ns)]
        used = ops.key.codes[(ops.invoke_ns >= begin_ns) & (ops.invoke_ns <= end_ns)]
        names = {int(code): ops.key.names[code] for code in np.unique(used)}
        return Service(
            ops=ops,
            acked=acked,
            times={
                name: np.sort(ops.complete_ns[loaded[ops.key.codes[loaded] == code]])
                for code, name in names.items()
                if not name.startswith(EXCHANGE)  # no queue of its own
            },
            begin_ns=begin_ns,
            end_ns=end_ns,
            stalls=around.stalls,
        )

    def charged_off_ns(self, begin_ns: int, end_ns: int) -> int:
        return stalled_ns(self.stalls, begin_ns, end_ns, BACK_AFTER_NS)

    def gaps_in(self, begin_ns: int, end_ns: int) -> list[Gap]:
        """Each queue's longest gap of those that reach into [begin_ns, end_ns]."""
        return [
            gap
            for queue, times in self.times.items()
            if (gap := self._longest_gap(queue, times, begin_ns, end_ns)) is not None
        ]

    def _longest_gap(self, queue: str, times: Ints, begin_ns: int, end_ns: int) -> Gap | None:
        edges = np.concatenate(([self.begin_ns], times, [self.end_ns]))
        begins, ends = edges[:-1], edges[1:]
        touched = np.flatnonzero((ends > begin_ns) & (begins < end_ns))
        if not len(touched):
            return None
        if not self.stalls:
            place = touched[np.argmax(ends[touched] - begins[touched])]
            return Gap(queue, int(begins[place]), int(ends[place]))
        # Stalls are few; only gaps that are long without them can be the longest with them.
        by_length = touched[np.argsort(begins[touched] - ends[touched], kind="stable")]
        worst: Gap | None = None
        for place in by_length:
            begin, end = int(begins[place]), int(ends[place])
            if worst is not None and end - begin <= worst.length_ns:
                break
            gap = Gap(queue, begin, end, self.charged_off_ns(begin, end))
            if worst is None or gap.length_ns > worst.length_ns:
                worst = gap
        return worst

    def around_fault(self, fault: Fault) -> FaultOutage:
        ops, acked = self.ops, self.acked
        first = np.searchsorted(ops.invoke_ns[acked], fault.effective_ns)
        after = ops.complete_ns[acked[first:]]
        recovery_ns = None
        if len(after):
            first_ns = int(after.min())
            off_ns = self.charged_off_ns(fault.effective_ns, first_ns)
            recovery_ns = first_ns - fault.effective_ns - off_ns
        gaps = self.gaps_in(fault.effective_ns, fault.end_ns)
        worst = max(gaps, key=lambda gap: gap.length_ns, default=None)
        asked = (ops.invoke_ns >= fault.effective_ns) & (ops.invoke_ns <= fault.end_ns)
        count = int(asked.sum())
        return {
            "fault": fault.name,
            "operation": fault.index,
            "recovery_ms": None if recovery_ns is None else recovery_ns / MS,
            "longest_gap_ms": worst.length_ns / MS if worst else 0,
            "longest_gap": worst.detail() if worst else None,
            "queues": {gap.queue: gap.length_ns / MS for gap in gaps},
            "operations": count,
            "acknowledged": int((asked & ops.type.equal("ok")).sum()),
        }

    def acknowledged_fraction(self) -> float:
        """Of the enqueues or sends: a dequeue may rightly find nothing."""
        writes = self.ops.f.among(("enqueue", "send"))
        total = int(writes.sum())
        return int((writes & self.ops.type.equal("ok")).sum()) / total if total else 0
