"""Shrinking: a failing plan becomes a minimal one that still fails in the same way. Pure.

The oracle is a ``probe``: it runs a plan and says whether the same checker still finds an anomaly
of the same class. Nothing else has to stay alike. Every candidate is smaller in one fixed order
(``measure``): fewer faults, then weaker ones, then fewer nodes and operations, then shorter, then
calmer, then rounder; so shrinking always ends, and a smaller plan is preferred as Hypothesis
prefers the shortlex-smaller one (MacIver and Donaldson, "Test-case reduction via test-case
generation", ECOOP 2020). The passes go from what saves most to what only tidies: cut the load
after the violation, ddmin the fault actions (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", IEEE TSE 2002), fewer operations, fewer nodes, weaker kinds, shorter and
rounder times, quiet buggify sites, a calm network. They are repeated until none of them gains
anything or the budget is spent; the best plan so far is always kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from shalott.core.plan import FaultAction, Plan, canonical
from shalott.harness.run.plan_checks import requirements_of
from shalott.harness.shrinking.candidates import (
    calmer,
    cut_at,
    fewer_nodes,
    fewer_operations,
    measure,
    quieter_sites,
    shorter,
    weaker,
    with_faults,
)

Probe = Callable[[Plan], bool]
Item = TypeVar("Item")

CUT_STEP_MS = 1000  # the end of the load is sought to within this, in virtual time


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest plan found, and what it cost. ``whole``: every pass came to its end."""

    plan: Plan
    probes: int
    whole: bool


def shrink(
    plan: Plan,
    probe: Probe,
    *,
    budget: int,
    sites: Sequence[str] = (),
    tell: Callable[[str, Plan, int], None] | None = None,
    cut_step_ms: int = CUT_STEP_MS,
) -> Shrunk:
    """Make ``plan``, which fails, as small as ``budget`` probes allow.

    ``probe`` may raise BudgetSpent itself. ``sites`` are the buggify sites that fired in it.
    ``tell`` hears of every pass that gained something: its name, the plan, the probes so far.
    ``cut_step_ms``: the end of the load is sought to within this.
    """
    search = _Search(plan, probe, budget)
    passes: tuple[tuple[str, Callable[[_Search], None]], ...] = (
        ("cut after the violation", lambda search: _cut(search, cut_step_ms)),
        ("fewer faults", _fewer_faults),
        ("fewer operations", lambda search: _greedy(search, fewer_operations)),
        ("fewer nodes", lambda search: _greedy(search, fewer_nodes)),
        ("weaker faults", lambda search: _greedy(search, weaker)),
        ("shorter and rounder", lambda search: _greedy(search, shorter)),
        ("fewer buggify sites", lambda search: _fewer_sites(search, sites)),
        ("a calmer world", lambda search: _greedy(search, calmer)),
    )
    whole = False
    try:
        while not whole:
            before = search.best
            for name, run_pass in passes:
                at_start = search.best
                run_pass(search)
                if search.best is not at_start and tell is not None:
                    tell(name, search.best, search.probes)
            whole = search.best is before
    except BudgetSpent:
        pass
    return Shrunk(plan=search.best, probes=search.probes, whole=whole)


class BudgetSpent(Exception):
    """Raised instead of one probe too many."""


@dataclass
class _Search:
    """The best plan so far; remembers every candidate, so none is run twice."""

    best: Plan
    probe: Probe
    budget: int
    probes: int = 0
    _known: dict[bytes, bool] = field(default_factory=dict)

    def fails(self, candidate: Plan) -> bool:
        key = msgspec.json.encode(candidate)
        if key not in self._known:
            if self.probes >= self.budget:
                raise BudgetSpent
            self.probes += 1
            self._known[key] = self.probe(candidate)
        return self._known[key]

    def accept(self, candidate: Plan) -> bool:
        """Take the candidate if it is smaller and still fails."""
        needed = requirements_of(candidate)  # of a kind of fault that is gone: no more
        candidate = canonical(msgspec.structs.replace(candidate, requires=needed))
        if measure(candidate) < measure(self.best) and self.fails(candidate):
            self.best = candidate
            return True
        return False


def _greedy(search: _Search, candidates: Callable[[Plan], Iterator[Plan]]) -> None:
    """The first candidate that fails is the next to be improved, until none does.

    After a success the pass goes on behind it instead of starting over: what was just refused is
    most likely refused again, and the passes are repeated anyway.
    """
    position = 0
    while True:
        accepted = False
        for number, candidate in enumerate(candidates(search.best)):
            if number >= position and search.accept(candidate):
                position, accepted = number, True
                break
        if not accepted:
            return


def _cut(search: _Search, step_ms: int) -> None:
    """Seek the earliest end of the load after which the plan still fails, by halving."""
    low_ms, high_ms = 0, search.best.time_limit_ms
    while high_ms - low_ms > step_ms:
        middle_ms = _round_up((low_ms + high_ms) // 2, step_ms)
        if middle_ms >= high_ms:
            return
        if search.accept(cut_at(search.best, middle_ms)):
            high_ms = middle_ms
        else:
            low_ms = middle_ms


def _round_up(value_ms: int, step_ms: int) -> int:
    return -(-value_ms // step_ms) * step_ms


def _fewer_faults(search: _Search) -> None:
    plan = search.best

    def still_fails(faults: Sequence[FaultAction]) -> bool:
        return search.accept(with_faults(plan, faults))

    ddmin(plan.faults, still_fails)


def _fewer_sites(search: _Search, sites: Sequence[str]) -> None:
    """No buggify at all, or as few sites as will do."""
    if search.best.sim is None or not (search.best.sim.buggify or search.best.sim.buggify_on):
        return
    if search.accept(quieter_sites(search.best, ())):
        return
    plan = search.best
    off = plan.sim.buggify_off if plan.sim is not None else ()
    loud = [site for site in sites if site not in off]

    def still_fails(kept: Sequence[str]) -> bool:
        silenced = tuple(site for site in sites if site not in kept)
        return search.accept(quieter_sites(plan, silenced))

    ddmin(loud, still_fails)


def ddmin(items: Sequence[Item], still_fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset from which no single item can be taken away: none first, then ever finer parts.

    ``still_fails`` is asked about proper subsets only, never about ``items`` itself.
    """
    current = list(items)
    if current and still_fails(()):
        return []
    parts = 2
    while len(current) >= 2:
        chunks = _split(current, parts)
        rests = [[item for part in chunks if part is not gone for item in part] for gone in chunks]
        if (chunk := _first(chunks, still_fails)) is not None:
            current, parts = chunk, 2
        elif len(chunks) > 2 and (rest := _first(rests, still_fails)) is not None:
            current, parts = rest, len(chunks) - 1
        elif len(chunks) < len(current):
            parts = min(len(current), 2 * len(chunks))
        else:
            break
    return current


def _first(
    subsets: Sequence[list[Item]], still_fails: Callable[[Sequence[Item]], bool]
) -> list[Item] | None:
    return next((subset for subset in subsets if still_fails(subset)), None)


def _split(items: Sequence[Item], parts: int) -> list[list[Item]]:
    """``parts`` nearly equal runs of neighbours, none of them empty."""
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [
        list(items[low:high]) for low, high in zip(bounds, bounds[1:], strict=False) if low < high
    ]
