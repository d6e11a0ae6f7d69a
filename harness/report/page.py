"""report.html: one self-contained page that says what a run did, what it proved, and how.

``render_report`` is a pure function of the plan, the history and the results; nothing is fetched,
now or when the page is read. The page works without its script (which adds zoom, a cursor and
copying) and on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2
import msgspec

from shalott.checkers.base import Result
from shalott.harness.core.history import History
from shalott.harness.core.plan import Plan
from shalott.harness.core.profiles import LOG_WORKLOADS, is_log_system
from shalott.harness.report import draw
from shalott.harness.report.data import Probe, Timeline, read_timeline
from shalott.harness.report.fates import fates
from shalott.harness.report.findings import (
    anomaly_groups,
    availability_columns,
    double_reign_bars,
    loss_bars,
    loss_tables,
)
from shalott.harness.report.linearizability import object_timelines, timeline_assets
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.run_picture import build_stage, fault_target
from shalott.harness.report.series import OUTCOMES, WRITES, Clients, latencies, rates, read_clients
from shalott.harness.report.words import (
    LOSS_WINDOWS,
    findings,
    headline,
    overall,
    severity,
    valid_word,
)

__all__ = ["ReportMeta", "render_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_PROOFS_MAX = 4


def render_report(plan: Plan, history: History, results: Sequence[Result], meta: ReportMeta) -> str:
    """The whole page as text."""
    timeline = read_timeline(history, plan.cluster.nodes, plan.observe_interval_ms)
    clients = read_clients(history)
    ordered = sorted(results, key=lambda result: severity(result.valid))
    groups = anomaly_groups(ordered, history)
    word, _, rest = headline(ordered).partition(":")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            plan=plan,
            is_log=is_log_system(plan.system.name),
            meta=meta,
            started=datetime.fromtimestamp(meta.started_wall_ns / 1e9, UTC),
            complete=history.complete,
            valid=overall(results),
            headline_word=word,
            headline_rest=f":{rest}",
            findings=findings(ordered),
            ran=_what_ran(plan, timeline),
            results=ordered,
            fates=fates(results),
            outcomes=_outcomes(clients),
            stage=build_stage(
                timeline,
                rates(clients, timeline.end_ns),
                latencies(clients, timeline.end_ns),
                loss_bars(results),
                double_reign_bars(results),
            ),
            timeline=timeline,
            anomalies=groups,
            anomaly_count=sum(group.total for group in groups),
            losses=loss_tables(results),
            objects=object_timelines(ordered, history),
            timeline_assets=timeline_assets,
            availability=availability_columns(results),
            windows=LOSS_WINDOWS,
            facts=_facts(plan),
        )
    )


def _what_ran(plan: Plan, timeline: Timeline) -> str:
    """The run in one sentence."""
    faults = sum(not fault.skipped for fault in timeline.faults)
    return (
        f"{len(plan.cluster.nodes)} {plan.system.name} nodes ({plan.system.profile} profile, "
        f"{plan.cluster.backend}) served {plan.workload.concurrency} clients of the workload "
        f"{plan.workload.name} for {draw.seconds_label(plan.time_limit_ms)} through {faults} "
        f"{'fault' if faults == 1 else 'faults'}. This repeats it:"
    )


def _services(plan: Plan) -> list[tuple[str, str]]:
    """Who hosts what, where not everybody hosts everything."""
    from shalott.cluster.systems.rocket.layout import describe_services

    services = plan.system.services
    return [("services", describe_services(services))] if services else []


def _facts(plan: Plan) -> list[tuple[str, str]]:
    policy = msgspec.json.encode(plan.system.policy).decode()
    workload, gates = plan.workload, plan.gates
    own = [
        ("partition mode", plan.system.partition_mode),
        ("net tick", f"{plan.system.net_tick_ms:,} ms"),
        ("policy", policy),
    ]
    if is_log_system(plan.system.name):  # it has neither partition mode nor net tick
        own = [("settings over upstream's defaults", policy)]
    return [
        ("system", f"{plan.system.name}, profile {plan.system.profile}"),
        *own,
        ("known bugs switched on", ", ".join(plan.system.bugs) or "none"),
        ("operator", plan.system.operator),
        ("cluster", f"{plan.cluster.backend}: {', '.join(plan.cluster.nodes)}"),
        *_services(plan),
        ("workload", f"{workload.name}, {workload.queues} {_objects(plan)}"),
        ("rate", f"{workload.rate_hz:g} Hz{_mix(plan)}"),
        ("clients", f"{workload.concurrency}, timeout {workload.op_timeout_ms:,} ms"),
        ("time limit", draw.seconds_label(plan.time_limit_ms)),
        ("seed", str(plan.seed)),
        ("delivery promised", gates.delivery),
        ("longest outage allowed", f"{gates.max_rto_ms:,} ms" if gates.max_rto_ms else "any"),
    ]


def _objects(plan: Plan) -> str:
    workload = plan.workload
    match workload.name:
        case "lock":
            return f"locks, each held for {workload.hold_ms:,} ms on average"
        case "fifo":
            return f"queues, {workload.consumers} consumers, judged by {workload.order}"
        case "metadata":
            return f"of each kind: {', '.join(workload.objects)}; {workload.reads} reads"
        case "log" | "elections":
            return "queues of one topic"
    return "queues"


def _mix(plan: Plan) -> str:
    share = f"{plan.workload.enqueue_fraction:.0%}"
    sends = f", {share} sends"
    words = {
        "lock": " of attempts to acquire",
        "metadata": f", {share} writes",
        **dict.fromkeys(LOG_WORKLOADS, sends),
    }
    return words.get(plan.workload.name, f", {share} enqueues")


def _outcomes(clients: Clients) -> list[tuple[str, dict[str, int]]]:
    """How often each operation ended how."""
    rows = []
    for index, f in enumerate(clients.names):
        mine = clients.outcome[clients.f == index]
        if len(mine):
            rows.append((f, {o: int((mine == i).sum()) for i, o in enumerate(OUTCOMES)}))
    return sorted(rows, key=lambda row: row[0] not in WRITES)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=jinja2.select_autoescape(["html", "j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.filters |= {
        "validity": valid_word,
        "count": draw.number_label,
        "seconds": _seconds,
        "hit": fault_target,
        "proofs": _proofs,
        "capitalised": _capitalised,
        "blanks": lambda columns: ["–"] * len(columns),
    }
    return environment


def _capitalised(sentence: str) -> str:
    """A capital letter first, unless the sentence begins with a node's name."""
    first = sentence.partition(" ")[0]
    return sentence[:1].upper() + sentence[1:] if first.isalpha() else sentence


def _seconds(ns: int | None, digits: int = 6) -> str:
    return "–" if ns is None else f"{ns / 1e9:.{digits}f}"


def _proofs(probes: Sequence[Probe], phase: str) -> list[str]:
    """What the probes of one phase saw, the contradictions first; a few speak for many."""
    mine = sorted((p for p in probes if p.phase == phase), key=lambda probe: probe.passed)
    lines = [f"{probe.check}: {_seen(probe)}" for probe in mine[:_PROOFS_MAX]]
    rest = len(mine) - len(lines)
    return [*lines, f"and {rest} more"] if rest > 0 else lines


def _seen(probe: Probe) -> str:
    if probe.passed:
        return probe.seen
    return probe.error or f"{probe.seen or 'nothing'}, not {probe.expected}"
