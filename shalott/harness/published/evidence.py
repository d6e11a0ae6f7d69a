"""What runs showed of published findings, as docs/evidence/published.json keeps it.

A run is sound, and counts, as in the ladder of our originals (harness/originals/evidence.py). What
was not found in sound runs was not there; a run that proved nothing says neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shalott.checkers.checker import Result
from shalott.core.published import PublishedFinding, Seen
from shalott.harness.originals.evidence import (
    NS,
    TOLD,
    KeptLooks,
    Look,
    Tally,
    first_s,
    matches,
    read_kept,
    why_void,
    write_kept,
)
from shalott.harness.report.results import RunResults, classes, violations

FILE = Path("evidence") / "published.json"
MISSED_BY_CHANCE = 0.1  # as likely as that, and less, "not seen" is not taken for chance


class Published(msgspec.Struct, frozen=True):
    """By the findings' names; those of plug-ins that are not here stay as they were."""

    findings: dict[str, PublishedFinding] = {}
    looks: KeptLooks = {}


def load_published(directory: Path) -> Published:
    """Raises StoreError."""
    return read_kept(directory / FILE, Published) or Published()


def keep(
    directory: Path, findings: Sequence[PublishedFinding], looks: Sequence[tuple[str, Look]] = ()
) -> Published:
    """Beside what others have kept meanwhile. Raises StoreError."""
    kept = load_published(directory)
    kept.findings.update({each.name: each for each in findings})
    for name, look in looks:
        kept.looks.setdefault(name, []).append(look)
    write_kept(directory / FILE, kept)
    return kept


def look_at(
    finding: PublishedFinding,
    release: str,
    found: RunResults,
    directory: Path,
    *,
    load: float,
    harness_cpu_s: float,
) -> Look:
    """``directory``: the run's, where its nodes' files are. ``harness_cpu_s``: not its nodes'."""
    usage = found.usage
    lines = max((_most_lines(each, directory) for each in finding.seen if each.line), default=0)
    is_found = is_shown(finding, found, directory)
    wanted = [kind for each in finding.seen for kind in each.kinds]
    judges = [each.checker for each in finding.seen if each.checker]
    return Look(
        side="published",
        release=release,
        run=found.run or found.name,
        seed=found.seed,
        found=is_found,
        valid=found.valid,
        classes=classes(violations(found.results)),
        lines=lines,
        counts=_counts(finding, found.results),
        first_s=first_s(found.results, wanted) if is_found else None,
        elapsed_s=round(found.elapsed_ns / NS, 1),
        load=round(load, 2),
        nodes=0 if usage is None else usage.nodes,
        own_cpu_s=0.0 if usage is None else round(harness_cpu_s + usage.cpu_s, 1),
        memory_mib=0.0 if usage is None else usage.memory_mib,
        void=why_void(found, wanted, is_found=is_found, judges=judges),
    )


def is_shown(finding: PublishedFinding, found: RunResults, directory: Path) -> bool:
    return any(_shows(each, found.results, directory) for each in finding.seen)


def _shows(seen: Seen, results: Sequence[Result], directory: Path) -> bool:
    told = [each for each in results if seen.checker in ("", each.checker)]
    if seen.kinds and not any(
        anomaly.kind in seen.kinds
        for each in told
        if each.valid is False
        for anomaly in each.anomalies
    ):
        return False
    if seen.count and max((each.counts.get(seen.count, 0) for each in told), default=0) < (
        seen.least
    ):
        return False
    least = 1 if seen.count else seen.least
    return not seen.line or _most_lines(seen, directory) >= least


def _most_lines(seen: Seen, directory: Path) -> int:
    """How often the line stands in one node's files, the most of all nodes."""
    pattern = re.compile(seen.line)
    nodes = sorted(directory.glob("nodes/*"))
    return max(
        (sum(matches(pattern, path) for path in text_files(node)) for node in nodes), default=0
    )


def text_files(node: Path) -> list[Path]:
    """What was brought back of a node that is a log, by its first bytes."""
    files = (path for path in sorted(node.rglob("*")) if path.is_file())
    return [path for path in files if b"\0" not in _beginning(path)]


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


def _counts(finding: PublishedFinding, results: Sequence[Result]) -> dict[str, float]:
    """Of the checkers by which it is known, all that they count; of the others what is told."""
    judges = {each.checker for each in finding.seen if each.checker}
    return {
        name: value
        for each in results
        for name, value in each.counts.items()
        if value and (each.checker in judges or each.valid is False or name in TOLD)
    }


# -- what they say together ------------------------------------------------------------------------


def looks_on(looks: Sequence[Look], release: str) -> list[Look]:
    return [look for look in looks if look.release == release]


def tally_on(looks: Sequence[Look], release: str) -> Tally:
    sound = [look for look in looks_on(looks, release) if not look.void]
    return Tally(sum(look.found for look in sound), len(sound))


def is_decided(finding: PublishedFinding, looks: Sequence[Look]) -> bool:
    return tally_on(looks, finding.release).runs > 0


def on_newest(finding: PublishedFinding, looks: Sequence[Look]) -> str:
    """gone, still there, or unknown: it was not looked for, or so rarely that it may be chance that
    it did not come, as rarely as it comes on the release of which it is published."""
    newest, there = tally_on(looks, finding.newest), tally_on(looks, finding.release)
    if newest.found:
        return "still there"
    if not newest.runs or not there.found:
        return "unknown"
    missed = (1 - there.found / there.runs) ** newest.runs
    return "gone" if missed <= MISSED_BY_CHANCE else "unknown"
