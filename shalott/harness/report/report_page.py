"""report.html: one self-contained page that says what a run did, what it proved, and how.

``render_report`` is a pure function of the plan, the history and the results; nothing is fetched,
now or when the page is read. The page works without its script (which adds zoom, a cursor and
copying) and on paper.

What the head of a report says below the verdict: why messages were lost and what would close it;
and how long no client was served, which every run tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import jinja2
import msgspec

from shalott.checkers.checker import Result
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.doors import typed_command
from shalott.core.history import History
from shalott.core.parameters import flags_of
from shalott.core.plan import Plan
from shalott.harness.report import draw
from shalott.harness.report.cluster_timeline import Probe, Timeline, read_timeline
from shalott.harness.report.consumer_rows import ROUND_TRIPS
from shalott.harness.report.consumer_section import consumer_section
from shalott.harness.report.loss_windows import LOSS_WINDOWS, Setting, closing_settings
from shalott.harness.report.losses import (
    cause_of,
    loss_accounts,
    loss_lanes,
    loss_of,
    loss_tables,
)
from shalott.harness.report.message_outcomes import message_outcomes
from shalott.harness.report.meta import ReportMeta, tested_facts
from shalott.harness.report.run_picture import build_stage, fault_target
from shalott.harness.report.series import OUTCOMES, WRITES, Clients, latencies, rates, read_clients
from shalott.harness.report.shown_anomalies import (
    Detail,
    anomaly_groups,
    availability_columns,
    double_tenure_bars,
    object_timelines,
    timeline_assets,
)
from shalott.harness.report.verdict_words import (
    findings,
    headline,
    overall,
    severity,
    summaries,
    valid_word,
)
from shalott.workloads.record import WORKLOADS

__all__ = ["ReportMeta", "render_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_PROOFS_MAX = 4
FILES_MAX = 60  # listed of one node
# In the order in which they are listed, with what they are.
_OWN = {
    "plan.json": "plan",
    "history.parquet": "history",
    "events.parquet": "node events",
    "results.json": "results",
    "junit.xml": "JUnit",
    "log.txt": "log of the harness",
    "simulation.json": "simulation",
    "minimal.json": "minimal plan",
    "story.txt": "story",
    "history.jsonl": "recording",
}


def render_report(plan: Plan, history: History, results: Sequence[Result], meta: ReportMeta) -> str:
    timeline = read_timeline(history, plan.cluster.nodes, plan.observe_interval_ms)
    clients = read_clients(history)
    consumers = consumer_section(history, results, timeline.end_ns)
    drawn = clients.only(ROUND_TRIPS) if consumers else clients
    ordered = sorted(results, key=lambda result: severity(result.valid))
    groups = anomaly_groups(ordered, history)
    word, _, rest = headline(ordered).partition(":")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            plan=plan,
            meta=meta,
            started=datetime.fromtimestamp(meta.started_wall_ns / 1e9, UTC),
            complete=history.complete,
            valid=overall(results),
            headline_word=word,
            headline_rest=f":{rest}",
            findings=findings(ordered),
            ran=_what_ran(plan, timeline),
            summaries=summaries(results),
            results=ordered,
            message_outcomes=message_outcomes(results),
            outcomes=_outcomes(clients),
            stage=build_stage(
                timeline,
                rates(drawn, timeline.end_ns),
                latencies(drawn, timeline.end_ns),
                loss_lanes(results),
                double_tenure_bars(results),
            ),
            consumers=consumers,
            timeline=timeline,
            anomalies=groups,
            anomaly_count=sum(group.total for group in groups),
            losses=loss_tables(results),
            loss_accounts=loss_accounts(results),
            causes=cause_lines(plan, results),
            served=availability_line(results),
            commands=follow_up_commands(plan, meta, overall(results)),
            files=file_groups(meta.files),
            objects=object_timelines(ordered, history),
            timeline_assets=timeline_assets,
            availability=availability_columns(results),
            windows=LOSS_WINDOWS,
            facts=_facts(plan),
            tested=tested_facts(meta.tested),
        )
    )


def _what_ran(plan: Plan, timeline: Timeline) -> str:
    """The run in one sentence."""
    faults = sum(not fault.skipped for fault in timeline.faults)
    return (
        f"{len(plan.cluster.nodes)} {plan.system.name} nodes ({plan.system.profile} profile, "
        f"{plan.cluster.backend}) served {plan.workload.concurrency} clients of the workload "
        f"{plan.workload.name} for {draw.seconds_label(plan.time_limit_ms)} through {faults} "
        f"{'fault' if faults == 1 else 'faults'}."
    )


def _services(plan: Plan) -> list[tuple[str, str]]:
    """What each node hosts, where nodes differ: broker on n1, n2; nameserver on n3."""
    by_kind: dict[tuple[str, ...], list[str]] = {}
    for node, own in plan.system.services.items():
        by_kind.setdefault(own, []).append(node)
    effects = "; ".join(f"{' and '.join(own)} on {', '.join(at)}" for own, at in by_kind.items())
    return [("services", effects)] if effects else []


def _parameters(plan: Plan) -> list[tuple[str, str]]:
    """The system's own, as its command line has them; none of a system that is not ours."""
    if not SYSTEMS.has(plan.system.name):
        return []
    flags = flags_of(SYSTEMS.find(plan.system.name).parameters)
    values = plan.system.parameters
    return [
        (flag.name.replace("-", " "), flag.typed(values[flag.field]))
        for flag in flags
        if flag.field in values
    ]


