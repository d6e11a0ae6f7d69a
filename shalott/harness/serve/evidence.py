"""Why a run is red: its gravest anomalies in words, each with its messages, its fault, and the log
of its node at that second.

A checker's anomaly names operations, nodes and times as far as it knows them (checkers/checker.py);
what it does not say is looked up in the history. What can't be found has no link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec
import pyarrow.dataset as ds

from shalott.checkers.checker import Anomaly, Result
from shalott.core.errors import UsageError
from shalott.core.plan import decode_plan
from shalott.harness.report.report_page import cause_lines
from shalott.harness.report.results import RunResults, gravity, violations
from shalott.harness.run.store import PLAN
from shalott.harness.serve.history_view import read_history
from shalott.harness.serve.request import Query, Refused, RunPath, StoredFile, StoreFiles, link
from shalott.harness.store.columns import Row

EVIDENCE_MAX = 8
MESSAGES_MAX = 25  # shown of one anomaly at once
AROUND_S = 1.0  # of messages whose operations are not named
PLAN_MAX = 8 << 20
INDEX_MAX = 2**62
COLUMNS = ("index", "node", "key", "value", "invoke_ns", "complete_ns")
# What reading a plan or a verdict of another version, or a damaged one, may end in.
_UNFIT = (
    *(Refused, UsageError, ArithmeticError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),
)
PLACES = ("messages", "fault", "log")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """An anomaly because of which the run is not valid. ``at_s``: since the run's start. Links are
    "" where there is nothing to lead to. ``fault``: in force then, or the last before; of what was
    acknowledged before any fault, the first."""

    kind: str
    checker: str
    sentence: str
    more: int  # of its kind
    at_s: float | None
    node: str
    messages: str
    fault: str
    fault_link: str
    log: str


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """``causes``: what the checkers take for the cause of what was lost. ``faults``: what the plan
    did to the nodes."""

    causes: tuple[str, ...] = ()
    faults: str = ""
    evidence: tuple[Evidence, ...] = ()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    operation: int
    begin_ns: int
    end_ns: int | None


def why_of(places: StoreFiles, run: RunPath, results: RunResults | None) -> Why:
    """Nothing of a valid run."""
    if results is None or results.valid is True:
        return Why()
    broken = violations(results.results)
    found = [_of_kind(results.results, checker, kind) for checker, kind in broken]
    chosen = sorted((own for own in found if own), key=lambda own: gravity(own[0].kind))
    told = chosen[:EVIDENCE_MAX]
    noticed = _noticed(results.results)
    firsts = [own[0].operations[0] for own in told if own[0].operations]
    rows = _operations(places, run, [*firsts, *map(_operation, noticed)])
    faults = _faults(noticed, rows)
    files, _ = places.files(run)
    checkers = {
        own[0].kind: checker for own, (checker, _) in zip(found, broken, strict=True) if own
    }
    return Why(
        causes=_causes(places, run, results.results),
        faults=_summary(results.results),
        evidence=tuple(
            _evidence(run, own, checkers[own[0].kind], rows, faults, files) for own in told
        ),
    )


def evidence_link(places: StoreFiles, results: RunResults | None, query: Query) -> str:
    """Where a finding's messages, fault or log is: of the kind that is asked for, or the gravest
    that has one; else the run's page. Raises Refused."""
    run = places.run(query.file_name("run"))
    to, kind = query.one_of("to", PLACES), query.text("kind")
    found = why_of(places, run, results).evidence
    ranked = [one for one in found if one.kind == kind] + list(found)
    name = {"fault": "fault_link"}.get(to, to)
    return next((str(getattr(one, name)) for one in ranked if getattr(one, name)), "") or link(
        "/run", run=run.name
    )


def _of_kind(results: Sequence[Result], checker: str, kind: str) -> list[Anomaly]:
    own = [one for one in results if one.checker == checker]
    return [each for one in own for each in one.anomalies if each.kind == kind]


def _noticed(results: Sequence[Result]) -> list[Mapping[str, object]]:
    """The faults that took effect."""
    found = [one.detail.get("faults") for one in results if one.checker == "noticed"]
    rows = [each for rows in found if isinstance(rows, list) for each in rows]
    return [
        each
        for each in rows
        if isinstance(each, dict) and isinstance(each.get("operation"), int)
        if each.get("outcome") == "effective"
    ]


def _operation(fault: Mapping[str, object]) -> int:
    """Its index in the history; -1 is none."""
    found = fault.get("operation")
    return found if isinstance(found, int) else -1


