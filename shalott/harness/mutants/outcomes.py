"""What became of mutants: found by which checker, after how many seeds and how much CPU, or not.

Kept as a line a mutant in the store. A measurement holds for one state of the code, one range of
seeds and at least one budget, so the same command measures what it lacks, and nothing twice.

The score is the share of mutants that a search finds within so much CPU time. Equivalent ones,
which can't be noticed, count for nothing, nor do those whose runs all failed in the harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shalott.core.errors import StoreError
from shalott.harness.mutants.mutant import Mutant
from shalott.harness.search.place import beneath, open_place
from shalott.harness.store.intervals import wilson

PLACE = "_mutants"  # in a store: runs of mutants are none of the system's
RESULTS = "results.jsonl"
CONTROL = "control"  # in place of a mutant's name: the code as it is


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant, measured; or a system's control.

    ``classes``, ``checkers`` and ``faults``: of the run that found it. ``ran``: seeds in all.
    ``entered``: runs that came to the changed code. ``failed``: runs in which the harness raised,
    which find nothing; ``failure``: the first of these. ``void``: seeds that fail without the
    mutant too.
    """

    name: str
    system: str
    operator: str
    breaks: str
    equivalent: str = ""
    fingerprint: str = ""
    code: str
    seeds: str
    budget_s: float
    learns: bool = False
    workloads: tuple[str, ...]
    seed: int | None = None
    workload: str = ""
    classes: tuple[str, ...] = ()
    checkers: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    ran: int = 0
    cpu_s: float = 0.0
    entered: int = 0
    failed: int = 0
    failure: str = ""
    void: tuple[int, ...] = ()

    @property
    def is_found(self) -> bool:
        return self.seed is not None

    @property
    def counts(self) -> bool:
        """Whether it says something about the search."""
        return self.operator != CONTROL and not self.equivalent and self.failed < max(1, self.ran)

    def holds_for(
        self, mutant: Mutant | None, code: str, seeds: str, budget_s: float, *, learns: bool = False
    ) -> bool:
        """Whether there is nothing to measure."""
        same = (self.code, self.seeds, self.learns) == (code, seeds, learns)
        is_same_text = mutant is None or self.fingerprint == mutant.fingerprint()
        return same and is_same_text and (self.is_found or self.budget_s >= budget_s)


class Outcomes:
    """Those of a store, by name: the newest of each."""

    def __init__(self, store: str | Path) -> None:
        """Raises StoreError, UsageError."""
        self._place = open_place(beneath(store, PLACE))
        self.by_name: dict[str, Outcome] = {each.name: each for each in self._read()}

    def add(self, outcome: Outcome) -> None:
        """Raises StoreError."""
        self._place.append(RESULTS, msgspec.json.encode(outcome) + b"\n")
        self.by_name[outcome.name] = outcome

    def _read(self) -> list[Outcome]:
        lines = self._place.lines(RESULTS).splitlines()
        try:
            return [msgspec.json.decode(line, type=Outcome) for line in lines]
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._place}/{RESULTS} can't be read: {error}") from error


# -- scores ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """``found`` of ``of`` mutants, within ``cpu_s`` each. ``low`` and ``high``: by Wilson, 95 %."""

    cpu_s: float
    found: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.found, self.of)

    def __str__(self) -> str:
        if not self.of:
            return "none measured"
        low, high = self.interval
        return f"{self.found} of {self.of}: {self.found / self.of:.0%} ({low:.0%} to {high:.0%})"


CURVE_S = (1, 2, 5, 10, 30, 60, 120, 300, 600)


def score(outcomes: Iterable[Outcome], cpu_s: float) -> Score:
    """Of those that were searched for so long, or found before."""
    known = [each for each in outcomes if each.counts and (each.is_found or each.budget_s >= cpu_s)]
    found = [each for each in known if each.is_found and each.cpu_s <= cpu_s]
    return Score(cpu_s, len(found), len(known))


def curve(outcomes: Sequence[Outcome]) -> list[Score]:
    """As far as every mutant that was not found was searched for."""
    budgets = [each.budget_s for each in outcomes if each.counts and not each.is_found]
    budgets = budgets or [each.budget_s for each in outcomes if each.counts]
    most_s = min(budgets, default=0.0)
    return [score(outcomes, cpu_s) for cpu_s in CURVE_S if cpu_s <= most_s]


def survivors(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.counts and not each.is_found]


def sentence(outcome: Outcome) -> str:
    """A survivor, as something to act on."""
    runs = f"{outcome.ran} runs ({outcome.cpu_s:.0f} CPU s)"
    if not outcome.entered:
        return f"{outcome.breaks}: no run of {runs} came to that code; a workload is missing."
    return (
        f"{outcome.breaks}: {outcome.entered} of {runs} came to that code, and none was found"
        " wrong; a fault at that moment, or a checker, is missing."
    )


def by_system(outcomes: Mapping[str, Outcome]) -> dict[str, list[Outcome]]:
    grouped: dict[str, list[Outcome]] = {}
    for each in outcomes.values():
        grouped.setdefault(each.system, []).append(each)
    return dict(sorted(grouped.items()))
