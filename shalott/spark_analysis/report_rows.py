"""What report.json holds, one row a run, and the same as a table for people (report.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shalott.core.run_id import run_id

# Column of LOST_MESSAGES, or kind of DUAL_MASTERS -> the checker's count of the same thing.
COMPARED = {
    "attempts": "attempt-count",
    "acknowledged": "acknowledged-count",
    "delivered_once": "delivered-once-count",
    "recovered": "recovered-count",
    "lost": "lost-count",
    "duplicated": "duplicated-count",
    "redelivered": "redelivered-count",
    "phantom": "phantom-count",
    "not_enqueued": "not-enqueued-count",
    "unexpected": "unexpected-count",
    "corrupted": "corrupted-count",
    "too_early": "too-early-count",
    "lost_provably": "lost-provably-count",
    "claimed": "dual-master-claimed-count",
    "effective": "dual-master-effective-count",
}
HEADINGS = (
    *("run", "system", "verdict", "acked", "lost", "again", "phantom", "skipped", "dead letters"),
    *("claimed", "effective", "both masters", "longest gap"),
)
LEFT_OUT = (
    "system",
    "phantom",
    "skipped",
    "dead letters",
    "longest gap",
)  # on the terminal, whose lines are short

REST_WIDTH = 76  # of the terminal's table, without the runs' names


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``counts`` has the names of COMPARED; ``differs`` what its checkers counted else.

    ``failed``: the checkers that say false. ``found``: what the other jobs found, one number each.
    """

    run: str
    system: str
    profile: str
    partition_mode: str
    seed: int
    valid: bool | str | None
    complete: bool
    counts: dict[str, int]
    double_tenure_ns: int  # effective, no instant counted twice
    undrained: tuple[str, ...]
    differs: dict[str, tuple[int, int]]  # name -> here, by the checkers
    consumed: dict[str, int] = {}  # of runs with consumers, by the names of CONSUMED
    workload: str = ""
    failed: tuple[str, ...] = ()
    found: dict[str, int] = {}

    @property
    def has_messages(self) -> bool:
        """Whether there was anything to count: workloads of others have nouns of their own."""
        return bool(self.counts["attempts"] or any(self.consumed.values()))

    @property
    def is_bad(self) -> bool:
        """By its stored verdict, or by what was found here."""
        bad = ("order_breaches", "not_linearizable", "stuck")
        return bool(
            self.valid is False
            or self.counts["lost"]
            or self.counts["effective"]
            or self.consumed.get("skipped")
            or any(self.found.get(name) for name in bad)
        )


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What report.json holds. ``judged``: so many runs were judged now, of the others results were
    kept."""

    version: int = 1
    store: str
    runs: tuple[RunLine, ...]
    unreadable: tuple[str, ...]
    engine: str = ""
    judged: int = 0


def _cells(line: RunLine) -> list[str]:
    counts, told = line.counts, _number if line.has_messages else _untold
    doubt = "?" if counts["lost"] != counts["lost_provably"] else ""
    seconds = f"{line.double_tenure_ns / 1e9:.1f} s" if line.double_tenure_ns else "-"
    return [
        line.run,
        " ".join(filter(None, (line.system, line.profile, line.partition_mode))),
        _verdict(line),
        told(counts["acknowledged"]),
        told(counts["lost"]) + doubt,
        told(counts["duplicated"] + counts["redelivered"]),
        told(counts["phantom"]),
        told(line.consumed.get("skipped", 0)),
        told(line.consumed.get("dead_lettered", 0)),
        f"{counts['claimed']:,}",
        f"{counts['effective']:,}",
        seconds,
        f"{line.found.get('longest_gap_ns', 0) / 1e9:.1f} s",
    ]


def _number(count: int) -> str:
    return f"{count:,}"


def _untold(count: int) -> str:
    """In place of a number that no one counted."""
    return "-"


def _verdict(line: RunLine) -> str:
    words = {True: "valid", False: "invalid", None: "-"}
    word = words.get(line.valid, "unknown")  # type: ignore[arg-type]
    return word + (" *" if line.differs else "")


def _remarks(report: FleetReport) -> list[str]:
    """What the table can't say."""
    remarks = list(report.unreadable)
    for line in report.runs:
        if line.valid is False and not _shows(line):
            remarks.append(f"! {line.run}: invalid by {', '.join(line.failed) or 'its verdict'}")
        remarks += [f"! {line.run}: {sentence}" for sentence in _of_other_jobs(line)]
        if line.undrained and line.counts["lost"]:
            queues = ", ".join(line.undrained)
            remarks.append(f"? {line.run}: {queues} was not drained; messages may still be there")
        for name, (here, there) in line.differs.items():
            remarks.append(
                f"* {line.run}: {name} is {here:,} here and {there:,} in its results.json; "
                f"`shalott analyze` judges it anew"
            )
    return remarks


def _shows(line: RunLine) -> bool:
    """Whether the table says by itself what was wrong with it."""
    return bool(line.counts["lost"] or line.counts["effective"])


def _of_other_jobs(line: RunLine) -> Sequence[str]:
    found = line.found
    told = (
        ("order_breaches", "{:,} breaches of order"),
        ("not_linearizable", "{:,} objects are not linearizable"),
        ("undecided", "{:,} objects could not be decided"),
        ("stuck", "consumers were stuck {:,} times"),
    )
    return [text.format(found[name]) for name, text in told if found.get(name)]


def summary(report: FleetReport) -> str:
    total = {name: sum(line.counts[name] for line in report.runs) for name in COMPARED}
    lossy = sum(line.counts["lost"] > 0 for line in report.runs)
    invalid = sum(line.valid is False for line in report.runs)
    torn = sum(line.counts["effective"] > 0 for line in report.runs)
    messages = (
        f" {total['acknowledged']:,} acknowledged messages: {total['lost']:,} lost in {lossy:,}"
        " runs;"
        if any(line.has_messages for line in report.runs)
        else ""
    )
    return (
        f"{len(report.runs):,} runs, {invalid:,} of them invalid;{messages}"
        f" two masters acknowledged in {torn:,} runs."
    )


def markdown(report: FleetReport) -> list[str]:
    rows = [_cells(line) for line in report.runs]
    return [
        f"# {summary(report)}",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'|'.join(['---'] * 3 + ['---:'] * (len(HEADINGS) - 3))}|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *(f"- {remark}" for remark in _remarks(report)),
    ]


def print_report(report: FleetReport, out: Path, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id", no_wrap=True)
    # A name that is broken can't be copied: where there is no room for it, the id stands alone.
    longest = max((len(line.run) for line in report.runs), default=0)
    left_out = LEFT_OUT if console.width >= longest + REST_WIDTH else ("run", *LEFT_OUT)
    shown = [place for place, heading in enumerate(HEADINGS) if heading not in left_out]
    for place in shown:
        justify: Literal["left", "right"] = "left" if place < 3 else "right"
        table.add_column(HEADINGS[place], justify=justify, no_wrap=True)
    for line in report.runs:
        cells = _cells(line)
        table.add_row(
            run_id(line.run),
            *(Text(cells[place]) for place in shown),
            style="red" if line.is_bad else None,
        )
    console.print(table)
    for remark in _remarks(report):
        console.print(Text(remark))
    console.print(Text(f"{summary(report)} Written to {out}."))
