"""Searches with their denominators, and what they kept."""

from __future__ import annotations

from collections.abc import Sequence

from shalott.harness.fleet.page.data import LINKS, CampaignRow, Listed, listed, share
from shalott.harness.fleet.page.facts import Fact


def campaign_rows(
    campaigns: Sequence[Fact], findings: Sequence[Fact], at_most: int
) -> Listed[CampaignRow]:
    """Those that found most first."""
    kept: dict[str, list[str]] = {}
    for fact in findings:
        kept.setdefault(fact.run.rpartition("/findings/")[0], []).append(fact.run)
    rows = [_row(fact, sorted(kept.get(fact.run, ()))) for fact in campaigns]
    return listed(sorted(rows, key=lambda row: (-(row.invalid or 0), row.run)), at_most)


def _row(fact: Fact, kept: Sequence[str]) -> CampaignRow:
    row = fact.row
    valid, invalid = row["seeds_valid"], row["seeds_invalid"]
    known = valid is not None and invalid is not None
    return CampaignRow(
        run=fact.run,
        name=row["campaign"] or fact.run,
        system=row["system"],
        profile=row["profile"],
        workload=row["workload"],
        wanted=row["seeds_wanted"],
        judged=row["seeds_judged"],
        valid=valid,
        invalid=invalid,
        unknown=row["seeds_unknown"],
        not_booted=row["seeds_not_booted"],
        failing=share(invalid, invalid + valid) if known else None,
        classes=tuple(
            (each["kind"] or "?", each["count"] or 0) for each in row["anomalies"] or () if each
        ),
        kept=listed(kept, LINKS),
    )
