"""docs/evidence/published.md: what is published of systems, and what became of it.

Nothing in it is written by hand: ``shalott bugs --published --document`` writes it anew, out of
published.json, with the page of each system whose plug-in is here (docs/evidence/systems).
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shalott.core.errors import StoreError
from shalott.core.published import PublishedFinding
from shalott.harness.originals.evidence import Look, minutes_to_first
from shalott.harness.published.evidence import (
    Published,
    is_decided,
    looks_on,
    on_newest,
    tally_on,
)
from shalott.harness.run.atomic_file import write_atomically

DOCUMENT: Final = Path("evidence") / "published.md"
PAGES: Final = Path("evidence") / "systems"
ACKNOWLEDGED: Final = ("acknowledged-count", "acked-count", "send-ok-count")
NO_LOSS: Final = ("count", "ok-count", "fail-count", "info-count")

_HEAD: Final = """\
# Published findings, run again

For readers who ask whether what was published of a system is found again, and whether its newest
release still has it.

Each row is a finding that others published, or a loss that a manual admits. Its plan was run on a
release of which it is published, and on the newest one. "2 of 5": two of five sound runs showed it;
runs that saw too little, because the machine stalled or a node did not start, are not counted.
**gone**: not seen on the newest release, in so many runs that chance explains it with 10 % at most;
**unknown**: it was not looked for, or too rarely for how rarely it comes. Minutes are those until
the first find, CPU seconds those of the whole machine for one run (the median).

This page is generated: `shalott bugs --published` runs what is missing and writes it; a name runs
one row or one system's, `--repeat 5` so many times, `--version` on one release. Every run stands in
`published.json`. A run that showed it has a report to send upstream beside it in the store.
"""
_COLUMNS: Final = (
    *("finding", "on", "found", "after min", "CPU s", "seen", "published", "newest", "found there"),
    "so",
)


def render(kept: Published) -> str:
    findings = sorted(kept.findings.values(), key=lambda each: (each.system, each.name))
    decided = [each for each in findings if is_decided(each, kept.looks.get(each.name, ()))]
    found = [
        each for each in decided if tally_on(kept.looks.get(each.name, ()), each.release).found
    ]
    lines = [
        _HEAD,
        f"{len(findings)} findings; {len(decided)} were run on a release with it, {len(found)} of"
        " these were found.",
    ]
    for system in dict.fromkeys(each.system for each in findings):
        lines += ["", f"## {system}", "", *rows(kept, system)]
    for each in findings:
        lines += ["", *_about(each, kept.looks.get(each.name, ()))]
    return "\n".join(lines) + "\n"


def rows(kept: Published, system: str) -> Iterator[str]:
    """The table of one system's findings."""
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "|" + " --- |" * len(_COLUMNS)
    for each in sorted(kept.findings.values(), key=lambda each: each.name):
        if each.system == system:
            cells = _cells(each, kept.looks.get(each.name, ()))
            yield "| " + " | ".join(cell.replace("\n", " ") or "-" for cell in cells) + " |"


def _cells(finding: PublishedFinding, looks: Sequence[Look]) -> tuple[str, ...]:
    there = looks_on(looks, finding.release)
    minutes = minutes_to_first(there, "published")
    sound = [look for look in there if not look.void]
    cpu = f"{statistics.median(look.cpu_s for look in sound):.0f}" if sound else "-"
    return (
        f"{finding.name}: {finding.title}",
        finding.release,
        tally_on(looks, finding.release).words,
        "-" if minutes is None else f"{minutes:.1f}",
        cpu,
        _numbers([look for look in sound if look.found]),
        finding.published,
        finding.newest,
        tally_on(looks, finding.newest).words,
        on_newest(finding, looks),
    )


def _numbers(found: Sequence[Look]) -> str:
    """What the runs that showed it counted, least / median / most, of what was acknowledged."""
    names = sorted({name for look in found for kind in look.classes if (name := f"{kind}-count")})
    told = [
        f"{name.removesuffix('-count')} {_spread([look.counts.get(name, 0) for look in found])}"
        for name in names
        if name not in NO_LOSS and any(look.counts.get(name) for look in found)
    ]
    acked = [
        next((look.counts[name] for name in ACKNOWLEDGED if name in look.counts), 0)
        for look in found
    ]
    if told and any(acked):
        told.append(f"of {_spread(acked)} acknowledged")
    return ", ".join(told)


def _spread(values: Sequence[float]) -> str:
    shown = (min(values), statistics.median(values), max(values))
    return f"{shown[0]:g}" if shown[0] == shown[2] else " / ".join(f"{each:g}" for each in shown)


def _about(finding: PublishedFinding, looks: Sequence[Look]) -> Iterator[str]:
    yield f"### {finding.name}"
    yield ""
    yield f"{finding.title}. <{finding.source}>"
    yield ""
    mended = f"; mended in {finding.mended}" if finding.mended else "; no release is without it"
    yield f"- Releases with it that can be had: {', '.join(finding.releases)}{mended}."
    yield f"- Seen as: {finding.seen_words}."
    if finding.promised:
        yield f"- Promised: {finding.promised}"
    words = ("shalott", "test", "--system", finding.system, "--version", finding.release)
    yield f"- Command: `{shlex.join((*words, *finding.command))}`"
    for release in dict.fromkeys(look.release for look in looks):
        for look in looks_on(looks, release):
            yield f"- {_look_words(look)}"


def _look_words(look: Look) -> str:
    said = f"void ({look.void})" if look.void else "found" if look.found else "not found"
    kinds = f" as {', '.join(look.classes)}" if look.found and look.classes else ""
    return (
        f"{look.release}, seed {look.seed}: {said}{kinds}, {look.elapsed_s:.0f} s,"
        f" {look.cpu_s:.0f} CPU s, load {look.load:g}; run `{look.run}`."
    )


def write_document(directory: Path, kept: Published) -> None:
    """Raises StoreError."""
    make_folder(directory / DOCUMENT.parent)
    write_atomically(directory / DOCUMENT, render(kept).encode())


def make_folder(folder: Path) -> None:
    """Raises StoreError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write into {folder}: {error.strerror}") from error
