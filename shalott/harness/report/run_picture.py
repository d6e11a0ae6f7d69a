"""The stage of a report: latency, rates and roles on one time axis, faults behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.faults import Fault
from shalott.harness.report import draw
from shalott.harness.report.cluster_timeline import Span, Timeline
from shalott.harness.report.draw import Bar, RatePanel, Shape, Tick
from shalott.harness.report.losses import LossLane
from shalott.harness.report.series import OUTCOMES, Floats, Latencies, Rates

GROUPS_MAX = 12  # queues drawn; the rest are named
SPANS_MAX = 4000
_NUMBERS_ACROSS = 40  # of faults that are too narrow for their numbers


@dataclass(frozen=True, slots=True)
class Lane:
    """One node's role for one group: as its own log says, as polls saw it, and when it was away."""

    node: str
    recorded: list[Bar]
    observed: list[Bar]
    away: list[Bar]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    lanes: list[Lane]
    double_tenures: list[Bar]  # by the mastership checker, not by what is drawn here


@dataclass(frozen=True, slots=True)
class Stage:
    begin_ms: float  # of the load
    end_ms: float
    boot: str  # what came before, in words; "" if nothing did
    ticks: list[Tick]
    phases: list[Bar]
    faults: list[Bar]
    fault_rows: int
    losses: list[LossLane]
    latency_ticks: list[Tick]
    latency_shapes: list[Shape]
    latency_is_tiled: bool
    quantiles: list[tuple[str, str]]  # css class, path
    rates: list[RatePanel]
    groups: list[Group]
    groups_left_out: list[str]
    cursor_data: dict[str, object]


def build_stage(
    timeline: Timeline,
    rates: Rates,
    latencies: Latencies,
    losses: Sequence[LossLane],
    double_tenures: Mapping[str, list[Bar]],
) -> Stage:
    """Everything that the template draws on the time axis."""
    begin_ms, end_ms = round(timeline.begin_ns / 1e6, 1), timeline.end_ns / 1e6
    ordered = [*double_tenures, *(g for g in timeline.groups if g not in double_tenures)]
    faults = _fault_bars(timeline.faults, end_ms - begin_ms)
    load = _load_buckets(timeline, rates.width_ms)
    shapes = draw.point_shapes(latencies) or draw.tile_shapes(latencies, end_ms)
    return Stage(
        begin_ms=begin_ms,
        end_ms=end_ms,
        boot=_boot(timeline),
        ticks=draw.time_ticks(end_ms, begin_ms),
        phases=[
            _bar(p.begin_ns, p.end_ns or timeline.end_ns, p.name, p.name, p.name)
            for p in timeline.phases
        ],
        faults=faults,
        fault_rows=1 + max((bar.row for bar in faults), default=0),
        losses=list(losses),
        latency_ticks=draw.latency_ticks(latencies),
        latency_shapes=shapes,
        latency_is_tiled=bool(latencies.tiles),
        quantiles=[
            (f"p{100 * q:.0f}", draw.quantile_path(latencies, q)) for q in latencies.quantiles_ns
        ],
        rates=[_rate_panel(rates, i, load) for i in range(len(rates.names))],
        groups=[
            _group(timeline, name, double_tenures.get(name, [])) for name in ordered[:GROUPS_MAX]
        ],
        groups_left_out=ordered[GROUPS_MAX:],
        cursor_data=_cursor_data(rates, latencies),
    )


def _boot(timeline: Timeline) -> str:
    """What is left of the axis: it is told, and drawn to no scale."""
    if timeline.begin_ns <= 0:
        return ""
    before = timeline.phases[0].name if timeline.phases else "boot"
    return f"{before} {draw.duration_label(timeline.begin_ns)}"


def _bar(begin_ns: float, end_ns: float, kind: str, label: str, title: str, row: int = 0) -> Bar:
    return Bar(round(begin_ns / 1e6, 1), round(end_ns / 1e6, 1), kind, label, title, row)


def fault_label(fault: Fault) -> str:
    """What it was and whom it hit, short enough for a bar."""
    return f"{fault.kind} {fault_target(fault)}".strip()


def fault_target(fault: Fault) -> str:
    """The nodes it hit; for a partition, the sides."""
    if fault.nodes:
        return " ".join(fault.nodes)
    return f"{len(fault.links)} links" if fault.links else fault.target


def _fault_bars(faults: Sequence[Fault], span_ms: float) -> list[Bar]:
    """A bar has room for its number at least: that stands beside it where it is narrow."""
    injected = sorted((f for f in faults if not f.skipped), key=lambda f: f.effective_ns)
    spans = [(fault.effective_ns / 1e6, fault.end_ns / 1e6) for fault in injected]
    rows = draw.pack_rows(spans, gap=span_ms / _NUMBERS_ACROSS)
    return [
        Bar(
            round(begin, 1),
            round(end, 1),
            fault.kind.split("-")[0],
            f"{fault.id} {fault_label(fault)}",
            f"fault {fault.id}: {fault_label(fault)}, {draw.seconds_label(begin)} to "
            f"{draw.seconds_label(end)}",
            row,
            str(fault.id),
        )
        for fault, row, (begin, end) in zip(injected, rows, spans, strict=True)
    ]


def _load_buckets(timeline: Timeline, width_ms: int) -> slice:
    load = next((phase for phase in timeline.phases if phase.name == "load"), None)
    if load is None:
        return slice(None)
    width_ns = width_ms * 1_000_000
    end_ns = timeline.end_ns if load.end_ns is None else load.end_ns
    return slice(load.begin_ns // width_ns, end_ns // width_ns + 1)


def _rate_panel(rates: Rates, index: int, load: slice) -> RatePanel:
    per_second = rates.per_second[index]
    top = draw.rate_top(per_second, load)
    return RatePanel(
        rates.names[index], draw.rate_ticks(top), draw.rate_shapes(per_second, rates.width_ms, top)
    )


def _group(timeline: Timeline, name: str, double_tenures: list[Bar]) -> Group:
    lanes = [
        Lane(
            node=node,
            recorded=_role_bars(timeline.recorded, name, node),
            observed=_role_bars(timeline.observed, name, node),
            away=[
                _bar(s.begin_ns, s.end_ns, s.role, s.role, f"{node} {s.role}")
                for s in timeline.downtime
                if s.node == node
            ],
        )
        for node in timeline.nodes
    ]
    return Group(name, lanes, double_tenures)


def _role_bars(spans: Sequence[Span], group: str, node: str) -> list[Bar]:
    mine = [span for span in spans if span.group == group and span.node == node]
    return [
        _bar(s.begin_ns, s.end_ns, s.role, s.role, f"{node}: {s.role} of {group}, epoch {s.epoch}")
        for s in mine[:SPANS_MAX]
    ]


def _cursor_data(rates: Rates, latencies: Latencies) -> dict[str, object]:
    """What the cursor reads out, per bucket: whole operations a second, latency in µs."""
    return {
        "width": rates.width_ms,
        "rates": {
            name: {
                outcome: [round(float(value), 1) for value in series[outcome]]
                for outcome in OUTCOMES
                if outcome in series
            }
            for name, series in zip(rates.names, rates.per_second, strict=True)
        },
        "p50": _microseconds(latencies.quantiles_ns[0.5]),
        "p99": _microseconds(latencies.quantiles_ns[0.99]),
    }


def _microseconds(values: Floats) -> list[int | None]:
    return [None if np.isnan(value) else int(value / 1000) for value in values]
