"""Two masters at once, queues that were not drained, elections, truncations, and availability.

The overlaps are those of checkers/mastership/mastership.py, all of them: a checker lists only some.
Times without an acknowledgement, by queue and by fault, are those of checkers/runs/availability.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from shalott.checkers.checker import Anomaly
from shalott.checkers.history.columns import BETWEEN, UNANSWERED, Operations
from shalott.checkers.history.tenures import Overlap
from shalott.checkers.mastership.elections import breaches, elections_of
from shalott.checkers.mastership.masters_logs import cut_by_themselves
from shalott.checkers.mastership.mastership import acting_tenures, rival_masters
from shalott.checkers.queues.total_queue import undrained_queues
from shalott.checkers.runs.availability import Service
from shalott.spark_analysis.kernels.run_data import RunData
from shalott.spark_analysis.kernels.tables import Row


def master_rows(
    run: str, data: RunData, tolerance_ns: int, round_ns: int
) -> tuple[list[Row], list[Row]]:
    rivals = rival_masters(data.ops, data.events, data.around, tolerance_ns, round_ns)
    found = [
        *_overlap_rows(run, "claimed", [*rivals.claimed, *rivals.seen]),
        *_overlap_rows(run, "effective", rivals.effective),
        *(_epoch_row(run, anomaly) for anomaly in rivals.shared),
    ]
    return found, list(tenure_times(run, found))


def _overlap_rows(run: str, kind: str, overlaps: Iterable[Overlap]) -> Iterator[Row]:
    for overlap in overlaps:
        first, second = overlap.first, overlap.second
        yield {
            "run": run, "group": first.group, "kind": kind, "witness": first.witness,
            "nodes": sorted((first.node, second.node)),
            "begin_ns": overlap.begin_ns, "end_ns": overlap.end_ns, "epoch": None,
            "evidence": [first.evidence, second.evidence],
        }  # fmt: skip


def _epoch_row(run: str, anomaly: Anomaly) -> Row:
    told = anomaly.detail
    return {
        "run": run, "group": told["group"], "kind": "effective", "witness": "epoch",
        "nodes": sorted(told["nodes"]), "begin_ns": None, "end_ns": None,
        "epoch": told["epoch"], "evidence": list(told["events"]),
    }  # fmt: skip


def tenure_times(run: str, found: Sequence[Row]) -> Iterator[Row]:
    """By group and kind, how long there were two masters; no instant counts twice."""
    by_place: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        by_place.setdefault((row["group"], row["kind"]), []).append(row)
    for (group, kind), own in by_place.items():
        latest_ns, total_ns, stretches = -1, 0, 0
        timed = [(row["begin_ns"], row["end_ns"]) for row in own if row["begin_ns"] is not None]
        for begin_ns, end_ns in sorted(timed):
            stretches += begin_ns > latest_ns
            total_ns += max(0, end_ns - max(begin_ns, latest_ns))
            latest_ns = max(latest_ns, end_ns)
        yield {
            "run": run, "group": group, "kind": kind,
            "overlaps": len(own), "stretches": stretches, "total_ns": total_ns,
        }  # fmt: skip


def undrained_rows(run: str, data: RunData) -> Iterator[Row]:
    some = drain_phases(data)
    complete = data.history.complete
    for queue, why in undrained_queues(some, data.around, complete).items():
        yield {"run": run, "queue": queue, "why": why}


def drain_phases(data: RunData) -> Operations:
    """The rows that ``undrained_queues`` goes by: what failed, and declarations, from the drain on;
    and one row for each queue, node and f there is, since it asks which were ever used."""
    ops, drain = data.ops, data.around.phase("drain")
    widths = (len(ops.key.names), len(ops.node.names), len(ops.f.names))
    places = ops.key.codes.astype(np.int64)
    for words, width in ((ops.node, widths[1]), (ops.f, widths[2])):
        places = places * width + words.codes
    size = widths[0] * widths[1] * widths[2]
    if size > 4 * len(ops) + 1024:
        return ops
    first = np.full(size, -1, dtype=np.int64)
    first[places] = np.arange(len(ops))
    kept = np.zeros(len(ops), dtype=np.bool_)
    kept[first[first >= 0]] = True
    if drain is not None:
        is_late = np.asarray(ops.invoke_ns >= drain.begin_ns)
        late = ops.take(is_late)
        told = late.type.equal("fail") | late.f.equal("declare-queue")
        kept[np.flatnonzero(is_late)[told]] = True
    return ops.take(kept)


def election_rows(run: str, data: RunData, tolerance_ns: int) -> Iterator[Row]:
    events = data.events
    elections = elections_of(events)
    found = breaches(events, elections, acting_tenures(events), tolerance_ns)
    cut = list(cut_by_themselves(events))
    groups = sorted({event.group for event in events if event.group})
    for group in groups:
        own = [event for event in events if event.group == group]
        masters = [event for event in own if event.kind == "role" and event.role == "master"]
        kinds = [anomaly.kind for anomaly in found if anomaly.detail["group"] == group]
        taken = [_truncated(event.detail) for event in own if event.kind == "truncated"]
        told = ("epoch-regression", "acked-while-deposed")
        yield {
            "run": run, "group": group,
            "elections": sum(one.event.group == group for one in elections),
            "masters": len(masters),
            "epoch_max": max((event.epoch for event in masters), default=0),
            "epoch_regressions": kinds.count(told[0]),
            "acked_while_deposed": kinds.count(told[1]),
            "misheard": sum(kind not in told for kind in kinds),
            "truncations": len(taken), "truncated": sum(taken),
            "truncated_most": max(taken, default=0),
            "cut_acknowledged": sum(anomaly.detail["group"] == group for anomaly in cut),
        }  # fmt: skip


def _truncated(detail: Row) -> int:
    """By how much a log became shorter, in the units of its offsets; 0 where no event says."""
    begin, end = detail.get("to"), detail.get("from")
    return max(0, end - begin) if isinstance(begin, int) and isinstance(end, int) else 0


def availability_rows(run: str, data: RunData) -> Iterator[Row]:
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
) -> Row:
    return {
        "run": run, "kind": kind, "fault": "", "target": "", "queue": queue, "fault_id": None,
        "effective_ns": None, "healed_ns": None, "begin_ns": begin_ns, "end_ns": end_ns,
        "gap_ns": gap_ns, "recovery_ns": None, "operations": None, "acknowledged": None,
    }  # fmt: skip
