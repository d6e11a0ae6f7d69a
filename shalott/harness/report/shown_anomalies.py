"""The checkers' results as a report lays them out: anomalies, and what they say of faults.

An object that is not linearizable has a timeline: the checker's explanation
(checkers/linearizability/explanation.py, in ``Result.detail``), drawn among the object's other
operations, where the history has them as the checker saw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.history.client_history import concurrent_history
from shalott.checkers.history.columns import Operations, client_operations
from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.linearizability.explanation import Explanation, from_detail
from shalott.checkers.linearizability.timeline import assets_html, nearest, timeline_body
from shalott.core.history import History
from shalott.harness.report import draw
from shalott.harness.report.draw import Bar
from shalott.harness.report.loss_windows import LOSS_WINDOWS
from shalott.harness.report.verdict_words import is_about_logs, weight

Detail = Mapping[str, Any]  # of a result or an anomaly (checkers/checker.py)
Row = dict[str, Any]  # of a history, or of its events
ANOMALIES_MAX = 40  # shown of one kind
ROWS_MAX = 32  # operations shown for one anomaly


@dataclass(frozen=True, slots=True)
class Cause:
    title: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ShownAnomaly:
    summary: str
    windows: list[str]
    causes: list[Cause]
    facts: list[tuple[str, str]]
    rows: list[Row]
    events: list[Row]
    span: tuple[float, float] | None  # ms, for the timeline
    span_label: str


@dataclass(frozen=True, slots=True)
class AnomalyGroup:
    """The anomalies of one kind by one checker."""

    kind: str
    checker: str
    valid: bool | str  # true: it breaks no promise
    total: int
    anomalies: list[ShownAnomaly]


@dataclass(frozen=True, slots=True)
class AvailabilityColumns:
    """Columns that the availability checker adds to the table of faults."""

    columns: list[str]
    rows: Mapping[int, list[str]]  # by the index of the fault's operation


def anomaly_groups(results: Sequence[Result], history: History) -> list[AnomalyGroup]:
    """All anomalies by checker and kind; evidence is looked up in the history."""
    kinds: dict[tuple[str, str], list[Anomaly]] = {}
    judged: dict[str, Result] = {}
    for result in results:
        judged[result.checker] = result
        for anomaly in result.anomalies:
            kinds.setdefault((result.checker, anomaly.kind), []).append(anomaly)
    shown = [a for found in kinds.values() for a in found[:ANOMALIES_MAX]]
    labels = {**_FACTS, "group": "group"} if is_about_logs(results) else _FACTS
    rows = _operations(history.ops, [i for a in shown for i in a.operations[:ROWS_MAX]])
    return [
        AnomalyGroup(
            kind=kind,
            checker=checker,
            valid=weight(judged[checker], kind),
            total=len(found),
            anomalies=[_shown(a, rows, history.events, labels) for a in found[:ANOMALIES_MAX]],
        )
        for (checker, kind), found in kinds.items()
    ]


def _operations(ops: pa.Table, indexes: Sequence[int]) -> dict[int, Row]:
    mask = pc.is_in(ops["index"], pa.array(sorted(dict.fromkeys(indexes)), pa.int64()))
    names = [name for name in ops.column_names if name not in ("extra", "offset")]
    return {row["index"]: row for row in ops.filter(mask).select(names).to_pylist()}


def _shown(
    anomaly: Anomaly, operations: Mapping[int, Row], events: pa.Table, labels: Mapping[str, str]
) -> ShownAnomaly:
    detail = anomaly.detail
    rows = [operations[i] for i in anomaly.operations[:ROWS_MAX] if i in operations]
    span = _span(detail, rows)
    window = detail.get("cause")
    return ShownAnomaly(
        summary=anomaly.summary,
        windows=[window] if window in LOSS_WINDOWS else [],
        causes=_causes(detail),
        facts=_facts(detail, labels),
        rows=rows,
        events=_events(detail, events),
        span=span,
        span_label="" if span is None else f"{span[0] / 1000:.1f}–{span[1] / 1000:.1f} s",
    )


def _span(detail: Detail, rows: Sequence[Detail]) -> tuple[float, float] | None:
    begin, end = detail.get("begin_ns"), detail.get("end_ns")
    if begin is None or end is None:
        if not rows:
            return None
        begin = min(row["invoke_ns"] for row in rows)
        end = max(row["complete_ns"] or row["invoke_ns"] for row in rows)
    return round(begin / 1e6, 1), round(end / 1e6, 1)


def _causes(detail: Detail) -> list[Cause]:
    cause = detail.get("cause")
    if not isinstance(cause, str):
        return []
    why = str(detail.get("why", "")).rstrip(".")
    if cause not in LOSS_WINDOWS:
        return [Cause("Likely cause:", f"{why or cause}.", "")]
    title, remedy = LOSS_WINDOWS[cause]
    return [Cause(f"Likely cause: window {cause}, {title}.", f"{why}." if why else "", remedy)]


# Field of a detail -> what the page calls it.
_FACTS = {
    "queue": "queue",
    "group": "queue",
    "acknowledged-by": "acknowledged by",
    "node": "through",
    "nodes": "nodes",
    "epoch": "epoch",
    "epochs": "epochs",
    "length": "messages",
    "count": "messages",
    "witness": "witness",
    "output": "last output",
}


def _facts(detail: Detail, labels: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    for name, label in labels.items():
        value = detail.get(name)
        if value not in (None, "", []):
            listed = isinstance(value, list | tuple)
            found.append((label, ", ".join(map(str, value)) if listed else str(value)))
    return found


def _events(detail: Detail, events: pa.Table) -> list[Row]:
    """The node events that a detail points at: positions in the history's events."""
    wanted = list(detail.get("events") or ())
    evidence = detail.get("evidence")
    if isinstance(evidence, dict) and "event" in evidence:
        wanted.append(evidence["event"])
    wanted += [step.get("event") for step in detail.get("steps") or () if isinstance(step, dict)]
    rows = [
        row for row in dict.fromkeys(wanted) if isinstance(row, int) and 0 <= row < events.num_rows
    ]
    found: list[Row] = events.take(pa.array(rows, pa.int64())).to_pylist()
    return found


