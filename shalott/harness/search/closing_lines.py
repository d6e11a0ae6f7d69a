"""What a search says at its end, on the terminal: counts, classes, coverage, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from shalott.harness.run.store import PLAN
from shalott.harness.search.summary import RateSummary, RealSummary, Summary

SHOWN_MAX = 5


def closing_lines(summary: Summary, directory: Path) -> Iterator[str]:
    """Of a search in the simulation, or on real nodes."""
    return (
        _of_real(summary, summary.real, directory)
        if summary.real
        else _of_simulated(summary, directory)
    )


def _of_simulated(summary: Summary, directory: Path) -> Iterator[str]:
    if summary.scenario:
        yield _found(summary)
    rate = summary.virtual_s / summary.cpu_s if summary.cpu_s else 0.0
    yield (
        f"{summary.ran:,} of {summary.wanted:,} seeds: {summary.valid:,} valid,"
        f" {summary.invalid:,} invalid, {summary.unknown:,} unknown,"
        f" {len(summary.errors):,} failed; {rate:,.0f} virtual seconds a CPU second."
    )
    for kind, found in summary.classes.items():
        seeds = ", ".join(map(str, found.seeds[:5])) + (", ..." if found.count > 5 else "")
        yield f"  {kind}: {found.count:,} of the seeds ({seeds})"
    for seed, reasons in list(summary.unknown_seeds.items())[:3]:
        yield f"  unknown: seed {seed}: {reasons[0] if reasons else 'no reason given'}"
    for seed, error in list(summary.errors.items())[:3]:
        yield f"  failed: seed {seed}: {error}"
    for seed, (first, second) in summary.mismatches.items():
        yield f"  not deterministic: seed {seed} ran to {first}, and repeated to {second}"
    if summary.repeated and not summary.mismatches:
        yield f"The digests of {summary.repeated:,} repeated seeds are equal."
    if summary.never:
        yield f"Never seen: {', '.join(summary.never)}."
    elif summary.sometimes:
        yield "Every event that a campaign wants to see was seen."
    kept = [name for found in summary.classes.values() for name in found.kept]
    if kept:
        plan = shlex.quote(str(directory / kept[0] / PLAN))
        yield f"Replay: shalott replay {plan}"
        yield f"Shrink: shalott shrink {plan}"


def _found(summary: Summary) -> str:
    if summary.found_after is not None:
        return (
            f"{summary.scenario}: found after {summary.found_after:,} seeds"
            f" ({summary.anomaly} in seed {summary.found_seed})."
        )
    return f"{summary.scenario}: {summary.anomaly} was not found in {summary.ran:,} seeds."


def _of_real(summary: Summary, real: RealSummary, directory: Path) -> Iterator[str]:
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
        yield f"  seed {seed} again: {rate.kind} in {_rate_words(rate)}"
    for origin, rate in real.plans.items():
        kind = f"{rate.kind} and the like in " if rate.kind else ""
        yield f"  {origin}: {kind}{_rate_words(rate)}"
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
            f" {booted or 'an unknown time'}{whole} (medians).{again}"
        )


def _rate_words(rate: RateSummary) -> str:
    """k of n with Wilson's interval, and what that says."""
    void = f", {rate.void} proved nothing" if rate.void else ""
    words = {True: "often enough", False: "too seldom", None: "not clear"}[rate.often]
    return f"{rate.failed} of {rate.ran} runs ({rate.low:.2f} to {rate.high:.2f}{void}): {words}"