def _facts(plan: Plan) -> list[tuple[str, str]]:
    workload, gates = plan.workload, plan.gates
    return [
        ("system", f"{plan.system.name}, profile {plan.system.profile}"),
        *_parameters(plan),
        ("settings", msgspec.json.encode(plan.system.policy).decode()),
        ("known bugs switched on", ", ".join(plan.system.bugs) or "none"),
        ("cluster", f"{plan.cluster.backend}: {', '.join(plan.cluster.nodes)}"),
        *_services(plan),
        ("workload", _with_words(workload.name, _described(plan))),
        ("rate", f"{workload.rate_hz:g} Hz"),
        ("clients", f"{workload.concurrency}, timeout {workload.op_timeout_ms:,} ms"),
        ("time limit", draw.seconds_label(plan.time_limit_ms)),
        ("seed", str(plan.seed)),
        ("delivery promised", gates.delivery),
        ("longest outage allowed", f"{gates.max_rto_ms:,} ms" if gates.max_rto_ms else "any"),
    ]


def _described(plan: Plan) -> str:
    known = WORKLOADS.has(plan.workload.name)
    return WORKLOADS.find(plan.workload.name).describe(plan) if known else ""


def _with_words(name: str, words: str) -> str:
    return f"{name}: {words}" if words else name


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


@dataclass(frozen=True, slots=True)
class FileLink:
    """``href`` is relative to the report, and can be no address of elsewhere."""

    name: str
    href: str


@dataclass(frozen=True, slots=True)
class FileGroup:
    title: str  # "" of the run itself, or a node
    links: list[FileLink]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class FollowUpCommand:
    id: str
    says: str
    text: str


def file_groups(files: Sequence[str]) -> list[FileGroup]:
    """Links to what is there: the run's own files, then each node's."""
    present = dict.fromkeys(files)
    own = [FileLink(words, _href(name)) for name, words in _OWN.items() if name in present]
    groups = [FileGroup("", own)] if own else []
    by_node: dict[str, list[FileLink]] = {}
    for name in sorted(present):
        parts = PurePosixPath(name).parts
        if len(parts) > 2 and parts[0] == "nodes":
            link = FileLink("/".join(parts[2:]), _href(name))
            by_node.setdefault(parts[1], []).append(link)
    for node, links in by_node.items():
        groups.append(FileGroup(node, links[:FILES_MAX], max(0, len(links) - FILES_MAX)))
    return groups


def _href(name: str) -> str:
    """ "./" goes before it, so that no name is taken for a scheme."""
    return "./" + quote(name)


def follow_up_commands(plan: Plan, meta: ReportMeta, valid: bool | str) -> list[FollowUpCommand]:
    """What repeats the run; and of one that went wrong, what makes its plan small."""
    commands = [FollowUpCommand("repeat", "This runs it again:", meta.command)]
    if not meta.directory:
        return commands
    stored = str(PurePosixPath(meta.directory) / "plan.json")
    commands.append(
        FollowUpCommand(
            "replay",
            "With the very faults of this run, their targets as they were found:",
            typed_command("replay", stored),
        )
    )
    if valid is False and plan.cluster.backend == "sim":
        commands.append(
            FollowUpCommand("shrink", "This makes its plan as small as it can be:",
                        typed_command("shrink", stored))
        )  # fmt: skip
    return commands


CAUSES_MAX = 3


@dataclass(frozen=True, slots=True)
class CauseLine:
    """One cause of loss. ``share``: how many of the lost messages it took, in words."""

    window: str
    title: str
    share: str
    remedy: str  # "" if nothing known closes it


