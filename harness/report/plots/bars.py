"""What stands on the time axis besides paths."""

from __future__ import annotations

from dataclasses import dataclass

from shalott.harness.report.plots.draw import Shape, Tick


@dataclass(frozen=True, slots=True)
class Bar:
    """Something with a beginning and an end on the time axis, in ms."""

    begin: float
    end: float
    kind: str
    label: str
    title: str
    row: int = 0


@dataclass(frozen=True, slots=True)
class RatePanel:
    f: str
    ticks: list[Tick]
    shapes: list[Shape]
