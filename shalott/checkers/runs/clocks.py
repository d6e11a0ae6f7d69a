"""clocks: what nodes wrote down lies where it happened on the run's clock.

A wall clock that is stepped while a run lasts is a row ``clock-step`` (harness/run/clock_watch.py)
and is told; events are placed in spite of it. A run with events that can't be placed, rows
``unplaced``, is unknown: it is not known what they came before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from shalott.checkers.checker import Result
from shalott.checkers.history.faults import decode_object
from shalott.core.history import History
from shalott.core.op import NEMESIS

S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Clocks:
    name: str = "clocks"

    def check(self, history: History) -> Result:
        ops = history.ops
        rows = ops.filter(
            pc.and_(
                pc.equal(ops["process"], NEMESIS),
                pc.or_(pc.equal(ops["f"], "clock-step"), pc.equal(ops["f"], "unplaced")),
            )
        ).to_pylist()
        steps, doubts = [], []
        for row in rows:
            extra = decode_object(row["extra"])
            if row["f"] == "unplaced":
                doubts.append(str(extra.get("reason") or "events can't be placed"))
                continue
            whose = row["node"] or "the harness"
            at_s = int(extra.get("end_ns") or row["invoke_ns"]) / S
            by_s = int(extra.get("by_ns") or 0) / S
            steps.append(f"the wall clock of {whose} was stepped by {by_s:+.3f} s at {at_s:.1f} s")
        left_out = history.events["run_ns"].null_count
        if left_out and not doubts:
            doubts.append(f"{left_out} events of nodes could not be placed on the run's clock")
        return Result(
            checker=self.name,
            valid="unknown" if doubts else True,
            counts={"clock-step-count": len(steps), "unplaced-event-count": left_out},
            notes=tuple(f"Events can't be placed: {doubt}." for doubt in doubts),
            detail={"summary": f"Clocks: {'; '.join(steps)}." if steps else ""},
        )
