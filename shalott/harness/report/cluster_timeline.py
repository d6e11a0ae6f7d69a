"""What a report draws around the clients' operations: who was master when, who was down, proofs.

Role spans come from two witnesses that are kept apart: the nodes' own event logs (``recorded``) and
what the harness saw by polling (``observed``). A node that was killed has no say: its spans end
with it. A paused one keeps what it believes, which is just what makes pauses dangerous.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.faults import (
    Fault,
    Observation,
    Phase,
    decode_object,
    read_surroundings,
)
from shalott.core.history import History
from shalott.core.op import NEMESIS

_SILENT_INTERVALS = 3  # polls missed before an observed role is no longer believed
_OWN_DOWNTIME = {
    "stopped": "down",
    "paused": "paused",
}  # what a node says of itself -> how it is drawn


@dataclass(frozen=True, slots=True)
class Probe:
    """One proof that a fault took hold or was healed."""

    phase: str
    check: str
    expected: str
    seen: str
    passed: bool
    error: str


@dataclass(frozen=True, slots=True)
class Span:
    """``node`` played ``role`` for ``group`` in [begin_ns, end_ns); for itself if that is empty."""

    node: str
    group: str
    role: str
    begin_ns: int
    end_ns: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    begin_ns: int  # of the load, from which on it is drawn
    end_ns: int
    faults: tuple[Fault, ...]
    probes: Mapping[int, tuple[Probe, ...]]  # by fault id
    phases: tuple[Phase, ...]
    nodes: tuple[str, ...]
    groups: tuple[str, ...]
    recorded: tuple[Span, ...]
    observed: tuple[Span, ...]
    downtime: tuple[Span, ...]  # role is down or paused


def read_timeline(history: History, nodes: Sequence[str], observe_interval_ms: int) -> Timeline:
    around = read_surroundings(history)
    end_ns = max(1, around.end_ns)
    downtime = [*_fault_downtime(around.faults), *_own_downtime(history.events, end_ns)]
    merged = tuple(_merge_downtime(downtime))
    recorded = tuple(_cut_by_deaths(_recorded_spans(history.events, end_ns), merged))
    observed = tuple(_observed_spans(around.observations, observe_interval_ms * 1_000_000, end_ns))
    spans = (*recorded, *observed)
    load = around.phase("load")
    return Timeline(
        begin_ns=min(load.begin_ns, end_ns - 1) if load else 0,
        end_ns=end_ns,
        faults=around.faults,
        probes=_probes(history.ops),
        phases=around.phases,
        nodes=tuple(dict.fromkeys([*nodes, *(span.node for span in spans)])),
        groups=tuple(sorted({span.group for span in spans})),
        recorded=recorded,
        observed=observed,
        downtime=merged,
    )


def _probes(ops: pa.Table) -> dict[int, tuple[Probe, ...]]:
    mask = pc.and_(pc.equal(ops["process"], NEMESIS), pc.equal(ops["f"], "probe"))
    found: dict[int, list[Probe]] = {}
    for row in ops.filter(mask).to_pylist():
        extra = decode_object(row["extra"])
        found.setdefault(extra.get("fault", -1), []).append(
            Probe(
                phase=str(extra.get("phase", "")),
                check=str(extra.get("check", "")),
                expected=_word(extra.get("expected")),
                seen=_word(extra.get("seen")),
                passed=row["type"] == "ok",
                error=row["error"] or "",
            )
        )
    return {fault: tuple(probes) for fault, probes in found.items()}


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _fault_downtime(faults: Iterable[Fault]) -> Iterator[Span]:
    for fault in faults:
        if fault.takes_processes or fault.suspends:
            role = "down" if fault.takes_processes else "paused"
            for node in fault.nodes:
                if not fault.skipped:
                    yield Span(node, "", role, fault.effective_ns, fault.end_ns)


def _own_downtime(events: pa.Table, end_ns: int) -> Iterator[Span]:
    """From a node's own ``stopped`` or ``paused`` (pause_minority) to its next word of itself."""
    rows = _role_rows(events, pc.equal(events["group"], ""))
    by_node: dict[str, list[_RoleRow]] = {}
    for row in rows:
        by_node.setdefault(row["node"], []).append(row)
    for node, own in by_node.items():
        for row, after_ns in zip(own, _after(own, end_ns), strict=True):
            begin, end = max(0, row["run_ns"]), min(end_ns, after_ns)
            if row["role"] in _OWN_DOWNTIME and end > begin:
                yield Span(node, "", _OWN_DOWNTIME[row["role"]], begin, end)


