"""docs/evidence/published.md: what is published of systems, and what became of it.

Nothing in it is written by hand: ``shalott bugs --published --document`` writes it anew, out of
published.json, with the page of each system whose plug-in is here (docs/evidence/systems).
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Iterator, Sequence
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
the first find; CPU seconds those of one run, its harness and its nodes, MiB what its nodes took
together (medians; "-": not known).

This page is generated: `shalott bugs --published` runs what is missing and writes it; a name runs
one row or one system's, `--repeat 5` so many times, `--version` on one release. Every run stands in
`published.json`. A run that showed it has a report to send upstream beside it in the store.
"""
_COLUMNS: Final = (
    *("finding", "on", "found", "after min", "CPU s", "MiB", "seen", "published", "newest"),
    *("found there", "so"),
)
_SHORT_COLUMNS: Final = ("finding", "found, by release", "newest release")


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
    return _table(kept, system, _COLUMNS, _cells)


def short_rows(kept: Published, system: str) -> Iterator[str]:
    """The same for the system's page: on every release that was run."""
    return _table(kept, system, _SHORT_COLUMNS, _short_cells)


def _table(
    kept: Published,
    system: str,
    columns: Sequence[str],
    cells_of: Callable[[PublishedFinding, Sequence[Look]], Sequence[str]],
) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + " --- |" * len(columns)
    for each in sorted(kept.findings.values(), key=lambda each: each.name):
        if each.system == system:
            cells = cells_of(each, kept.looks.get(each.name, ()))
            yield "| " + " | ".join(cell.replace("\n", " ") or "-" for cell in cells) + " |"


def _short_cells(finding: PublishedFinding, looks: Sequence[Look]) -> Sequence[str]:
    releases = sorted({look.release for look in looks})
    found = ", ".join(f"{each} {tally_on(looks, each).words}" for each in releases)
    return (
        f"[{finding.name}]({finding.source}): {finding.title}",
        found or "not run yet",
        f"{finding.newest}: {on_newest(finding, looks)}",
    )


def memory_of(kept: Published, system: str) -> Iterator[str]:
    """What clusters of the system took, by their size."""
    looks = [
        look
        for name, found in kept.looks.items()
        if name in kept.findings and kept.findings[name].system == system
        for look in found
        if look.memory_mib and not look.void
    ]
    for nodes in sorted({look.nodes for look in looks}):
        taken = [look.memory_mib for look in looks if look.nodes == nodes]
        runs = "1 run" if len(taken) == 1 else f"{len(taken)} runs"
        yield f"{nodes} nodes took {_median(taken)} MiB together (median of {runs})."


def _cells(finding: PublishedFinding, looks: Sequence[Look]) -> tuple[str, ...]:
    there = looks_on(looks, finding.release)
    minutes = minutes_to_first(there, "published")
    sound = [look for look in there if not look.void]
    return (
        f"{finding.name}: {finding.title}",
        finding.release,
        tally_on(looks, finding.release).words,
        "-" if minutes is None else f"{minutes:.1f}",
        _median([look.own_cpu_s for look in sound]),
        _median([look.memory_mib for look in sound]),
        _numbers([look for look in sound if look.found]),
        finding.published,
        finding.newest,
        tally_on(looks, finding.newest).words,
        on_newest(finding, looks),
    )


def _median(values: Sequence[float]) -> str:
    """Of those that are known."""
    known = [value for value in values if value]
    return f"{statistics.median(known):.0f}" if known else "-"


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
    cost = f" {look.own_cpu_s:.0f} CPU s, {look.memory_mib:.0f} MiB," if look.own_cpu_s else ""
    return (
        f"{look.release}, seed {look.seed}: {said}{kinds}, {look.elapsed_s:.0f} s,{cost}"
        f" load {look.load:g}; run `{look.run}`."
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