def _summary(results: Sequence[Result]) -> str:
    texts = [one.detail.get("summary") for one in results if one.checker == "noticed"]
    return next((text for text in texts if isinstance(text, str)), "")


def _operations(places: StoreFiles, run: RunPath, wanted: Sequence[int]) -> dict[int, Row]:
    """The rows of some operations, by index; none where there is no history."""
    own = [number for number in wanted if 0 <= number < INDEX_MAX]
    if not own:
        return {}
    index = ds.field("index")  # bounds, since the file's statistics are by them
    near = (index >= min(own)) & (index <= max(own)) & index.isin(own)
    try:
        table, _ = read_history(places, run)
        found = table.to_table(columns=list(COLUMNS), filter=near)
    except (Refused, OSError, ValueError, OverflowError):
        return {}
    return {row["index"]: row for row in found.to_pylist()}


def _faults(noticed: Iterable[Mapping[str, object]], rows: Mapping[int, Row]) -> list[Fault]:
    found = []
    for one in noticed:
        row = rows.get(_operation(one))
        if row is not None and row["invoke_ns"] is not None:
            found.append(
                Fault(
                    name=str(one.get("name", "")),
                    operation=row["index"],
                    begin_ns=row["invoke_ns"],
                    end_ns=row["complete_ns"],
                )
            )
    return sorted(found, key=lambda fault: fault.begin_ns)


def _evidence(
    run: RunPath,
    own: Sequence[Anomaly],
    checker: str,
    rows: Mapping[int, Row],
    faults: Sequence[Fault],
    files: Sequence[StoredFile],
) -> Evidence:
    first = own[0]
    row = rows.get(first.operations[0]) if first.operations else None
    at_ns = _time(first, row)
    node = _node(first, row)
    before = [fault for fault in faults if at_ns is None or fault.begin_ns <= at_ns]
    fault = before[-1] if before else next(iter(faults), None)
    at_s = None if at_ns is None else at_ns / 1e9
    log = _log_of(node, files)
    return Evidence(
        kind=first.kind,
        checker=checker,
        sentence=first.summary,
        more=len(own) - 1,
        at_s=at_s,
        node=node,
        messages=_messages(run, own, at_s),
        fault=fault.name if fault else "",
        fault_link=link("/run/history", run=run.name, op=fault.operation) if fault else "",
        log=link("/run/text", run=run.name, file=log, at_s=_text(at_s)) if log else "",
    )


def _text(at_s: float | None) -> str | None:
    return None if at_s is None else f"{max(at_s, 0):.3f}"


def _time(anomaly: Anomaly, row: Row | None) -> int | None:
    for name in ("at_ns", "begin_ns"):
        value = anomaly.detail.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    if row is None:
        return None
    at_ns: int | None = row["invoke_ns"] if row["complete_ns"] is None else row["complete_ns"]
    return at_ns


def _node(anomaly: Anomaly, row: Row | None) -> str:
    """Who acknowledged it, or where it happened."""
    for name in ("acknowledged-by", "node", "nodes"):
        value = anomaly.detail.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str) and value:
            return value
    return str(row["node"] or "") if row is not None else ""


def _messages(run: RunPath, own: Sequence[Anomaly], at_s: float | None) -> str:
    operations = dict.fromkeys(index for one in own for index in one.operations)
    if operations:
        shown = ",".join(map(str, list(operations)[:MESSAGES_MAX]))
        return link("/run/history", run=run.name, op=shown)
    if at_s is None:
        return ""
    begin, end = _text(at_s - AROUND_S), _text(at_s + AROUND_S)
    return link("/run/history", run=run.name, whose="clients", from_s=begin, to_s=end)


def _log_of(node: str, files: Sequence[StoredFile]) -> str:
    """The longest log of the node; "" if none was collected."""
    own = [
        file
        for file in files
        if PurePosixPath(file.name).parts[:2] == ("nodes", node) and file.name.endswith(".log")
    ]
    return max(own, key=lambda file: file.bytes).name if own else ""


def _causes(places: StoreFiles, run: RunPath, results: Sequence[Result]) -> tuple[str, ...]:
    """As the report says them; none where the plan can't be read here."""
    try:
        with places.opened(run, PLAN) as file:
            plan = decode_plan(file.read(PLAN_MAX), PLAN)
        lines = cause_lines(plan, results)
    except _UNFIT:
        return ()
    return tuple(
        " ".join(filter(None, (f"{one.title.capitalize()}: {one.share}.", one.remedy)))
        for one in lines
    )
