"""Acknowledged messages that are gone: by system, profile and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.harness.fleet.page.data import LINKS, Losses, LossRow, listed, share
from shalott.harness.fleet.page.facts import Fact


@dataclass(frozen=True, slots=True)
class Told:
    """What a run says of its messages. ``messages``: whether any was sent. ``unsure``: lost from
    queues that may hold them still. ``by_verdict``: its history is gone."""

    acknowledged: int
    lost: int
    unsure: int
    messages: bool
    by_verdict: bool


def told_losses(fact: Fact) -> Told | None:
    """None: nobody knows."""
    if fact.line is not None:
        counts = fact.line.counts
        return Told(
            acknowledged=counts["acknowledged"],
            lost=counts["lost_provably"],
            unsure=counts["lost"] - counts["lost_provably"],
            messages=bool(counts["attempts"]),
            by_verdict=False,
        )
    acknowledged, lost = fact.row["acknowledged"], fact.row["lost"]
    if acknowledged is None or lost is None:
        return None
    return Told(acknowledged, lost, 0, messages=bool(acknowledged), by_verdict=True)


def losses_of(sample: Sequence[Fact], unseen: Mapping[str, int], at_most: int) -> Losses:
    """``unseen``: of runs of logs, acknowledged messages that nobody can tell the end of."""
    groups: dict[tuple[str, str, str], list[tuple[Fact, Told]]] = {}
    counts = {"by_verdict": 0, "without": 0, "unknown": 0}
    for fact in sample:
        told = told_losses(fact)
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
    key: tuple[str, str, str], own: Sequence[tuple[Fact, Told]], unseen: Mapping[str, int]
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
