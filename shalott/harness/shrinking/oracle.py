"""The oracle of a shrinking on real nodes: a plan fails if it fails often enough.

One run proves little there, in either direction. So a candidate is run until the rule
(failure_rate.py) says that it fails in enough of its runs, or that it does not; one that stays
unclear is not kept. The runs of a candidate go side by side where there are several clusters.

The ledger has every run of every candidate, written down as it ends: ``minimal.trials.jsonl``
beside ``minimal.json`` has a first line that says what is made small, then a line a run. Candidates
are tried in one order, so the same command that goes on after a kill finds what was decided before
and runs nothing twice. A torn last line is cut off. A ledger of another plan, or of other code, is
set aside under a name with a number.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from shalott.core.errors import StoreError
from shalott.core.plan import Plan, canonical, dump_plan
from shalott.harness.search.failure_rate import Rule, Trials, trials_of
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.repeats import fails_by
from shalott.harness.search.workers import Answer, Task
from shalott.harness.shrinking.shrink import BudgetSpent

LOOK_S = 0.25


class Pool(Protocol):
    """Of ``workers.WorkerPool`` what is needed here."""

    @property
    def busy(self) -> int: ...

    def hand_out(self, choose: Callable[[int], Task | None]) -> None: ...

    def answers(self, timeout_s: float) -> list[Answer]: ...


@dataclass
class Oracle:
    """The class by which a plan must fail is the ledger's. ``budget``: of runs, those of earlier
    commands among them; ``until_s``: of the monotonic clock. ``tell`` hears of each run."""

    pool: Pool
    ledger: Ledger
    rule: Rule
    budget: int
    until_s: float | None = None
    tell: Callable[[Plan, str, SeedReport, Trials], None] = lambda plan, of, report, trials: None
    _serial: int = field(default=0)

    def fails(self, plan: Plan) -> bool:
        """Whether it fails often enough. Raises BudgetSpent."""
        return self.rule.verdict(self.settle(plan, "candidate")) is True

    def settle(self, plan: Plan, of: str) -> Trials:
        """Run it until the rule is over. Raises BudgetSpent."""
        while not self.rule.is_over(trials := self.ledger.trials(plan, of)):
            self._check_budget()
            wanted = min(self._wanted(trials), self.budget - self.ledger.runs)
            self._run(plan, of, wanted)
        return trials

    def once(self, plan: Plan, of: str) -> SeedReport:
        """One run. Raises BudgetSpent."""
        self._check_budget()
        return self._run(plan, of, 1)[0]

    def _check_budget(self) -> None:
        is_late = self.until_s is not None and time.monotonic() >= self.until_s
        if is_late or self.ledger.runs >= self.budget:
            raise BudgetSpent

    def _wanted(self, trials: Trials) -> int:
        """How many more runs the rule needs at least, if all of them ended alike."""
        counts = []
        for failed in (True, False):
            at_best, count = trials, 0
            while not self.rule.is_over(at_best):
                at_best, count = at_best.and_one(failed), count + 1
            counts.append(count)
        return min(counts)

    def _run(self, plan: Plan, of: str, count: int) -> list[SeedReport]:
        """So many at once, or as many as there are workers."""
        left = [count]

        def choose(worker: int) -> Task | None:
            if not left[0]:
                return None
            left[0] -= 1
            self._serial += 1
            return Task(self._serial, again=True, plan=plan)

        self.pool.hand_out(choose)
        found: list[SeedReport] = []
        while self.pool.busy:
            for answer in self.pool.answers(LOOK_S):
                found.append(answer.report)
                self._record(plan, of, answer.report)
        return found

    def _record(self, plan: Plan, of: str, report: SeedReport) -> None:
        anomaly = self.ledger.anomaly
        failed = fails_by(report, anomaly) if anomaly else None
        why = "" if failed is not None else _why_void(report)
        self.ledger.add(plan, of, failed, why=why, seconds=report.wall_s)
        self.tell(plan, of, report, self.ledger.trials(plan, of))


def _why_void(report: SeedReport) -> str:
    if report.error is not None:
        return report.error
    if report.real is not None and report.real.starved:
        return report.real.starved
    return report.reasons[0] if report.reasons else "it is unknown"


# -- the ledger ------------------------------------------------------------------------------------


class LedgerHeader(msgspec.Struct, frozen=True, kw_only=True, tag="shrink", tag_field="line"):
    """What is made small, by which class of anomaly. ``plan``: a digest of the plan."""

    version: int = 1
    plan: str
    anomaly: str
    code: str


class Tried(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="line"):
    """A run. ``failed``: None if it proved nothing, ``why`` then says why. ``of``: base, candidate,
    or minimal: at the end, anew."""

    plan: str
    of: str
    failed: bool | None
    why: str = ""
    seconds: float = 0.0


class Chosen(msgspec.Struct, frozen=True, kw_only=True, tag="anomaly", tag_field="line"):
    """The class to keep, where the first failure said it."""

    anomaly: str


Line = LedgerHeader | Tried | Chosen


@dataclass
class Ledger:
    """An open ledger. ``went_on``: runs that were there when it was opened. ``anomaly``: the class
    that is kept, "" as long as none is known."""

    path: Path
    anomaly: str = ""
    went_on: int = 0
    _outcomes: dict[tuple[str, str], list[bool | None]] = field(default_factory=dict)
    _runs: int = 0

    @property
    def runs(self) -> int:
        """All that were ever made."""
        return self._runs

    def trials(self, plan: Plan, of: str) -> Trials:
        return trials_of(self._outcomes.get((digest_of(plan), of), ()))

    def add(self, plan: Plan, of: str, failed: bool | None, *, why: str, seconds: float) -> None:
        line = Tried(plan=digest_of(plan), of=of, failed=failed, why=why, seconds=round(seconds, 3))
        self._append(line)

    def choose(self, anomaly: str) -> None:
        self._append(Chosen(anomaly=anomaly))

    def _append(self, line: Line) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self.take(line)

    def take(self, line: Line) -> None:
        """Of the file."""
        if isinstance(line, Chosen):
            self.anomaly = line.anomaly
        if not isinstance(line, Tried):
            return
        self._outcomes.setdefault((line.plan, line.of), []).append(line.failed)
        self._runs += 1


def digest_of(plan: Plan) -> str:
    """Tells candidates apart, not by their names."""
    return hashlib.blake2b(dump_plan(canonical(plan)), digest_size=12).hexdigest()


def open_ledger(path: Path, header: LedgerHeader) -> Ledger:
    """Go on with the ledger, or begin it. Raises StoreError."""
    ledger = Ledger(path, anomaly=header.anomaly)
    try:
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = _decoded(whole)
        if lines is None or lines[:1] != [header]:
            _set_aside(path)
            path.write_bytes(msgspec.json.encode(header) + b"\n")
            return ledger
        if len(whole) < len(data):
            os.truncate(path, len(whole))
    except OSError as error:
        raise StoreError(f"cannot keep {path}: {error.strerror}") from error
    for line in lines[1:]:
        ledger.take(line)
    ledger.went_on = ledger.runs
    return ledger


def _decoded(data: bytes) -> list[Line] | None:
    decoder = msgspec.json.Decoder(Line)
    try:
        return [decoder.decode(line) for line in data.splitlines()]
    except msgspec.MsgspecError:
        return None


def _set_aside(path: Path) -> None:
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(aside)
