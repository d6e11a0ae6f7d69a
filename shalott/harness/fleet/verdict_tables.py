"""Verdicts by cell and by day of true time; acknowledged messages that are gone, by faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from shalott.harness.fleet.page_data import (
    LINKS,
    SPARK_DAYS,
    Axes,
    CellRow,
    Day,
    Days,
    Listed,
    Losses,
    LossRow,
    count_verdicts,
    listed,
    share,
)
from shalott.harness.fleet.run_facts import Fact, worst_first

DRAWN_DAYS = 60


def cell_rows(sample: Sequence[Fact], at_most: int) -> Listed[CellRow]:
    """The reddest first: by invalid runs, then by unknown ones."""
    days = sorted({fact.day for fact in sample if fact.day})[-SPARK_DAYS:]
    by_axes: dict[Axes, list[Fact]] = {}
    for fact in sample:
        by_axes.setdefault(fact.axes, []).append(fact)
    rows = [_cell_row(axes, own, days) for axes, own in by_axes.items()]

    def redness(row: CellRow) -> tuple[int, int, Axes]:
        return -row.verdicts.invalid, -row.verdicts.unknown - row.verdicts.none, row.axes

    return listed(sorted(rows, key=redness), at_most)


def _cell_row(axes: Axes, own: Sequence[Fact], days: Sequence[str]) -> CellRow:
    by_day: dict[str, list[str]] = {}
    for fact in own:
        by_day.setdefault(fact.day, []).append(fact.verdict)
    return CellRow(
        axes=axes,
        verdicts=count_verdicts(fact.verdict for fact in own),
        days=tuple(count_verdicts(by_day[day]) if day in by_day else None for day in days),
        worst=worst_first(own)[:LINKS],
    )


def days_of(sample: Sequence[Fact], at_most: int) -> Days:
    """Calendar days up to the newest on which anything ran."""
    by_day: dict[str, list[Fact]] = {}
    for fact in sample:
        if fact.day:
            by_day.setdefault(fact.day, []).append(fact)
    rows = [_day(day, by_day[day]) for day in sorted(by_day, reverse=True)]
    drawn = _calendar(rows)
    first = drawn[0].day if drawn else ""
    return Days(
        drawn=drawn,
        earlier=sum(row.verdicts.total for row in rows if row.day < first),
        rows=listed(rows, at_most),
        undated=sum(not fact.day for fact in sample),
    )


def _calendar(rows: Sequence[Day]) -> tuple[Day, ...]:
    """The newest days, those without a run between them too."""
    if not rows:
        return ()
    by_day = {row.day: row for row in rows}
    last = date.fromisoformat(rows[0].day)
    span = (last - date.fromisoformat(rows[-1].day)).days + 1
    names = [(last - timedelta(days=back)).isoformat() for back in range(min(span, DRAWN_DAYS))]
    return tuple(by_day.get(name) or _day(name, ()) for name in reversed(names))


def _day(day: str, own: Sequence[Fact]) -> Day:
    counted = [told for fact in own if (told := loss_counts(fact)) is not None and told.messages]
    return Day(
        day=day,
        verdicts=count_verdicts(fact.verdict for fact in own),
        counted=len(counted),
        acknowledged=sum(told.acknowledged for told in counted),
        lost=sum(told.lost for told in counted),
        worst=worst_first(own)[:LINKS],
    )


@dataclass(frozen=True, slots=True)
class LossCounts:
    """What a run says of its messages. ``messages``: whether any was sent. ``unsure``: lost from
    queues that may hold them still. ``by_verdict``: its history is gone."""

    acknowledged: int
    lost: int
    unsure: int
    messages: bool
    by_verdict: bool


def loss_counts(fact: Fact) -> LossCounts | None:
    """None: unknown."""
    if fact.line is not None:
        counts = fact.line.counts
        return LossCounts(
            acknowledged=counts["acknowledged"],
            lost=counts["lost_provably"],
            unsure=counts["lost"] - counts["lost_provably"],
            messages=bool(counts["attempts"]),
            by_verdict=False,
        )
    acknowledged, lost = fact.row["acknowledged"], fact.row["lost"]
    if acknowledged is None or lost is None:
        return None
    return LossCounts(acknowledged, lost, 0, messages=bool(acknowledged), by_verdict=True)


def losses_of(sample: Sequence[Fact], unseen: Mapping[str, int], at_most: int) -> Losses:
    """``unseen``: of runs of logs, acknowledged messages whose end is unknown."""
    groups: dict[tuple[str, str, str], list[tuple[Fact, LossCounts]]] = {}
    counts = {"by_verdict": 0, "without": 0, "unknown": 0}
    for fact in sample:
        told = loss_counts(fact)
        if told is None:
            counts["unknown"] += 1
        elif not told.messages:
            counts["without"] += 1
        else:
            counts["by_verdict"] += told.by_verdict
            axes = fact.axes
            key = (axes.system, axes.profile, axes.nemesis)
            groups.setdefault(key, []).append((fact, told))
    rows = [_row(key, own, unseen) for key, own in groups.items()]

    def severity(row: LossRow) -> tuple[float, int, str, str, str]:
        rate = row.lost / row.acknowledged if row.acknowledged else 0.0
        return -rate, -row.unsure, row.system, row.profile, row.nemesis

    return Losses(
        rows=listed(sorted(rows, key=severity), at_most),
        runs=sum(len(own) for own in groups.values()),
        **counts,
    )


def _row(
    key: tuple[str, str, str], own: Sequence[tuple[Fact, LossCounts]], unseen: Mapping[str, int]
) -> LossRow:
    system, profile, nemesis = key
    acknowledged = sum(told.acknowledged for _, told in own)
    lost = sum(told.lost for _, told in own)
    losing = sorted(
        ((fact, told) for fact, told in own if told.lost),
        key=lambda pair: (-pair[1].lost, pair[0].run),
    )
    return LossRow(
        system=system,
        profile=profile,
        nemesis=nemesis,
        acknowledged=acknowledged,
        lost=lost,
        unsure=sum(told.unsure + unseen.get(fact.run, 0) for fact, told in own),
        rate=share(lost, acknowledged),
        lossy=share(len(losing), len(own)),
        worst=tuple(fact.run for fact, _ in losing[:LINKS]),
    )
