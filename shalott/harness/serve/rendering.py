"""Data as pages: the templates, what they call, and the figures' words. Everything is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2

from shalott.harness.report.draw import bar_heights
from shalott.harness.serve.request import link

HERE = Path(__file__).parent
_CLASSES = {"invalid": "invalid", "valid": "valid"}


def render(template: str, **values: object) -> bytes:
    """A page. ``values``: by the names in the template."""
    return environment().get_template(template).render(values).encode("utf-8", "replace")


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"link": link}
    made.filters |= {
        "when": when,
        "count": count,
        "size": size,
        "ms": milliseconds,
        "percent": percent,
        "kind": lambda verdict: _CLASSES.get(verdict, "unknown"),
        "bar_heights": bar_heights,
        "seconds": lambda ns: "" if ns is None else f"{ns / 1e9:.6f}",
    }
    return made


def when(wall_ns: int | None) -> str:
    """A wall time, in UTC; nothing for what is no time."""
    if not wall_ns or not 0 < wall_ns < 2**62:
        return "–"
    return f"{datetime.fromtimestamp(wall_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def size(value: int) -> str:
    amount, units = float(value), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def milliseconds(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def percent(share: float) -> str:
    return (
        f"{100 * share:.0f} %" if share in (0, 1) or 0.1 <= share <= 0.9 else f"{100 * share:.1f} %"
    )
