"""Time and memory against the number of operations and against concurrency: tables, and plots as
SVG that needs nothing but a browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.histories import Load
from benchmarks.processes import measure

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
CLIENTS: Final = (2, 5, 10, 20, 35, 50)
MODELS: Final = (
    "fifo-queue", "unordered-queue", "register", "set", "log", "mutex", "cas-register",
)  # fmt: skip
COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#222222")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]


def show(out: Path, divide: int) -> None:
    """Measures, prints and plots. ``divide``: all sizes by so much."""
    out.mkdir(parents=True, exist_ok=True)
    sizes = [max(100, size // divide) for size in SIZES]
    by_size = {model: [_taken(model, Load(size, 10, 0.0)) for size in sizes] for model in MODELS}
    most = 100_000 // divide
    by_clients = {
        f"{model}, {operations:,} operations": [
            _taken(model, Load(operations, clients)) for clients in CLIENTS
        ]
        for model, operations in (
            ("fifo-queue", most), ("register", most), ("cas-register", max(1000, most // 10)),
        )
    }  # fmt: skip
    _tell(out, "operations", "operations, 10 clients", sizes, by_size)
    _tell(out, "clients", "saturated clients", CLIENTS, by_clients)


def _taken(model: str, load: Load) -> tuple[float, float]:
    """(CPU seconds, bytes that the engine held at most) of checking a valid history."""
    path = measure({"task": "draw", "model": model, "load": asdict(load), "ending": "npz"})["path"]
    work = {"path": path, "model": model, "prefix": False, "by": "auto", "time_limit_s": 120.0}
    found = measure({"task": "history", **work}, 2)
    return (math.nan, math.nan) if found["valid"] is not True else (found["cpu_s"], found["engine"])


def _tell(
    out: Path,
    stem: str,
    axis: str,
    places: Sequence[int],
    taken: dict[str, list[tuple[float, float]]],
) -> None:
    for which, unit, shown in (
        (0, "CPU seconds", _seconds), (1, "bytes held by the engine", _bytes),
    ):  # fmt: skip
        print(f"\n{unit} against {axis}\n")
        print(f"| | {' | '.join(f'{place:,}' for place in places)} |")
        print(f"| --- |{' --- |' * len(places)}")
        series = []
        for name, found in taken.items():
            print(f"| {name} | {' | '.join(shown(each[which]) for each in found)} |", flush=True)
            points = zip(places, (each[which] for each in found), strict=True)
            known = tuple((float(x), y) for x, y in points if y == y and y > 0)
            series.append(Series(name, known))
        path = out / f"{stem}-{'time' if which == 0 else 'memory'}.svg"
        path.write_text(svg(unit, axis, series, shown))
        print(f"\nplotted in {path}")


def _seconds(value: float) -> str:
    return "unknown" if value != value else f"{value:.2g}"


def _bytes(value: float) -> str:
    if value != value:
        return "unknown"
    return f"{value / 1e6:.3g} MB" if value >= 1e5 else f"{value / 1e3:.3g} kB"


# --- plots ----------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 80, 230, 40, 50


def svg(title: str, axis: str, series: Sequence[Series], shown: Callable[[float], str]) -> str:
    """A log-log plot."""
    points = [point for each in series for point in each.points]
    if not points:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    across = _scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{title} against {axis}</text>',
    ]
    for x in sorted({x for x, _ in points}):
        place, base = across(x), HEIGHT - BOTTOM
        parts.append(f'<path d="M{place:.1f} {base}V{TOP}" stroke="#eee"/>')
        parts.append(f'<text x="{place:.1f}" y="{base + 18}" text-anchor="middle">{x:,.0f}</text>')
    for y in _decades([y for _, y in points]):
        place = up(y)
        parts.append(f'<path d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{shown(y)}</text>'
        )
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across(x), up(y)) for x, y in each.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        row = TOP + 18 * number
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{row}" width="10" height="10" '
                     f'fill="{colour}"/>')  # fmt: skip
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{row + 10}">{each.name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    span = (high - low) or 1.0
    return lambda value: first + (math.log10(value) - low) / span * (last - first)


def _decades(values: Sequence[float]) -> list[float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
