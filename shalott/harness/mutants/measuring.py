"""Measuring a mutant: the plain search is run on it until it finds something or its time is over.

It is the search of `shalott search` (harness/search) over every workload of the system in turn, in
processes in which the mutant is in force, and a campaign of its own: the same command goes on where
it was stopped. A finding counts if the same plan is sound without the mutant, which the control's
campaign remembers.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import Plan, load_plan
from shalott.harness.mutants.mutant import Mutant
from shalott.harness.mutants.outcomes import CONTROL, PLACE, Outcome
from shalott.harness.report.results import read_results
from shalott.harness.run.simulation_record import code_fingerprint, load_record, plan_as_run
from shalott.harness.run.store import PLAN, RESULTS
from shalott.harness.scenarios.swarm import Subject, draw_plan, plain_subject
from shalott.harness.search.campaign import Campaign, Header, finding
from shalott.harness.search.corpus import Guide
from shalott.harness.search.door import CHANGE_ENTERED, Plans, Simulate, SimulatedRuns
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Place, beneath
from shalott.harness.search.run_search import MakePool, Tally, run_search
from shalott.harness.search.search import Search, SearchRequest, parse_seeds
from shalott.harness.search.summary import Summary
from shalott.workloads.record import WORKLOADS

RUN_LIMIT_S = 240.0  # of real time: a mutant may have a broker turn in a circle


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How mutants are measured. ``profile``: what is promised, and so what may be done to it.
    ``learns``: plans are mutated too (search/corpus.py). ``make_pool``: where workers are."""

    store: str | Path
    simulate: Simulate
    budget_s: float
    seeds: str
    jobs: int = 1
    profile: str = "safe"
    learns: bool = False
    make_pool: MakePool | None = None

    def workloads(self, system: str) -> tuple[str, ...]:
        speaks = SYSTEMS.find(system).speaks
        return tuple(sorted(each.name for each in WORKLOADS.records() if each.fits(speaks)))


@dataclass(frozen=True, slots=True)
class PlansInTurn:
    """Of several subjects, by the seed's number."""

    subjects: tuple[Subject, ...]

    def subject(self, number: int) -> Subject:
        return self.subjects[number % len(self.subjects)]

    def plan(self, number: int) -> Plan:
        return draw_plan(self.subject(number), number)


@dataclass(frozen=True, slots=True)
class ThisPlan:
    """The same for every number."""

    only: Plan

    def plan(self, number: int) -> Plan:
        return self.only


class NoRepeats:
    """That runs are deterministic is proved by the searches of the code as it is."""

    is_empty = True

    def add(self, report: SeedReport, worker: int | None, *, is_kept: bool) -> None:
        return

    def take(self, worker: int) -> int | None:
        return None

    def record(self, report: SeedReport) -> None:
        return

    def only(self, seed: int) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantSearch(Search):
    """A search of several subjects in turn, perhaps of changed code."""

    in_turn: PlansInTurn
    fingerprint: str = ""
    learns: bool = False
    only: Plan | None = None  # in place of all that would be drawn

    @property
    def plans(self) -> Plans:
        return self.in_turn if self.only is None else ThisPlan(self.only)

    def guide(self) -> Guide | None:
        return Guide(self.plans, self.seeds) if self.learns else None

    def repeats(self, campaign: Campaign) -> NoRepeats:
        return NoRepeats()

    @property
    def header(self) -> Header:
        drawn_from = repr((self.in_turn, self.fingerprint, self.learns, self.only))
        digest = hashlib.blake2b(drawn_from.encode(), digest_size=8).hexdigest()
        return Header(subject=digest, code=code_fingerprint())

    @property
    def wanted_events(self) -> tuple[str, ...]:
        return ()


class Quiet:
    """A watch that says nothing: a mutant is a line, however many runs it takes."""

    def show(self, tally: Tally) -> None:
        return

    def say(self, line: str) -> None:
        return


def measure(asked: Measurement, mutant: Mutant) -> Outcome | None:
    """None: it was interrupted."""
    void: tuple[int, ...] = ()
    while True:
        seeds = [seed for seed in parse_seeds(asked.seeds) if seed not in void]
        search = _search(asked, mutant.system, mutant, seeds)
        summary, place = _run(asked, search)
        if summary.interrupted:
            return None
        outcome = _with(_outcome(asked, mutant.system, mutant), summary, void)
        seed = summary.found_seed
        if seed is None:
            return outcome
        sound = _is_sound(asked, mutant, seed, place)
        if sound is None:
            return None
        if sound:
            return _found(outcome, seed, place)
        void = (*void, seed)


