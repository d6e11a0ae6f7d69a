"""Runs published findings, one run after the other, and keeps each as soon as it is over.

Each is run so often on the release of which it is published, and as often on the newest one. Runs
that prove nothing are made again, at most as often as was asked for in one command. What was kept
counts: a command that was killed goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.core.published import PublishedFinding
from shalott.harness.originals.evidence import Look
from shalott.harness.published.evidence import (
    Published,
    keep,
    load_published,
    look_at,
    looks_on,
    tally_on,
)
from shalott.harness.published.upstream import REPORT, report_of
from shalott.harness.report.results import RunResults
from shalott.harness.run.atomic_file import write_atomically

SEED: Final = 35_000
REPEAT: Final = 5


class MakePlan(Protocol):
    def __call__(self, finding: PublishedFinding, release: str, seed: int) -> Plan:
        """The finding's plan on a release. Raises UsageError."""


class RunPlan(Protocol):
    def __call__(self, plan: Plan) -> tuple[RunResults, Path]:
        """The verdict, and where the run's files are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsRequest:
    """``version``: on this release and no other. ``newest``: on the newest one alone."""

    repeat: int = REPEAT
    version: str = ""
    newest: bool = False

    def releases(self, finding: PublishedFinding) -> tuple[str, ...]:
        if self.version:
            return (self.version,)
        wanted = (finding.newest,) if self.newest else (finding.release, finding.newest)
        return tuple(dict.fromkeys(wanted))


def run_findings(
    findings: Sequence[PublishedFinding],
    asked: FindingsRequest,
    make_plan: MakePlan,
    run_plan: RunPlan,
    directory: Path,
    tell: Callable[[PublishedFinding, Look], None],
) -> Published:
    """Raises StoreError, and what a run raises that is no verdict. All plans are made before the
    first run, so that what can't be run is refused at once."""
    work = list(_work(findings, asked, make_plan))
    kept = keep(directory, findings)
    for finding, release in work:
        voids = 0
        while True:
            looks = load_published(directory).looks.get(finding.name, [])
            if tally_on(looks, release).runs >= asked.repeat or voids > asked.repeat:
                break
            look = _run(finding, release, len(looks_on(looks, release)), make_plan, run_plan)
            voids += bool(look.void)
            kept = keep(directory, (finding,), ((finding.name, look),))
            tell(finding, look)
    return kept


def _work(
    findings: Sequence[PublishedFinding], asked: FindingsRequest, make_plan: MakePlan
) -> Iterator[tuple[PublishedFinding, str]]:
    """What is to be run. The newest release may be one that can't be had here: then it stays
    unknown whether it is gone, and the other one is run nevertheless. Raises UsageError."""
    for finding in findings:
        wanted = asked.releases(finding)
        for release in wanted:
            try:
                make_plan(finding, release, SEED)
            except UsageError:
                if len(wanted) == 1 or release == finding.release:
                    raise
                continue
            yield finding, release


def _run(
    finding: PublishedFinding, release: str, number: int, make_plan: MakePlan, run_plan: RunPlan
) -> Look:
    plan = make_plan(finding, release, SEED + number)
    before_s = computed_s()
    results, where = run_plan(plan)
    look = look_at(
        finding,
        release,
        results,
        where,
        load=os.getloadavg()[0],
        harness_cpu_s=computed_s() - before_s,
    )
    if look.found:
        write_atomically(where / REPORT, report_of(finding, plan, results, where).encode())
    return look


def computed_s() -> float:
    """CPU seconds of this process, and of those that it started and has seen the end of."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system
