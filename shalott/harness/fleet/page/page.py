"""index.html: the page's data as one self-contained page, without a script.

Names of runs, nodes' words and headlines are other people's text: all of it is escaped, what can't
be seen is shown as its number, and the page's own policy lets nothing be loaded or run.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import markupsafe

import shalott.harness.report as report_room
from shalott.harness.fleet.matrix.findings import Share
from shalott.harness.fleet.page.data import Day, PageData
from shalott.harness.fleet.page.words import (
    breakable,
    count,
    duration,
    moment,
    number_of,
    percent,
    plain,
    shortened,
    verdict_words,
)
from shalott.harness.report.plots.bars import bar_heights

_TEMPLATES = Path(__file__).parent / "templates"
_SHARED = Path(report_room.__file__).parent / "templates"  # the style of a run's report
ALL_ROWS = 1_000_000
REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Leads:
    """From the page to the runs' own reports.

    ``base``: what runs' names are relative to; None: they are on no file system of this machine.
    """

    base: Path | None
    out: Path

    def to(self, run: str) -> str:
        """A relative link; "" if there is no such file in the store."""
        if self.base is None or run.startswith("/") or ".." in run.split("/"):
            return ""
        try:
            place = self.base.resolve() / run / REPORT
            if not place.is_file():
                return ""
            return quote(os.fsencode(os.path.relpath(place, self.out.resolve())))
        except (OSError, ValueError):  # what no file can be called
            return ""


@dataclass(frozen=True, slots=True)
class Source:
    """Who counted: the engine, and how many runs it judged now."""

    engine: str
    judged: int


def render_page(data: PageData, leads: Leads, source: Source) -> bytes:
    """The whole page."""
    worst = _worst(data)
    text = _environment().get_template("fleet.html.j2").render(
        data=data,
        source=source,
        worst=worst,
        title=_title(data),
        lead=leads.to,
        runs_command=f"shalott runs {shlex.quote(data.store)} --last 0",
        all_command=f"shalott report {shlex.quote(data.store)} --rows {ALL_ROWS}",
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def _worst(data: PageData) -> str:
    """The style of the page's head."""
    counts = data.verdicts
    if counts.invalid:
        return "invalid"
    return "valid" if counts.valid == counts.total and counts.total else "unknown"


def _title(data: PageData) -> str:
    counts = data.verdicts
    if not counts.total:
        return "No runs"
    runs = number_of(counts.total, "run")
    return f"{counts.invalid:,} of {runs} invalid" if counts.invalid else f"{runs}, none invalid"


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_TEMPLATES, _SHARED]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bar_heights": bar_heights,
        "breakable": breakable,
        "count": count,
        "day_label": _day_label,
        "duration": duration,
        "moment": moment,
        "number_of": number_of,
        "percent": percent,
        "shortened": shortened,
        "verdict_words": verdict_words,
        "width": _width,
    }
    return made


def _finalized(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return plain(value)
    return value


def _width(part: float) -> str:
    """A share as a place on a line of 100."""
    return f"{100 * part:.2f}"


def _day_label(days: Sequence[Day], share: Share | None) -> str:
    """What the picture of days says to who can't see it."""
    runs = sum(day.verdicts.total for day in days)
    told = f"{share.k:,} of {share.n:,} judged runs invalid" if share else "none of them judged"
    return (
        f"Runs a day from {days[0].day} to {days[-1].day}: {runs:,} runs, {told};"
        " the table below has each day"
    )
