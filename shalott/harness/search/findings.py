"""Findings: what a simulated run violated, which findings are new, and how one is kept.

A violation is a checker that said no and the class of anomaly because of which it did; what a
checker merely remarked on beside that is none. Findings are told apart by their classes: of each
class the first few plans are kept, each in a directory of its own that ``shalott analyze``,
``replay`` and ``shrink`` read like any stored run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shalott.checkers.runs.compose import Verdict
from shalott.core.errors import StoreError
from shalott.core.history import History
from shalott.core.plan import Plan
from shalott.harness.report.meta import ReportMeta
from shalott.harness.report.results import classes, violations
from shalott.harness.run.simulate import record_of
from shalott.harness.run.simulation_record import SimulationRecord, save_record
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.run.verdict import save_verdict

if TYPE_CHECKING:
    from shalott.harness.run.simulate import SimOutcome

REASONS_MAX = 3


class RealFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known besides of a run on real nodes.

    ``warm``: it ran on machines that were there. ``phases_ms``: how long each phase took, of which
    ``boot`` lasts until the nodes are ready and the workload is set up; ``start_ms``: until their
    programs ran. ``tries``: how often it
    was begun, since the harness failed before. ``starved``: why it proves nothing although it has a
    verdict: the harness did not run when it should have. ``load``: of the machine when it ended,
    processes a CPU.
    """

    warm: bool
    phases_ms: Mapping[str, int] = {}
    start_ms: int
    tries: int = 1
    starved: str = ""
    load: float = 0.0


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
    real: RealFacts | None = None
    features: str = ""  # what it showed, if that is learned from (corpus.py)


@dataclass(frozen=True, slots=True)
class SimulatedEvidence:
    """What is kept of a simulated finding. See ``door.Evidence``."""

    plan: Plan  # with the targets that its faults had
    record: SimulationRecord
    verdict: Verdict
    history: History
    virtual_started_ns: int | None = None  # what the simulation's clock showed at the start

    def keep(self, place: RunDirectory, command: str) -> None:
        save_evidence(self, place, command)

    def drop(self) -> None:
        return


def report_of(seed: int, outcome: SimOutcome) -> SeedReport:
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


def evidence_of(plan: Plan, outcome: SimOutcome, *, code: str) -> SimulatedEvidence:
    found = classes(violations(outcome.results))
    return SimulatedEvidence(
        plan=outcome.plan,
        record=record_of(plan, outcome, found, code=code),
        verdict=Verdict(valid=outcome.valid, results=outcome.results),
        history=outcome.history,
        virtual_started_ns=outcome.start_wall_ns,
    )


def save_evidence(evidence: SimulatedEvidence, directory: RunDirectory, command: str) -> None:
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
        started_wall_ns=time.time_ns(),
        virtual_started_ns=evidence.virtual_started_ns,
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
