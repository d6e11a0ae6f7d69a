"""Planning a search on real nodes: what is drawn, or which plans are carried over, and how.

A real run takes its time, so a search has a budget of it, clusters stay warm between plans, and as
many run side by side as the machine holds. What can't be made there is left out and told. A finding
is run again until it is clear how often it fails.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.capabilities import MOST
from shalott.cluster.systems.record import SYSTEMS, TOGETHER, SystemRecord
from shalott.core.errors import UsageError
from shalott.core.parameters import flags_of, is_url, parse_parameters, to_plan
from shalott.core.plan import GatePlan, load_plan
from shalott.core.rng import Range
from shalott.harness.run import backends
from shalott.harness.run.request import parse_nemeses, parse_policy
from shalott.harness.scenarios.swarm import (
    USUAL,
    Subject,
    Swarm,
    draw_plan,
    fault_kinds,
    search_of,
    usual_profile,
    wanted_events,
)
from shalott.harness.search.campaign import AT_WORK, SEARCH, Campaign
from shalott.harness.search.carried_plans import CarriedPlans, Target, carry_all, find_plans
from shalott.harness.search.door import DrawnPlans, Plans
from shalott.harness.search.failure_rate import Rule, Trials, trials_of
from shalott.harness.search.findings import RealFacts, SeedReport
from shalott.harness.search.real_capacity import capabilities_of, choose_faults, clusters_that_fit
from shalott.harness.search.real_runs import RealRuns
from shalott.harness.search.repeats import RateRepeats, Repeats, repeated
from shalott.harness.search.search import Search, SearchRequest, parse_seeds
from shalott.harness.search.summary import RateSummary, RealSummary, verdict_of
from shalott.nemesis.requirements import required_capabilities
from shalott.workloads.record import WORKLOADS

WORLDS = ("docker", "local")
SEEDS = "1000"  # more than any budget holds
# What real time wants otherwise than virtual time; a system's own search may say more of it.
REAL = USUAL.but(
    nodes=(3,),
    rate_hz=Range(15, 45, 5),
    time_limit_ms=(30_000, 40_000),
    shortest_ms=Range(1000, 6000, 500),
    longest_ms=Range(6000, 15_000, 500),
    interval_ms=Range(8000, 16_000, 500),
)
# Machines that stay warm are the same for all plans; and the harness can't look into them.
FIXED: Mapping[str, object] = {
    "layouts": (TOGETHER,),
    "observe_interval_ms": (500,),
    "gates": GatePlan(min_acked=20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSearch(Search):
    """A search on real nodes, planned. ``notes``: what the user should know before it begins."""

    cluster: str = "docker"
    jobs: int = 1
    keeps_to_time: bool = True
    rule: Rule = Rule()
    carried: CarriedPlans | None = None
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plans(self) -> Plans:
        return self.carried or DrawnPlans(self.subject)

    def repeats(self, campaign: Campaign) -> Repeats:
        return RateRepeats(campaign, self.rule)

    def facts(self, campaign: Campaign) -> RealSummary | None:
        return facts_of(
            campaign,
            self.seeds,
            jobs=self.jobs,
            rule=self.rule,
            left_out=self.subject.left_out,
            carried=self.carried,
        )

    @property
    def wanted_events(self) -> tuple[str, ...]:
        return () if self.carried is not None else wanted_events(self.subject)


def plan_real(request: SearchRequest) -> RealSearch:
    """Everything that can be refused is refused here. Raises UsageError."""
    if request.cluster not in WORLDS:
        raise UsageError(
            f"--cluster {request.cluster}: a search runs in sim, {' or '.join(WORLDS)}"
        )
    if is_url(request.store):
        raise UsageError(f"--store {request.store}: runs on real nodes need a directory")
    if request.bug or request.scenario:
        raise UsageError("--bug and --scenario are searches of the simulation: leave --cluster out")
    if request.repeat < 0:
        raise UsageError(f"--repeat {request.repeat}: give 0 or more")
    return _carried(request) if request.plans else _drawn(request)


def runs_of(search: RealSearch, request: SearchRequest) -> RealRuns:
    place = Path(request.store) / SEARCH / search.subject.name / AT_WORK
    return RealRuns(place=place, needs=search.needs)


def _drawn(request: SearchRequest) -> RealSearch:
    record = SYSTEMS.find(request.system or "mirrored")
    if not record.speaks:
        raise UsageError(
            f"{record.name} has no clients of its own, and a search draws none: repeat `shalott"
            " test` with other seeds (--test-count), and shrink what it finds (`shalott shrink`)"
        )
    profile = request.profile or usual_profile(record.name)
    backends.choose_backend(request.cluster, record.name)
    named = parse_nemeses(request.nemesis)
    parameters = _parameters(record, request)
    words = (record.name, profile, request.cluster, request.workload, *parameters.values(), *named)
    subject = Subject(
        system=record.name,
        profile=profile,
        swarm=_swarm(request, named, record.name, profile),
        name=_name(words),
        workload=request.workload,
        cluster=request.cluster,
        parameters=parameters,
        policy=record.canonical(parse_policy(request.policy)),
    )
    empty = dataclasses.replace(subject, swarm=subject.swarm.but(schedule=()))
    sample = draw_plan(empty, 1)
    kinds = tuple(fault_kinds(subject))
    choice = choose_faults(kinds, sample, backends.make_system(sample), are_named=bool(named))
    if len(choice.left_out) == len(kinds):
        raise UsageError(f"no fault is left to draw: {' '.join(choice.notes)}")
    subject = dataclasses.replace(subject, left_out=choice.left_out)
    text = request.seeds or SEEDS
    seeds = parse_seeds(text)
    draw_plan(subject, seeds[0])
    jobs = request.jobs or clusters_that_fit(record.footprint, len(sample.cluster.nodes))
    return RealSearch(
        subject=subject,
        seeds=seeds,
        seeds_text=text,
        cluster=request.cluster,
        jobs=jobs,
        rule=Rule(most=request.repeat),
        needs=choice.needs,
        notes=(*choice.notes, _told_jobs(jobs, request)),
    )


def _carried(request: SearchRequest) -> RealSearch:
    paths = find_plans(request.plans)
    system = request.system or load_plan(paths[0]).system.name
    record = SYSTEMS.find(system)
    backends.choose_backend(request.cluster, system)
    parameters = _parameters(record, request)
    target = Target(
        cluster=request.cluster,
        can=frozenset(MOST[request.cluster]),
        system=request.system,
        profile=request.profile,
        parameters=parameters,
        policy=record.canonical(parse_policy(request.policy)),
    )
    first, _ = carry_all(paths, target)
    target = dataclasses.replace(target, can=capabilities_of(first.plan(1)))
    carried, notes = carry_all(paths, target)
    text = request.seeds or str(len(carried.carried))
    every = [each.plan for each in carried.carried]
    needs = frozenset(n for plan in every for n in required_capabilities(plan.faults))
    most_nodes = max(len(plan.cluster.nodes) for plan in every)
    jobs = request.jobs or clusters_that_fit(record.footprint, most_nodes)
    words = (system, request.profile, request.cluster, *parameters.values(), "carried")
    return RealSearch(
        subject=Subject(
            system=system, profile=request.profile, name=_name(words), cluster=request.cluster
        ),
        seeds=parse_seeds(text),
        seeds_text=text,
        cluster=request.cluster,
        jobs=jobs,
        rule=Rule(most=request.repeat),
        carried=carried,
        needs=tuple(sorted(needs)),
        notes=(*notes, _told_jobs(jobs, request)),
    )


def _parameters(record: SystemRecord, request: SearchRequest) -> dict[str, object]:
    """What the user says of the system, by field; the struct has the rest. Raises UsageError."""
    own = {flag.name: flag.field for flag in flags_of(record.parameters)}
    for name in request.given:
        if name not in own:
            raise UsageError(f"--{name} is no parameter of {record.name}: leave it out")
    values = to_plan(parse_parameters(record.parameters, request.given, {}))
    return {own[name]: values[own[name]] for name in request.given}


def _swarm(request: SearchRequest, named: Sequence[str], system: str, profile: str) -> Swarm:
    own = WORKLOADS.find(request.workload).search if request.workload else {}
    swarm = REAL.but(**{**search_of(system, profile).settings, **own, **FIXED})
    if request.nodes:
        swarm = swarm.but(nodes=(request.nodes,))
    if named:
        swarm = swarm.but(faults=dict.fromkeys(named, 1.0), fault_share=1.0)
    return swarm


def _name(words: Sequence[object]) -> str:
    return "-".join(str(word) for word in words if word != "")


def _told_jobs(jobs: int, request: SearchRequest) -> str:
    clusters = f"{jobs} cluster{'s' * (jobs > 1)} side by side"
    return f"{clusters}, as --jobs says." if request.jobs else f"{clusters}: what fits here."


# -- what its summary says ------------------------------------------------------------------------


def facts_of(
    campaign: Campaign,
    seeds: Sequence[int],
    *,
    jobs: int,
    rule: Rule,
    left_out: Sequence[str],
    carried: CarriedPlans | None,
) -> RealSummary:
    reports = [campaign.reports[seed] for seed in seeds if seed in campaign.reports]
    again = [each for seed in seeds for each in campaign.repeats.get(seed, ())]
    every = [each for each in (*reports, *again) if each.real is not None]
    facts = [each.real for each in every if each.real is not None]
    boots_ms = [(each.warm, each.phases_ms["boot"]) for each in facts if "boot" in each.phases_ms]
    return RealSummary(
        jobs=jobs,
        warm=sum(each.warm for each in facts),
        cold=sum(not each.warm for each in facts),
        warm_boot_ms=_median(lasted_ms for warm, lasted_ms in boots_ms if warm),
        cold_boot_ms=_median(lasted_ms for warm, lasted_ms in boots_ms if not warm),
        run_ms=_median(round(each.wall_s * 1000) for each in every if each.error is None),
        again=sum(each.tries - 1 for each in facts),
        starved={str(each.seed): _facts(each).starved for each in reports if _starved(each)},
        left_out=tuple(left_out),
        rates={str(seed): rate for seed, rate in _rates_of(campaign, reports, rule)},
        plans={} if carried is None else _by_plan(reports, carried, rule),
    )


def _facts(report: SeedReport) -> RealFacts:
    assert report.real is not None
    return report.real


def _starved(report: SeedReport) -> bool:
    return verdict_of(report) == "starved"


def _median(values: Iterable[int]) -> int | None:
    found = list(values)
    return round(statistics.median(found)) if found else None


def _rates_of(
    campaign: Campaign, reports: Sequence[SeedReport], rule: Rule
) -> Iterator[tuple[int, RateSummary]]:
    for report in reports:
        if campaign.repeats.get(report.seed) and report.violations:
            trials = repeated(campaign, report.seed, report.violations)
            yield report.seed, rate_of(report.violations[0], trials, rule)


def _by_plan(
    reports: Sequence[SeedReport], carried: CarriedPlans, rule: Rule
) -> Mapping[str, RateSummary]:
    """Of each carried plan: its own runs, none of which was chosen because it failed."""
    outcomes: dict[str, list[bool | None]] = {}
    kinds: dict[str, str] = {}
    for report in reports:
        origin, verdict = carried.of(report.seed).origin, verdict_of(report)
        failed = verdict == "invalid" if verdict in ("valid", "invalid") else None
        outcomes.setdefault(origin, []).append(failed)
        if failed:
            kinds.setdefault(origin, report.violations[0])
    return {
        origin: rate_of(kinds.get(origin, ""), trials_of(seen), rule)
        for origin, seen in outcomes.items()
    }


def rate_of(kind: str, trials: Trials, rule: Rule) -> RateSummary:
    low, high = trials.interval
    return RateSummary(
        kind=kind,
        failed=trials.failed,
        ran=trials.ran,
        void=trials.void,
        low=round(low, 4),
        high=round(high, 4),
        often=rule.verdict(trials),
    )
