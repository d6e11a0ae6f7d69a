"""The checkers of the oracles inside the simulation (core/oracles.py): each reads what its oracle
wrote among the nodes' events.

A run in which an oracle was asked nothing proves nothing about it: it is told by a count of zero,
and judged by the other checkers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shalott.checkers.checker import Anomaly, CheckerRecord, Result
from shalott.checkers.history.tenures import NodeEvent, read_events
from shalott.core.history import History
from shalott.core.oracles import ASKED, ORACLES, VIOLATED, Oracle

SIMULATION = "sim"  # the backend


@dataclass(frozen=True, slots=True)
class OracleChecker:
    oracle: Oracle

    @property
    def name(self) -> str:
        return self.oracle.name

    def check(self, history: History) -> Result:
        told = list(_told(history, self.oracle))
        count = sum(int(one.detail.get("count", 0)) for one in told if one.kind == ASKED)
        broken = [one for one in told if one.kind == VIOLATED]
        return Result(
            checker=self.name,
            valid=not broken,
            counts={"asked-count": count, f"{self.oracle.kind}-count": len(broken)},
            anomalies=tuple(self._anomaly(one) for one in broken),
        )

    def _anomaly(self, event: NodeEvent) -> Anomaly:
        return Anomaly(
            kind=self.oracle.kind,
            summary=str(event.detail.get("summary", "")),
            detail={
                **event.detail, "nodes": [event.node], "events": [event.row],
                "at_ns": event.run_ns,
            },
        )  # fmt: skip


def _told(history: History, oracle: Oracle) -> Iterator[NodeEvent]:
    for event in read_events(history):
        if event.kind in (ASKED, VIOLATED) and event.detail.get("oracle") == oracle.name:
            yield event


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
