"""The checkers of the oracles inside the simulation (core/oracles.py): each reads what its oracle
wrote among the nodes' events.

A run in which an oracle was asked nothing proves nothing about it: it is told by a count of zero,
and judged by the other checkers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.checker import Anomaly, CheckerRecord, Result
from shalott.checkers.history.faults import Decoded, decode_object
from shalott.core.history import History
from shalott.core.oracles import ASKED, ORACLES, VIOLATED, Oracle

SIMULATION: Final = "sim"  # the backend


@dataclass(frozen=True, slots=True)
class OracleChecker:
    oracle: Oracle

    @property
    def name(self) -> str:
        return self.oracle.name

    def check(self, history: History) -> Result:
        count, broken = 0, []
        for row, event in _told(history):
            detail = decode_object(event["detail"])
            if detail.get("oracle") != self.name:
                continue
            if event["kind"] == ASKED:
                count += int(detail.get("count", 0))
            else:
                where = {"nodes": [event["node"]], "events": [row], "at_ns": event["run_ns"]}
                broken.append(self._anomaly({**detail, **where}))
        return Result(
            checker=self.name,
            valid=not broken,
            counts={"asked-count": count, f"{self.oracle.kind}-count": len(broken)},
            anomalies=tuple(broken),
        )

    def _anomaly(self, detail: Decoded) -> Anomaly:
        summary = str(detail.pop("summary", ""))
        return Anomaly(kind=self.oracle.kind, summary=summary, detail=detail)


def _told(history: History) -> list[tuple[int, Decoded]]:
    """What oracles wrote, with its row."""
    events = history.events
    kinds = pa.array([ASKED, VIOLATED])  # not at the top: pyarrow imports pandas for it
    rows = pc.indices_nonzero(pc.is_in(events["kind"], value_set=kinds))
    columns = events.select(["node", "run_ns", "kind", "detail"]).take(rows)
    return list(zip(rows.to_pylist(), columns.to_pylist(), strict=True))


def _record(oracle: Oracle) -> CheckerRecord:
    return CheckerRecord(
        name=oracle.name,
        summary=oracle.summary,
        make=lambda plan: OracleChecker(oracle),
        reads=("events",),
        promise=oracle.promise,
        source=oracle.source,
        fits=lambda plan: plan.cluster.backend == SIMULATION,
    )


OF_ORACLES = tuple(_record(oracle) for oracle in ORACLES)
