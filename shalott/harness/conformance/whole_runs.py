"""Whole runs of a plug-in: an honest one, two whose clients lie, and one under faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shalott.core.op import NEMESIS
from shalott.core.plan import Plan
from shalott.harness.conformance.lies import Lie, lying
from shalott.harness.conformance.points import Failed, NotTried, Score
from shalott.harness.report.verdict_words import headline
from shalott.harness.run.run import Outcome, RunContext, run
from shalott.harness.run.store import Store
from shalott.harness.run.world import build_world
from shalott.workloads.record import WorkloadRecord

SHOWN = 5
LIES: tuple[tuple[str, Lie], ...] = (
    ("a loss is found", "acknowledges without sending"),
    ("a refused write is found", "refuses what it sent"),
)


@dataclass(frozen=True, slots=True)
class WholeRuns:
    """``writes``: the fs of operations that have a value and change something."""

    record: WorkloadRecord
    writes: Sequence[str]
    store: Store
    score: Score
    command: str

    def perform(self, honest: Plan, broken: Plan) -> None:
        """``honest``: without faults; ``broken``: the same with some."""
        with self.score.trying("valid without faults") as told:
            outcome = self._run(honest, "honest")
            said = headline(outcome.results)
            if outcome.valid is not True:
                raise Failed(f"{said} See {outcome.directory.path}")
            told.append(said)
        if self.score.has("valid without faults") and "outcome" in locals():
            with self.score.trying("drains see all") as told:
                told.append(drained(written_in(outcome, self.writes)))
        for name, lie in LIES:
            with self.score.trying(name) as told:
                told.append(self._lie(honest, lie))
        with self.score.trying("survives faults") as told:
            outcome = self._run(broken, "faults")
            told.append(headline(outcome.results))
            with self.score.trying("refused writes stay away") as found:
                found.append(stayed_away(written_in(outcome, self.writes)))

    def _lie(self, honest: Plan, lie: Lie) -> str:
        if not self.writes:
            raise NotTried("no operation of the load has a value")
        if not self.score.passed("valid without faults"):
            raise NotTried("an honest run is not valid either")
        with lying(self.record, lie) as name:
            workload = msgspec.structs.replace(honest.workload, name=name)
            plan = msgspec.structs.replace(honest, workload=workload)
            outcome = self._run(plan, lie.split()[0])
        if outcome.valid is not False:
            raise Failed(f"{headline(outcome.results)} See {outcome.directory.path}")
        return headline(outcome.results)

    def _run(self, plan: Plan, what: str) -> Outcome:
        """Raises Failed if it did not come to its end."""
        plan = msgspec.structs.replace(plan, name=f"try-{plan.system.name}-{what}")
        directory = self.store.name_run(plan.name)
        world = build_world(plan, directory)
        self.store.begin(directory)
        outcome = asyncio.run(run(plan, directory, world, RunContext(command=self.command)))
        if outcome.failures:
            raise Failed(f"{outcome.failures[0]} See {directory.path}")
        return outcome


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the values that clients wrote. ``are_unique``: each was written once, so that
    a value that comes back tells of which write. ``reads``: how other operations ended."""

    acknowledged: frozenset[int]
    refused: frozenset[int]
    returned: frozenset[int]
    reads: frozenset[str]
    are_unique: bool


def written_in(outcome: Outcome, writes: Sequence[str]) -> Written:
    rows = outcome.directory.load_history().ops.select(["process", "f", "type", "value"])
    clients = [row for row in rows.to_pylist() if row["process"] != NEMESIS]
    wrote = [row for row in clients if row["f"] in writes]
    others = [row for row in clients if row["f"] not in writes]

    def values(found: Sequence[dict[str, object]], kind: str) -> frozenset[int]:
        return frozenset(
            value for row in found
            if row["type"] == kind and isinstance(value := row["value"], int)
        )  # fmt: skip

    every = [row["value"] for row in wrote]
    return Written(
        acknowledged=values(wrote, "ok"),
        refused=values(wrote, "fail"),
        returned=values(others, "ok"),
        reads=frozenset(str(row["type"]) for row in others),
        are_unique=bool(every) and len({*every}) == len(every),
    )


def drained(written: Written) -> str:
    """Raises Failed, NotTried."""
    _check_unique(written)
    if not written.reads:
        raise NotTried("no operation returns anything")
    if "ok" in written.reads and not written.returned:
        raise NotTried("what is read is told otherwise than as the value of an operation")
    missing = sorted(written.acknowledged - written.returned)
    if missing:
        raise Failed(
            f"{len(missing):,} of {len(written.acknowledged):,} acknowledged values never came"
            f" back: {_listed(missing)}"
        )
    return f"{len(written.acknowledged):,} acknowledged values came back"


def stayed_away(written: Written) -> str:
    """Raises Failed, NotTried."""
    _check_unique(written)
    back = sorted(written.refused & written.returned)
    if back:
        raise Failed(f"{len(back):,} refused values came back: {_listed(back)}")
    return f"none of {len(written.refused):,} refused values came back"


def _check_unique(written: Written) -> None:
    if not written.are_unique:
        raise NotTried("values are written more than once: the checkers judge what became of them")


def _listed(values: Sequence[int]) -> str:
    more = ", ..." if len(values) > SHOWN else ""
    return ", ".join(str(value) for value in values[:SHOWN]) + more
