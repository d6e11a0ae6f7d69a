"""index.html: the page's data as one self-contained page, without a script.

Names of runs, nodes' words and headlines are foreign text: all of it is escaped, characters that
can't be seen are shown as their numbers, and the page's policy lets nothing be loaded or run.

Verdicts by cell and by day of true time; acknowledged messages that are gone, by faults.
"""

from __future__ import annotations

import math
import os
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2
import markupsafe

import shalott.harness.report as report_room
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
    PageData,
    Verdicts,
    count_verdicts,
    listed,
    share,
)
from shalott.harness.fleet.run_facts import Fact, worst_first
from shalott.harness.matrix.night_findings import Share
from shalott.harness.report.draw import bar_heights

_TEMPLATES = Path(__file__).parent / "templates"
_SHARED = Path(report_room.__file__).parent / "templates"  # the style of a run's report
ALL_ROWS = 1_000_000
REPORT = "report.html"
TEXT_MAX = 300
# Of each Unicode category what it does to a page: Cc and Cf move or hide text, Cs is no character.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


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


def _finalized(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return plain(value)
    return value


def _width(part: float) -> str:
    """A share as a place on a line of 100."""
    return f"{100 * part:.2f}"


def _day_label(days: Sequence[Day], share: Share | None) -> str:
    """What the picture of days says to who can't see it."""
    runs = sum(day.verdicts.total for day in days)
    share_text = (
        f"{share.k:,} of {share.n:,} judged runs invalid" if share else "none of them judged"
    )
    return (
        f"Runs a day from {days[0].day} to {days[-1].day}: {runs:,} runs, {share_text};"
        " the table below has each day"
    )


def plain(text: str) -> str:
    """Foreign text, safe to look at: characters that can't be seen are shown as their numbers."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in _UNSEEN else char for char in text
    )


def shortened(text: str, at_most: int = TEXT_MAX) -> str:
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"


def count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def percent(part: float) -> str:
    """Two digits that tell something: neither 0 nor 100 is said of what is not quite that."""
    value = 100 * part
    if value <= 0 or value >= 100:
        return "0 %" if value <= 0 else "100 %"
    from_end = float(f"{min(value, 100 - value):.2g}")
    if from_end < 1e-6:
        return "under 0.000001 %" if value < 50 else "over 99.999999 %"
    digits = max(0, 1 - math.floor(math.log10(from_end)) - (value > 50 or from_end >= 10))
    text = f"{value:.{digits}f}"
    return f"{text} %"


def duration(ns: int | None) -> str:
    """None is never."""
    if ns is None:
        return "never"
    if ns < 10**9:
        return f"{ns / 1e6:,.0f} ms"
    return f"{ns / 1e9:,.2f} s" if ns < 100 * 10**9 else f"{ns / 1e9:,.0f} s"


def moment(wall_ns: int | None) -> str:
    """A wall time, in UTC."""
    if wall_ns is None:
        return "unknown"
    return f"{datetime.fromtimestamp(wall_ns // 10**9, UTC):%Y-%m-%d %H:%M} UTC"


def breakable(text: str) -> markupsafe.Markup:
    """A name of several parts, which may be broken between them."""
    shown = markupsafe.escape(plain(text))
    for mark in "/+@":
        shown = shown.replace(mark, markupsafe.Markup(f"{mark}<wbr>"))
    return shown


def verdict_words(counts: Verdicts) -> list[tuple[str, str]]:
    """Each verdict that there is, with its style."""
    counts_text = (
        ("bad", counts.invalid, "invalid"), ("doubt", counts.unknown, "unknown"),
        ("doubt", counts.none, "without a verdict"), ("good", counts.valid, "valid"),
    )  # fmt: skip
    return [(style, f"{number:,} {word}") for style, number, word in counts_text if number]


def number_of(count_: int, one: str, several: str = "") -> str:
    """As in: 1 run, 2 runs."""
    return f"{count_:,} {one if count_ == 1 else several or one + 's'}"


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
