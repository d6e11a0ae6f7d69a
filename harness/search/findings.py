"""Findings: what a simulated run violated, which findings are new, and how one is kept.

A violation is a checker that said no and the class of anomaly because of which it did; what a
checker merely remarked on beside that is none. Findings are told apart by their classes: of each
class the first few plans are kept, each in a directory of its own that ``shalott analyze``,
``replay`` and ``shrink`` read like any stored run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shalott.checkers.base import Result
from shalott.checkers.runs.compose import Verdict
from shalott.harness.core.errors import StoreError
from shalott.harness.core.history import History
from shalott.harness.core.plan import Plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.run.sim_record import SimulationRecord, record_of, save_record
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.run.verdict import save_verdict

if TYPE_CHECKING:
    from shalott.harness.run.simulate import SimOutcome

# What a checker reports and may have said no without.
REMARKS = ("dual-master-claimed", "epoch-regression")
# The gravest first: what a finding with several classes is called after.
GRAVEST = ("lost", "corrupted", "unexpected", "dual-master-effective", "diverged", "crashed")
REASONS_MAX = 3


class Violation(NamedTuple):
    """What the same checker must find again for a plan to fail in the same way."""

    checker: str
    kind: str


class SeedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign remembers of one run. ``error``: what kept it from its end."""

    seed: int
    valid: bool | str
    violations: tuple[str, ...] = ()  # classes, the gravest first
    digest: str = ""
    callbacks: int = 0
    segments: int = 0
    virtual_ns: int = 0
    wall_s: float = 0.0
    sometimes: Mapping[str, int] = {}
    buggified: Mapping[str, int] = {}
    reasons: tuple[str, ...] = ()  # why the verdict is unknown
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of a finding."""

    plan: Plan  # with the targets that its faults had
    record: SimulationRecord
    verdict: Verdict
    history: History


def violations(results: Sequence[Result]) -> tuple[Violation, ...]:
    """Every reason for which a checker said no, the gravest first, then by name."""
    found: dict[Violation, None] = {}
    for result in results:
        if result.valid is not False:
            continue
        broken = result.detail.get("broken") or [anomaly.kind for anomaly in result.anomalies]
        kinds = [kind for kind in broken if kind not in REMARKS] or broken or ["invalid"]
        found |= {Violation(result.checker, str(kind)): None for kind in kinds}
    return tuple(sorted(found, key=lambda one: (_gravity(one.kind), one)))


def _gravity(kind: str) -> int:
    return GRAVEST.index(kind) if kind in GRAVEST else len(GRAVEST)


def classes(found: Sequence[Violation]) -> tuple[str, ...]:
    """The distinct kinds, in the order of ``found``."""
    return tuple(dict.fromkeys(violation.kind for violation in found))


def report_of(seed: int, outcome: SimOutcome) -> SeedReport:
    """What to remember of a run."""
    doubts = [
        note
        for result in outcome.results
        if result.valid == "unknown"
        for note in (result.notes or (f"{result.checker} is unknown.",))
    ]
    return SeedReport(
        seed=seed,
        valid=outcome.valid,
        violations=classes(violations(outcome.results)),
        digest=outcome.digest,
        callbacks=outcome.callbacks,
        segments=outcome.segments,
        virtual_ns=outcome.virtual_ns,
        wall_s=round(outcome.wall_s, 4),
        sometimes=dict(outcome.sometimes),
        buggified=dict(outcome.buggified),
        reasons=tuple(doubts[:REASONS_MAX]),
        error=outcome.error,
    )


def evidence_of(plan: Plan, outcome: SimOutcome, *, code: str) -> Evidence:
    """What to keep of a run of ``plan``."""
    found = classes(violations(outcome.results))
    return Evidence(
        plan=outcome.plan,
        record=record_of(plan, outcome, found, code=code),
        verdict=Verdict(valid=outcome.valid, results=outcome.results),
        history=outcome.history,
    )


def save_evidence(evidence: Evidence, directory: RunDirectory, command: str) -> None:
    """Write a run from memory as if it had been stored from the beginning. Raises StoreError."""
    plan, record, history = evidence.plan, evidence.record, evidence.history
    try:
        directory.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {directory.path}: {error.strerror}") from error
    directory.save_plan(plan)
    directory.save_history(history)
    save_record(directory.path / PLAN, record)
    meta = ReportMeta(
        command=command,
        started_wall_ns=0,
        elapsed_ns=record.virtual_ns,
        versions={"python": record.python, "code": record.code},
        notes=(f"Simulated; its digest is {record.digest}. Times are virtual.",),
        directory=str(directory.path),
    )
    save_verdict(plan, history, evidence.verdict, meta, directory)


class Shelf:
    """Which findings are worth keeping: the first few of every class."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._kept: dict[str, int] = {}

    def wants(self, report: SeedReport) -> bool:
        return any(self._kept.get(kind, 0) < self._keep for kind in report.violations)

    def put(self, report: SeedReport) -> None:
        for kind in report.violations:
            self._kept[kind] = self._kept.get(kind, 0) + 1