def cause_lines(plan: Plan, results: Sequence[Result]) -> list[CauseLine]:
    """The chief causes of what was lost, the gravest first; none if nothing was lost."""
    by_cause: Mapping[str, int] = loss_of(results).get("by-cause", {})
    total = sum(by_cause.values())
    ranked = sorted(by_cause.items(), key=lambda item: (item[0] != "unexplained", -item[1]))
    known = loss_of(results).get("documented", {})
    lines = [
        _cause_line(plan, window, _share(n, total), known) for window, n in ranked[:CAUSES_MAX]
    ]
    rest = sum(n for _, n in ranked[CAUSES_MAX:])
    if rest:
        lines.append(CauseLine("", "other causes, which are listed below", _share(rest, total), ""))
    return lines


def _cause_line(
    plan: Plan, window: str, share: str, documented: Mapping[str, Mapping[str, str]]
) -> CauseLine:
    if window in documented:
        title, words = cause_of(window, documented)
        return CauseLine(window, title, share, f"Closed by {words}." if words else "")
    if window not in LOSS_WINDOWS:
        title = (
            "no event and no fault explains it: this may be a fault of the broker"
            if window == "unexplained"
            else f"{window.replace('-', ' ')}: too many runs of loss"
        )
        return CauseLine("", title, share, "")
    title, words = LOSS_WINDOWS[window]
    return CauseLine(window, title, share, _remedy(words, closing_settings(window, plan)))


def _remedy(words: str, settings: Sequence[Setting]) -> str:
    """What closes it; of the settings that do, what this run had."""
    if not settings:
        return f"Closed by {words}."
    missing = [one for one in settings if not one.is_set]
    if not missing:
        names = " and ".join(f"{one.name}={one.own}" for one in settings)
        return f"This run had {names}, which should have closed it."
    closed = ", ".join(f"{one.name}={one.closed}" for one in missing)
    own = ", ".join(f"{one.name}={one.own}" if one.own else _unset(one) for one in missing)
    if all(not one.own for one in missing):
        return f"Closed by {closed}, which this run did not set."
    return f"Closed by {closed}; this run had {own}."


def _unset(setting: Setting) -> str:
    return f"{setting.name} not set"


def _share(part: int, total: int) -> str:
    if part == total:
        return f"all {total:,} lost messages" if total > 1 else "the lost message"
    return f"{part:,} of {total:,} lost messages ({100 * part / total:.0f} %)"


@dataclass(frozen=True, slots=True)
class Served:
    """How well a run was served. ``figures``: (what, how much, which tells more)."""

    figures: list[tuple[str, str, str]]
    is_bad: bool  # beyond what the plan allows, or never again


def availability_line(results: Sequence[Result]) -> Served | None:
    """None if no checker measured it."""
    result = next((one for one in results if one.checker == "availability"), None)
    if result is None:
        return None
    counts, faults = result.counts, result.detail.get("faults") or ()
    gap = result.detail.get("longest-gap")
    figures = []
    if counts.get("acknowledged-fraction"):
        figures.append(
            ("acknowledged", f"{100 * counts['acknowledged-fraction']:.1f} %", "of what was sent")
        )
    if gap:
        figures.append(("longest without an acknowledgement", _ms(gap["ms"]), _where(gap, faults)))
    if faults:
        never = int(counts.get("never-recovered-count", 0))
        slowest = max(
            (one for one in faults if one["recovery_ms"] is not None),
            key=lambda one: one["recovery_ms"],
            default=None,
        )
        if slowest is not None:
            figures.append(
                ("slowest first acknowledgement after a fault", _ms(slowest["recovery_ms"]),
                 f"after {slowest['fault']}")
            )  # fmt: skip
        if never:
            times = f"{never} fault{'' if never == 1 else 's'}"
            figures.append(("never acknowledged again", times, ""))
    allowed = result.detail.get("max_rto_ms")
    if allowed:
        figures.append(("longest outage allowed", _ms(allowed), ""))
    bad = result.valid is False or bool(counts.get("never-recovered-count"))
    return Served(figures, bad) if figures else None


def _where(gap: Detail, faults: Sequence[Detail]) -> str:
    """In which queue and when; and of which faults it is the longest gap, too."""
    span = f"{gap['begin_ns'] / 1e9:.1f}–{gap['end_ns'] / 1e9:.1f} s"
    around = [
        str(one["fault"])
        for one in faults
        if (one.get("longest_gap") or {}).get("begin_ns") == gap["begin_ns"]
    ]
    during = f", around {around[0]}" if around else ""
    return f"{gap['queue']}, {span}{during}"


def _ms(value: float) -> str:
    return draw.duration_label(value * 1e6)
