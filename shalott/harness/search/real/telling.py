"""What there is to say of a search on real nodes: times, rates, and what counts for nothing."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from shalott.harness.run.store import PLAN
from shalott.harness.search.campaign import Campaign
from shalott.harness.search.findings import RealFacts, SeedReport
from shalott.harness.search.real.carrying import CarriedPlans
from shalott.harness.search.repeats import repeated
from shalott.harness.search.rule import Rule, Trials, trials_of
from shalott.harness.search.summary import RateSummary, RealSummary, Summary, verdict_of

SHOWN_MAX = 5


def facts_of(
    campaign: Campaign,
    seeds: Sequence[int],
    *,
    jobs: int,
    rule: Rule,
    left_out: Sequence[str],
    carried: CarriedPlans | None,
) -> RealSummary:
    """Of these seeds, as far as they have been run."""
    reports = [campaign.reports[seed] for seed in seeds if seed in campaign.reports]
    again = [each for seed in seeds for each in campaign.repeats.get(seed, ())]
    every = [each for each in (*reports, *again) if each.real is not None]
    facts = [each.real for each in every if each.real is not None]
    boots_ms = [(each.warm, each.phases_ms["boot"]) for each in facts if "boot" in each.phases_ms]
    return RealSummary(
        jobs=jobs,
        warm=sum(each.warm for each in facts),
        cold=sum(not each.warm for each in facts),
        warm_boot_ms=_median(lasted_ms for warm, lasted_ms in boots_ms if warm),
        cold_boot_ms=_median(lasted_ms for warm, lasted_ms in boots_ms if not warm),
        run_ms=_median(round(each.wall_s * 1000) for each in every if each.error is None),
        again=sum(each.tries - 1 for each in facts),
        starved={str(each.seed): _facts(each).starved for each in reports if _starved(each)},
        left_out=tuple(left_out),
        rates={str(seed): rate for seed, rate in _rates(campaign, reports, rule)},
        plans={} if carried is None else _by_plan(reports, carried, rule),
    )


def _facts(report: SeedReport) -> RealFacts:
    assert report.real is not None
    return report.real


def _starved(report: SeedReport) -> bool:
    return verdict_of(report) == "starved"


def _median(values: Iterable[int]) -> int | None:
    found = list(values)
    return round(statistics.median(found)) if found else None


def _rates(
    campaign: Campaign, reports: Sequence[SeedReport], rule: Rule
) -> Iterator[tuple[int, RateSummary]]:
    for report in reports:
        if campaign.repeats.get(report.seed) and report.violations:
            trials = repeated(campaign, report.seed, report.violations)
            yield report.seed, rate_of(report.violations[0], trials, rule)


def _by_plan(
    reports: Sequence[SeedReport], carried: CarriedPlans, rule: Rule
) -> Mapping[str, RateSummary]:
    """Of each carried plan: its own runs, none of which was chosen because it failed."""
    outcomes: dict[str, list[bool | None]] = {}
    kinds: dict[str, str] = {}
    for report in reports:
        origin, verdict = carried.of(report.seed).origin, verdict_of(report)
        failed = verdict == "invalid" if verdict in ("valid", "invalid") else None
        outcomes.setdefault(origin, []).append(failed)
        if failed:
            kinds.setdefault(origin, report.violations[0])
    return {
        origin: rate_of(kinds.get(origin, ""), trials_of(seen), rule)
        for origin, seen in outcomes.items()
    }


def rate_of(kind: str, trials: Trials, rule: Rule) -> RateSummary:
    low, high = trials.interval
    return RateSummary(
        kind=kind,
        failed=trials.failed,
        ran=trials.ran,
        void=trials.void,
        low=round(low, 4),
        high=round(high, 4),
        often=rule.verdict(trials),
    )


def closing_lines(summary: Summary, directory: Path) -> Iterator[str]:
    """What the search says at its end."""
    real = summary.real
    assert real is not None
    starved = len(real.starved)
    yield (
        f"{summary.ran:,} plans: {summary.valid:,} valid, {summary.invalid:,} invalid,"
        f" {summary.unknown:,} unknown; {starved:,} starved and {len(summary.errors):,} failed,"
        " which count for nothing."
    )
    yield from _times(real)
    for kind, found in summary.classes.items():
        seeds = ", ".join(map(str, found.seeds[:SHOWN_MAX]))
        more = ", ..." if found.count > SHOWN_MAX else ""
        yield f"  {kind}: {found.count:,} of the plans ({seeds}{more})"
    for seed, rate in real.rates.items():
        yield f"  seed {seed} again: {rate.kind} in {told(rate)}"
    for origin, rate in real.plans.items():
        kind = f"{rate.kind} and the like in " if rate.kind else ""
        yield f"  {origin}: {kind}{told(rate)}"
    for seed, reason in list(real.starved.items())[:SHOWN_MAX]:
        yield f"  starved: seed {seed}: {reason}"
    for seed, reasons in list(summary.unknown_seeds.items())[:SHOWN_MAX]:
        yield f"  unknown: seed {seed}: {reasons[0] if reasons else 'no reason given'}"
    for seed, error in list(summary.errors.items())[:SHOWN_MAX]:
        yield f"  failed: seed {seed}: {error}"
    if summary.never:
        yield f"Never seen: {', '.join(summary.never)}."
    kept = [name for found in summary.classes.values() for name in found.kept]
    if kept:
        plan = shlex.quote(str(directory / kept[0] / PLAN))
        yield f"Replay: shalott replay {plan}"
        yield f"Shrink: shalott shrink {plan} --cluster {summary.cluster}"


def _times(real: RealSummary) -> Iterator[str]:
    cold = "" if real.cold_boot_ms is None else f", {real.cold_boot_ms / 1000:.1f} s on new ones"
    warm = "" if real.warm_boot_ms is None else f"{real.warm_boot_ms / 1000:.1f} s on warm machines"
    whole = "" if real.run_ms is None else f"; a run took {real.run_ms / 1000:.1f} s"
    if real.warm or real.cold:
        booted = (warm + cold).removeprefix(", ")
        again = f" {real.again} runs were begun anew." if real.again else ""
        yield (
            f"{real.warm:,} runs on warm machines, {real.cold:,} on new ones; ready after"
            f" {booted or 'nobody knows'}{whole} (medians).{again}"
        )


def told(rate: RateSummary) -> str:
    """k of n with Wilson's interval, and what that says."""
    void = f", {rate.void} proved nothing" if rate.void else ""
    words = {True: "often enough", False: "too seldom", None: "not clear"}[rate.often]
    return f"{rate.failed} of {rate.ran} runs ({rate.low:.2f} to {rate.high:.2f}{void}): {words}"
