"""Rows that were run often on both sides: the original in containers, and ours in simulation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from shalott.harness.originals.kept import Look, tally
from shalott.harness.originals.ladder import LADDER
from shalott.harness.originals.row import Row

OFTEN = 3  # sound runs of each side, for a comparison to say anything
# What is compared, by the checkers' own numbers, and how many of the unit make one that is shown.
COMPARED: Mapping[str, tuple[str, float]] = {
    "messages lost": ("lost-write-count", 1),
    "offsets given twice": ("shared-offset-count", 1),
    "longest time without an acknowledgement, s": ("longest-gap-ms", 1000),
    "time to the next master, s": ("takeover-ms-max", 1000),
}


def side_by_side(kept: Mapping[str, Sequence[Look]]) -> Iterator[str]:
    """A section for all such rows, or nothing."""
    often = [row for row in LADDER if _sides(kept.get(row.id, ()))]
    if not often:
        return
    yield from ("", "## Side by side", "")
    yield "The same plan, many times on the original and on ours with the switch on. Numbers are"
    yield "least / median / most of the sound runs."
    for row in often:
        yield from ("", *_table(row, _sides(kept[row.id])))


def _sides(looks: Sequence[Look]) -> Mapping[str, Sequence[Look]]:
    """Sound runs by where they were made; {} if there are too few."""
    sound = [look for look in looks if not look.void]
    original = [look for look in sound if look.side == "with"]
    ours = [look for look in sound if look.side == "ours-on"]
    if len(original) < OFTEN or len(ours) < OFTEN:
        return {}
    by_release: dict[str, list[Look]] = {}
    for look in (*original, *ours):
        by_release.setdefault(look.release, []).append(look)
    return by_release


def _table(row: Row, sides: Mapping[str, Sequence[Look]]) -> Iterator[str]:
    yield "| " + " | ".join((row.id, "found", *COMPARED)) + " |"
    yield "|" + " --- |" * (2 + len(COMPARED))
    for release, looks in sides.items():
        where = "in simulation" if looks[0].side == "ours-on" else "in containers"
        numbers = [_spread(looks, name, unit) for name, unit in COMPARED.values()]
        told = tally(looks, looks[0].side).words
        yield "| " + " | ".join((f"{release} {where}", told, *numbers)) + " |"


def _spread(looks: Sequence[Look], name: str, unit: float) -> str:
    values = sorted(look.counts.get(name, 0) / unit for look in looks)
    shown = (values[0], statistics.median(values), values[-1])
    return " / ".join(f"{value:.1f}" if unit > 1 else f"{value:.0f}" for value in shown)