def measure_control(asked: Measurement, system: str) -> Outcome | None:
    """The code as it is, with one mutant's budget: all that it finds is void."""
    search = _search(asked, system, None, parse_seeds(asked.seeds))
    summary, _ = _run(asked, search)
    if summary.interrupted:
        return None
    found = {seed: None for each in summary.classes.values() for seed in each.seeds}
    outcome = _with(_outcome(asked, system, None), summary, tuple(sorted(found)))
    return msgspec.structs.replace(outcome, classes=tuple(sorted(summary.classes)))


def _is_sound(asked: Measurement, mutant: Mutant, seed: int, place: Place) -> bool | None:
    """Whether the code as it is passes the same plan; None: interrupted."""
    control = _search(asked, mutant.system, None, (seed,))
    if asked.learns:  # the number says nothing of the plan
        with place.fetched(finding(seed)) as kept:
            stored, record = load_plan(kept / PLAN), load_record(kept / PLAN)
        plan = stored if record is None else plan_as_run(stored, record)
        named = dataclasses.replace(control.subject, name=f"{mutant.name}/as-it-is-{seed}")
        control = dataclasses.replace(control, subject=named, learns=False, only=plan)
    summary, _ = _run(asked, control)
    return None if summary.interrupted else summary.valid == 1


def _search(
    asked: Measurement, system: str, mutant: Mutant | None, seeds: Sequence[int]
) -> MutantSearch:
    subjects = tuple(plain_subject(system, asked.profile, name) for name in asked.workloads(system))
    name = f"{system}/{CONTROL}" if mutant is None else mutant.name
    return MutantSearch(
        subject=dataclasses.replace(subjects[0], name=name),
        in_turn=PlansInTurn(subjects),
        seeds=seeds,
        seeds_text=asked.seeds,
        ends=mutant is not None,
        cpu_limit_s=asked.budget_s,
        changes=() if mutant is None else (mutant.changed(),),
        fingerprint="" if mutant is None else mutant.fingerprint(),
        learns=asked.learns,
    )


def _run(asked: Measurement, search: MutantSearch) -> tuple[Summary, Place]:
    request = SearchRequest(jobs=asked.jobs, keep=asked.jobs, store=beneath(asked.store, PLACE))
    runs = SimulatedRuns(asked.simulate, limit_s=RUN_LIMIT_S)
    command = f"shalott mutants --measure --only {search.subject.name}"
    return run_search(search, request, runs, Quiet(), command=command, make_pool=asked.make_pool)


def _outcome(asked: Measurement, system: str, mutant: Mutant | None) -> Outcome:
    return Outcome(
        name=f"{system}/{CONTROL}" if mutant is None else mutant.name,
        system=system,
        operator=CONTROL if mutant is None else mutant.operator,
        breaks="" if mutant is None else mutant.breaks,
        equivalent="" if mutant is None else mutant.equivalent,
        fingerprint="" if mutant is None else mutant.fingerprint(),
        code=code_fingerprint(),
        seeds=asked.seeds,
        budget_s=asked.budget_s,
        learns=asked.learns,
        workloads=asked.workloads(system),
    )


def _with(outcome: Outcome, summary: Summary, void: tuple[int, ...]) -> Outcome:
    entered = summary.sometimes.get(CHANGE_ENTERED)
    return msgspec.structs.replace(
        outcome,
        ran=summary.ran,
        cpu_s=round(summary.cpu_s, 2),
        entered=0 if entered is None else entered.runs,
        failed=len(summary.errors),
        failure=next(iter(summary.errors.values()), "") or "",
        void=void,
    )


def _found(outcome: Outcome, seed: int, place: Place) -> Outcome:
    """With what its evidence says."""
    with place.fetched(finding(seed)) as kept:
        plan, results = load_plan(kept / PLAN), read_results(kept / RESULTS).results
    wrong = [each for each in results if each.valid is False]
    kinds = [anomaly.kind for each in wrong for anomaly in each.anomalies]
    return msgspec.structs.replace(
        outcome,
        seed=seed,
        workload=plan.workload.name,
        classes=tuple(dict.fromkeys(kinds)),
        checkers=tuple(each.checker for each in wrong),
        faults=tuple(sorted(dict.fromkeys(each.kind for each in plan.faults))),
    )