def _after(rows: Sequence[_RoleRow], end_ns: int) -> list[int]:
    """When the next row of each came, or the end."""
    return [*(row["run_ns"] for row in rows[1:]), end_ns]


class _RoleRow(TypedDict):
    run_ns: int
    node: str
    group: str
    role: str
    epoch: int


def _role_rows(events: pa.Table, chosen: pa.ChunkedArray) -> list[_RoleRow]:
    mask = pc.and_(pc.and_(pc.equal(events["kind"], "role"), chosen), pc.is_valid(events["run_ns"]))
    rows = events.filter(mask).select(["run_ns", "node", "group", "role", "epoch"]).to_pylist()
    return sorted(rows, key=lambda row: row["run_ns"])


def _merge_downtime(spans: Iterable[Span]) -> Iterator[Span]:
    """Each node's touching downtimes of one role as one span."""
    ordered = sorted(spans, key=lambda s: (s.node, s.role, s.begin_ns, s.end_ns))
    current: Span | None = None
    for span in ordered:
        same = current and (span.node, span.role) == (current.node, current.role)
        if current and same and span.begin_ns <= current.end_ns:
            end = max(current.end_ns, span.end_ns)
            current = Span(span.node, "", span.role, current.begin_ns, end)
            continue
        if current:
            yield current
        current = span
    if current:
        yield current


def _recorded_spans(events: pa.Table, end_ns: int) -> Iterator[Span]:
    lanes: dict[tuple[str, str], list[_RoleRow]] = {}
    for row in _role_rows(events, pc.not_equal(events["group"], "")):
        lanes.setdefault((row["group"], row["node"]), []).append(row)
    for (group, node), own in sorted(lanes.items()):
        for row, after_ns in zip(own, _after(own, end_ns), strict=True):
            begin, end = max(0, row["run_ns"]), min(end_ns, after_ns)
            if end > begin:
                yield Span(node, group, row["role"], begin, end, row["epoch"])


def _cut_by_deaths(spans: Iterable[Span], downtime: Iterable[Span]) -> Iterator[Span]:
    """A killed process holds no role, not even after its restart, until it says so."""
    deaths: dict[str, list[int]] = {}
    for down in downtime:
        if down.role == "down":
            deaths.setdefault(down.node, []).append(down.begin_ns)
    for span in spans:
        inside = [at for at in deaths.get(span.node, ()) if span.begin_ns < at < span.end_ns]
        end = min([span.end_ns, *inside])
        yield Span(span.node, span.group, span.role, span.begin_ns, end, span.epoch)


def _observed_spans(
    observations: Iterable[Observation], interval_ns: int, end_ns: int
) -> Iterator[Span]:
    """Each answer holds until the same node's next one, or until it has been silent for a while."""
    by_node: dict[str, list[Observation]] = {}
    for seen in observations:
        by_node.setdefault(seen.node, []).append(seen)
    for node, polls in sorted(by_node.items()):
        spans: dict[str, list[Span]] = {}
        for seen, after in zip(polls, [*polls[1:], None], strict=True):
            silent_ns = seen.end_ns + _SILENT_INTERVALS * interval_ns
            until = min(_next_word_ns(after, end_ns), silent_ns)
            if seen.ok and until > seen.end_ns:
                for claim in seen.claims:
                    span = Span(node, claim.group, claim.role, seen.end_ns, until, claim.epoch)
                    _extend(spans.setdefault(claim.group, []), span)
        for found in spans.values():
            yield from found


def _next_word_ns(after: Observation | None, end_ns: int) -> int:
    """Up to a next answer; where none came, only up to the question."""
    if after is None:
        return end_ns
    return after.end_ns if after.ok else after.begin_ns


def _extend(spans: list[Span], span: Span) -> None:
    last = spans[-1] if spans else None
    if last and last.end_ns == span.begin_ns and (last.role, last.epoch) == (span.role, span.epoch):
        spans[-1] = Span(span.node, span.group, span.role, last.begin_ns, span.end_ns, span.epoch)
    else:
        spans.append(span)
