"""What stands on the time axis besides paths, and bars of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shalott.harness.report.plots.draw import Shape, Tick

FIT_MAX = 20


@dataclass(frozen=True, slots=True)
class Bar:
    """Something with a beginning and an end on the time axis, in ms."""

    begin: float
    end: float
    kind: str
    label: str
    title: str
    row: int = 0
    number: str = ""  # stands for the label where that does not fit

    @property
    def fit(self) -> int:
        """The label's length in steps of four characters: how wide it is (report.css)."""
        return min(FIT_MAX, max(2, -(-len(self.label) // 4)))


@dataclass(frozen=True, slots=True)
class RatePanel:
    f: str
    ticks: list[Tick]
    shapes: list[Shape]


def bar_heights(counts: Sequence[Any], tall: float) -> list[tuple[int, str, float, float]]:
    """A sparkline: for each night that has runs, the place, the verdict, top and height of its
    parts, from the bottom up valid, unknown, invalid. ``counts``: of runs by verdict (``valid``,
    ``unknown``, ``none``, ``invalid``)."""
    parts = []
    for place, each in enumerate(counts):
        total = each.invalid + each.unknown + each.none + each.valid
        floor = tall
        told = (("valid", each.valid), ("unknown", each.unknown + each.none))
        for word, number in (*told, ("invalid", each.invalid)):
            if number:
                height = tall * number / total
                floor -= height
                parts.append((place, word, round(floor, 2), round(height, 2)))
    return parts