def double_tenure_bars(results: Sequence[Result]) -> dict[str, list[Bar]]:
    """Two masters at once, by queue: those that acknowledged lie over those that only claimed."""
    found: dict[str, list[Bar]] = {}
    for kind in ("dual-master-claimed", "dual-master-effective"):
        for anomaly in (a for r in results for a in r.anomalies if a.kind == kind):
            begin, end = anomaly.detail.get("begin_ns"), anomaly.detail.get("end_ns")
            if begin is not None and end is not None:
                bar = Bar(round(begin / 1e6, 1), round(end / 1e6, 1), kind, "", anomaly.summary)
                found.setdefault(str(anomaly.detail.get("group", "")), []).append(bar)
    return found


def availability_columns(results: Sequence[Result]) -> AvailabilityColumns:
    """Time without service, per fault; no columns if no checker measured it."""
    result = next((r for r in results if r.checker == "availability"), None)
    faults = result.detail.get("faults", ()) if result else ()
    if not faults:
        return AvailabilityColumns([], {})
    return AvailabilityColumns(
        ["first ack after", "longest gap", "acknowledged"],
        {
            fault["operation"]: [
                _milliseconds(fault["recovery_ms"]),
                _milliseconds(fault["longest_gap_ms"]),
                f"{fault['acknowledged']:,} of {fault['operations']:,}",
            ]
            for fault in faults
        },
    )


def _milliseconds(value: float | None) -> str:
    return "never" if value is None else draw.duration_label(value * 1e6)


OPERATIONS_MAX = 10_000  # drawn around the first window
OTHERS_MAX = 1_000  # and around each of the others


@dataclass(frozen=True, slots=True)
class ObjectTimeline:
    """``html`` is a piece of the page."""

    key: str
    checker: str
    reason: str
    html: Markup


def object_timelines(results: Sequence[Result], history: History) -> list[ObjectTimeline]:
    """In the order of the results."""
    found = [(result, each) for result in results for each in from_detail(result.detail)]
    if not found:
        return []
    ops = client_operations(history)
    return [
        ObjectTimeline(
            key=explanation.key or explanation.model,
            checker=result.checker,
            reason=explanation.reason,
            html=Markup(
                timeline_body(
                    explanation,
                    surroundings(ops, explanation, OTHERS_MAX if number else OPERATIONS_MAX),
                )
            ),
        )
        for number, (result, explanation) in enumerate(found)
    ]


def timeline_assets() -> Markup:
    """Style and script of the timelines."""
    return Markup(assets_html())


def surroundings(ops: Operations, explanation: Explanation, most: int) -> ConcurrentHistory | None:
    """The object's operations, at most so many; None if the checker judged other ones."""
    wanted = ops.f.among(explanation.fs or tuple(explanation.meanings)) & ops.key.equal(
        explanation.key
    )
    if not wanted.any():
        return None
    history = concurrent_history(ops, wanted)
    calls = np.array([shown.call for shown in explanation.operations], dtype=np.int64)
    places = np.array([shown.place for shown in explanation.operations], dtype=np.int64)
    at = np.minimum(np.searchsorted(history.call, calls), len(history) - 1)
    if not (history.call[at] == calls).all() or not (history.place[at] == places).all():
        return None
    return nearest(history, explanation, most)
