"""Turns series into SVG path data, axis ticks and bars.

A plot is an SVG stretched to its box (preserveAspectRatio="none"): x in milliseconds from the run's
start, y from 0 (top) to 1000. Strokes keep their width (vector-effect in the style sheet), a point
is a stroke of no length with round caps, and zooming is a change of the viewBox. Axis words are
HTML beside it, so that text is never stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shalott.harness.report.series import TILE_COLUMNS, TILE_ROWS, Floats, Latencies

HEIGHT = 1000
_SHADES = 5

_TIME_STEPS_MS = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000),
    *(120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000),
)
FIT_MAX = 20


@dataclass(frozen=True, slots=True)
class Tick:
    """A word beside an axis. ``at`` is ms on the x axis and percent from the top on the y axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Shape:
    """One path of a plot; ``shade`` 1 (faint) to 5 (full) for tiles, 0 where it has no meaning."""

    outcome: str
    path: str
    shade: int = 0


def time_ticks(end_ms: float, begin_ms: float = 0, count: int = 9) -> list[Tick]:
    """Round times, at most ``count`` steps."""
    span = end_ms - begin_ms
    step = next((s for s in _TIME_STEPS_MS if span / s <= count), _TIME_STEPS_MS[-1])
    first = math.ceil(begin_ms / step) * step
    return [Tick(at, seconds_label(at)) for at in range(first, int(end_ms) + 1, step)]


def seconds_label(at_ms: float) -> str:
    if at_ms < 120_000:
        return f"{at_ms / 1000:g} s"
    minutes, rest = divmod(at_ms / 1000, 60)
    return f"{minutes:.0f} min" if not rest else f"{minutes:.0f}:{rest:02.0f}"


def duration_label(ns: float | None) -> str:
    """A length of time in the unit that suits it."""
    if ns is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def number_label(value: float) -> str:
    """A count with thousands apart."""
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def latency_ticks(series: Latencies) -> list[Tick]:
    """One tick a decade."""
    low, high = round(math.log10(series.low_ns)), round(math.log10(series.high_ns))
    return [
        Tick(round(100 * (high - power) / (high - low), 2), duration_label(10.0**power))
        for power in range(high, low - 1, -1)
    ]


def point_shapes(series: Latencies) -> list[Shape]:
    """The points of each outcome as one path; what matters most is drawn last."""
    return [
        Shape(
            outcome,
            "".join(
                f"M{x:.0f} {HEIGHT * (1 - y):.0f}h0"
                for x, y in zip(*series.points[outcome], strict=True)
            ),
        )
        for outcome in _draw_order(series.points)
    ]


def tile_shapes(series: Latencies, end_ms: float) -> list[Shape]:
    """Tiles by outcome and shade: the count's logarithm, against the outcome's fullest tile."""
    width, height = end_ms / TILE_COLUMNS, HEIGHT / TILE_ROWS
    shapes = []
    for outcome in _draw_order(series.tiles):
        tiles = series.tiles[outcome]
        most = math.log2(1 + max(count for _, _, count in tiles))
        paths: dict[int, list[str]] = {}
        for column, row, count in tiles:
            shade = max(1, math.ceil(_SHADES * math.log2(1 + count) / most))
            x, y = column * width, HEIGHT - (row + 1) * height
            paths.setdefault(shade, []).append(
                f"M{x:.0f} {y:.0f}h{width:.0f}v{height:.0f}h-{width:.0f}z"
            )
        shapes += [Shape(outcome, "".join(paths[shade]), shade) for shade in sorted(paths)]
    return shapes


def _draw_order(outcomes: Iterable[str]) -> list[str]:
    present = list(outcomes)
    return [name for name in ("empty", "ok", "fail", "info") if name in present]


def quantile_path(series: Latencies, quantile: float) -> str:
    """A line through the buckets' middles, broken where a bucket has no ok operation."""
    span = math.log10(series.high_ns / series.low_ns)
    parts, pen_down = [], False
    for index, value in enumerate(series.quantiles_ns[quantile]):
        if math.isnan(value):
            pen_down = False
            continue
        y = HEIGHT * (1 - math.log10(max(value, series.low_ns) / series.low_ns) / span)
        x = (index + 0.5) * series.width_ms
        # A lone bucket still shows, as a dash of its own width.
        parts.append(f"L{x:.0f} {y:.0f}" if pen_down else f"M{x - 1:.0f} {y:.0f}H{x:.0f}")
        pen_down = True
    return "".join(parts)


def rate_shapes(per_second: dict[str, Floats], width_ms: int, top: float) -> list[Shape]:
    """Stacked columns, ok at the bottom."""
    if not per_second:
        return []
    base = np.zeros(len(next(iter(per_second.values()))))
    shapes = []
    for outcome in ("ok", "info", "fail", "empty"):
        heights = per_second.get(outcome)
        if heights is None:
            continue
        shapes.append(Shape(outcome, _columns(base, heights, width_ms, top)))
        base = base + heights
    return shapes


def _columns(base: Floats, heights: Floats, width_ms: int, top: float) -> str:
    parts = []
    for index in np.flatnonzero(heights):
        low, high = (min(1.0, h / top) for h in (base[index], base[index] + heights[index]))
        y, tall = HEIGHT * (1 - high), HEIGHT * (high - low)
        parts.append(f"M{index * width_ms} {y:.1f}h{width_ms}v{tall:.1f}h-{width_ms}z")
    return "".join(parts)


def rate_top(per_second: dict[str, Floats], buckets: slice) -> float:
    """The top of a rate axis: the tallest column of ``buckets``, rounded up a little.

    The load decides, for a drain is as fast as the cluster can; what is taller is cut off.
    """
    columns = [series[buckets] for series in per_second.values()]
    tallest = float(np.sum(columns, axis=0).max(initial=1)) if columns else 1.0
    power = 10.0 ** math.floor(math.log10(max(tallest, 1)))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= tallest)


def rate_ticks(top: float) -> list[Tick]:
    """Nothing, half and top."""
    return [Tick(0, number_label(top)), Tick(50, number_label(top / 2)), Tick(100, "0")]


def pack_rows(intervals: list[tuple[float, float]], gap: float) -> list[int]:
    """The first row for each interval (in order of begin) in which it overlaps nothing."""
    ends: list[float] = []
    rows = []
    for begin, end in intervals:
        row = next((r for r, taken in enumerate(ends) if taken + gap <= begin), len(ends))
        if row == len(ends):
            ends.append(end)
        ends[row] = end
        rows.append(row)
    return rows


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


class VerdictCounts(Protocol):
    @property
    def valid(self) -> int: ...
    @property
    def expected(self) -> int: ...
    @property
    def unknown(self) -> int: ...
    @property
    def none(self) -> int: ...
    @property
    def invalid(self) -> int: ...


def bar_heights(
    counts: Sequence[VerdictCounts], tall: float
) -> list[tuple[int, str, float, float]]:
    """A sparkline: for each night that has runs, the place, the verdict, top and height of its
    parts, from the bottom up valid, expected, unknown, invalid."""
    parts = []
    for place, each in enumerate(counts):
        total = each.invalid + each.unknown + each.none + each.valid + each.expected
        floor = tall
        lower = (("valid", each.valid), ("expected", each.expected))
        upper = (("unknown", each.unknown + each.none), ("invalid", each.invalid))
        for word, number in (*lower, *upper):
            if number:
                height = tall * number / total
                floor -= height
                parts.append((place, word, round(floor, 2), round(height, 2)))
    return parts
