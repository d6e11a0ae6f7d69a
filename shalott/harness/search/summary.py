"""summary.json: what a search ran and found: counts, classes, coverage, rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.harness.search.campaign import CAMPAIGN_VERSION, Campaign, Header, finding
from shalott.harness.search.findings import SeedReport

SEEDS_MAX = 50  # listed of a class


class ClassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One class of anomaly: in which seeds, and which of them are kept."""

    count: int
    seeds: tuple[int, ...]
    kept: tuple[str, ...]  # directories, relative to the campaign's


class Sometimes(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a campaign wants to see: in how many runs, and how often in all."""

    runs: int
    times: int


class RateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How often a finding came again, by its gravest class. ``often``: whether that is often enough
    (failure_rate.py); None: not clear. The run that found it is not counted."""

    kind: str
    failed: int
    ran: int
    void: int  # runs that proved nothing
    low: float
    high: float
    often: bool | None


class RealSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of runs on real nodes besides.

    ``warm_boot_ms`` and ``cold_boot_ms``: medians, until the nodes were ready. ``starved``: runs
    whose verdict is the machine's, not the system's, by seed. ``left_out``: faults that were not
    drawn. ``rates``: by seed. ``plans``: by carried plan, in how many of its runs it failed.
    """

    jobs: int
    warm: int
    cold: int
    warm_boot_ms: int | None
    cold_boot_ms: int | None
    run_ms: int | None  # median of all of a run, from boot to report
    again: int  # runs that were begun anew, since the harness had failed
    starved: Mapping[str, str]
    left_out: tuple[str, ...]
    rates: Mapping[str, RateSummary]
    plans: Mapping[str, RateSummary] = {}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """summary.json. It speaks of the seeds of the last command; all runs are in campaign.jsonl."""

    version: int = CAMPAIGN_VERSION
    command: str
    header: Header
    seeds: str
    wanted: int  # seeds asked for
    ran: int
    valid: int
    invalid: int
    unknown: int
    errors: Mapping[str, str]  # by seed: what kept the run from its end
    classes: Mapping[str, ClassSummary]
    unknown_seeds: Mapping[str, tuple[str, ...]]  # by seed: why
    repeated: int
    mismatches: Mapping[str, tuple[str, str]]  # by seed: the two digests
    sometimes: Mapping[str, Sometimes]
    never: tuple[str, ...]
    buggified: Mapping[str, Sometimes]
    virtual_s: float
    wall_s: float  # of this command
    cpu_s: float  # of the runs, all commands together
    callbacks: int
    segments: int
    interrupted: bool = False
    scenario: str = ""
    anomaly: str = ""  # that the scenario must report
    found_after: int | None = None  # so many seeds, the one that found it among them
    found_seed: int | None = None
    system: str = ""
    profile: str = ""
    workload: str = ""
    started_wall_ns: int | None = None  # when this command began
    cluster: str = "sim"
    real: RealSummary | None = None
    # Of a search that learns: features that were shown, plans that show them all; functions of the
    # broker that no run came to, of packages that the system uses, without those that have a reason
    # (unentered.py), which are only counted; those that have one and were entered.
    features: int = 0
    corpus: int = 0
    unentered: tuple[str, ...] = ()
    explained: int = 0
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What one command searched for, and how it went. ``scenario``, ``anomaly``: see Summary."""

    command: str
    seeds: Sequence[int]
    seeds_text: str
    wanted_events: Sequence[str]
    wall_s: float
    interrupted: bool
    scenario: str = ""
    anomaly: str = ""
    found_seed: int | None = None


def summarise(campaign: Campaign, searched: Searched) -> Summary:
    seeds, found_seed = searched.seeds, searched.found_seed
    reports = [campaign.reports[seed] for seed in seeds if seed in campaign.reports]
    by_valid = Counter(verdict_of(report) for report in reports)
    sometimes = _sometimes(report.sometimes for report in reports)
    ran = {report.seed: None for report in reports}
    return Summary(
        command=searched.command,
        header=campaign.header,
        seeds=searched.seeds_text,
        wanted=len(seeds),
        ran=len(reports),
        valid=by_valid["valid"],
        invalid=by_valid["invalid"],
        unknown=by_valid["unknown"],
        errors={str(report.seed): report.error for report in reports if report.error},
        classes=_classes(campaign, reports),
        unknown_seeds={
            str(report.seed): report.reasons
            for report in reports
            if verdict_of(report) == "unknown"
        },
        repeated=sum(seed in ran for seed in campaign.again),
        mismatches={str(seed): pair for seed, pair in campaign.mismatches.items() if seed in ran},
        sometimes=sometimes,
        never=tuple(name for name in searched.wanted_events if name not in sometimes),
        buggified=_sometimes(report.buggified for report in reports),
        virtual_s=round(sum(report.virtual_ns for report in reports) / 1e9, 3),
        wall_s=round(searched.wall_s, 3),
        cpu_s=round(sum(report.wall_s for report in reports), 3),
        callbacks=sum(report.callbacks for report in reports),
        segments=sum(report.segments for report in reports),
        interrupted=searched.interrupted,
        scenario=searched.scenario,
        anomaly=searched.anomaly,
        found_after=None if found_seed is None else list(seeds).index(found_seed) + 1,
        found_seed=found_seed,
    )


def verdict_of(report: SeedReport) -> str:
    """valid, invalid, unknown, error (the harness's own), or starved: the harness did not run when
    it should have, so its checkers' word counts for nothing."""
    if report.error is not None:
        return "error"
    if report.real is not None and report.real.starved:
        return "starved"
    if isinstance(report.valid, bool):
        return "valid" if report.valid else "invalid"
    return "unknown"


def _classes(campaign: Campaign, reports: Sequence[SeedReport]) -> dict[str, ClassSummary]:
    seeds: dict[str, list[int]] = {}
    for report in reports:
        for kind in report.violations if verdict_of(report) == "invalid" else ():
            seeds.setdefault(kind, []).append(report.seed)
    return {
        kind: ClassSummary(
            count=len(own),
            seeds=tuple(own[:SEEDS_MAX]),
            kept=tuple(finding(seed) for seed in own if seed in campaign.kept),
        )
        for kind, own in sorted(seeds.items())
    }


def _sometimes(counts: Iterable[Mapping[str, int]]) -> dict[str, Sometimes]:
    runs: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for one in counts:
        times.update(one)
        runs.update(name for name, count in one.items() if count)
    return {name: Sometimes(runs=runs[name], times=times[name]) for name in sorted(runs)}


def render_summary(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def exit_code(summary: Summary) -> int:
    """255: simulated runs failed or differ from their repetition, so no verdict of this search can
    be believed, or no real run came to its end; 1: something was found; 2: something is unknown;
    0."""
    if summary.real is None and (summary.errors or summary.mismatches):
        return 255
    if summary.real is not None and summary.ran and len(summary.errors) == summary.ran:
        return 255
    if summary.invalid:
        return 1
    if summary.unknown or summary.interrupted or summary.errors:
        return 2
    return 2 if summary.real is not None and summary.real.starved else 0
