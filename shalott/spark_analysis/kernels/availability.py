"""How long nobody got an acknowledgement, by queue and by fault: checkers/runs/availability.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shalott.checkers.history.columns import BETWEEN, UNANSWERED
from shalott.checkers.runs.availability import Service
from shalott.spark_analysis.kernels.reading import RunData


def availability_rows(run: str, data: RunData) -> Iterator[dict[str, Any]]:
    """Rows of UNAVAILABILITY."""
    ops = data.ops
    passed_over = ops.f.among((*BETWEEN, *UNANSWERED))
    if passed_over.any():
        ops = ops.take(~passed_over)
    service = Service.read(ops, data.around)
    for gap in service.gaps_in(service.begin_ns, service.end_ns):
        yield _row(run, "load", gap.queue, gap.begin_ns, gap.end_ns, gap.length_ns)
    for fault in data.around.injected:
        told = service.around_fault(fault)
        gap_, recovery_ms = told["longest_gap"], told["recovery_ms"]
        queue = gap_["queue"] if gap_ else ""
        begin_ns, end_ns = (gap_["begin_ns"], gap_["end_ns"]) if gap_ else (None, None)
        yield _row(run, "fault", queue, begin_ns, end_ns, _ns(told["longest_gap_ms"])) | {
            "fault": fault.kind,
            "target": "+".join(fault.nodes) or fault.target,
            "fault_id": fault.id,
            "effective_ns": fault.effective_ns,
            "healed_ns": fault.end_ns,
            "recovery_ns": None if recovery_ms is None else _ns(recovery_ms),
            "operations": told["operations"],
            "acknowledged": told["acknowledged"],
        }


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _row(
    run: str, kind: str, queue: str, begin_ns: int | None, end_ns: int | None, gap_ns: int
) -> dict[str, Any]:
    return {
        "run": run, "kind": kind, "fault": "", "target": "", "queue": queue, "fault_id": None,
        "effective_ns": None, "healed_ns": None, "begin_ns": begin_ns, "end_ns": end_ns,
        "gap_ns": gap_ns, "recovery_ns": None, "operations": None, "acknowledged": None,
    }  # fmt: skip
