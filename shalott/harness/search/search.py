"""``shalott search``: a seed after the other, each a plan of its own, until something is found.

A search is planned first (what is drawn from, which seeds, what is looked for), which is here, then
run by workers of processes (workers.py) through the campaign's door (door.py), and written down as
it goes (run_search.py, campaign.py). Some seeds, drawn by the seed itself, and all findings are run
a second time (repeats.py). What is different on real nodes is real_search.py.

A search for a known bug ends with the first seed that shows it: the first in the order of the
seeds, not the one that finished first, so "found after N seeds" does not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.command_options import Option
from shalott.core.errors import UsageError
from shalott.core.parameters import parse_duration_ms
from shalott.core.plan import Plan
from shalott.harness.run.request import STORE, parse_nemeses
from shalott.harness.run.simulation_record import code_fingerprint
from shalott.harness.scenarios.catalogue import scenario_of, scenario_of_bug
from shalott.harness.scenarios.scenario import Scenario
from shalott.harness.scenarios.swarm import (
    Subject,
    draw_plan,
    plain_subject,
    usual_profile,
    wanted_events,
)
from shalott.harness.search.campaign import Campaign, Header
from shalott.harness.search.changed_code import ChangedModule
from shalott.harness.search.corpus import Guide, read_corpus
from shalott.harness.search.door import DealtPlans, DrawnPlans, Plans
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Place, open_place
from shalott.harness.search.repeats import DigestRepeats, Repeats
from shalott.harness.search.summary import RealSummary, verdict_of
from shalott.workloads.record import WORKLOADS

SIM = "sim"
ALL = "all"  # workloads
_SEEDS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """``shalott search``'s flags; times as users write them. "" stands for the default."""

    system: Annotated[str, Option("What runs on the nodes: mirrored, if not given.")] = ""
    profile: Annotated[str, Option("safe (the default where there is one) or upstream.")] = ""
    workload: Annotated[
        str, Option("What clients do, or all; else the system's own.", ("--workload", "-w"))
    ] = ""
    nemesis: Annotated[str, Option("Faults to draw from: a,b; else all it survives.")] = ""
    seeds: Annotated[str, Option("How many, or a range: 1000, 5000-5999.")] = ""
    jobs: Annotated[
        int, Option("Processes; 0: one for each CPU, or as many clusters as fit.", ("--jobs", "-j"))
    ] = 0
    bug: Annotated[str, Option("Look for this known bug: see `shalott bugs`.")] = ""
    scenario: Annotated[str, Option("Look for this loss window, or bug: L1, KB-RMQ-02.")] = ""
    time_limit: Annotated[str, Option("No new seed after so long: 90s, 30m.")] = ""
    keep: Annotated[int, Option("Findings kept of each class.")] = 3
    fresh: Annotated[bool, Option("Begin anew; what there is is set aside.")] = False
    corpus: Annotated[str, Option("Learn: keep plans that showed something new there.")] = ""
    store: Annotated[str, Option("Where runs are kept.", after="load")] = str(STORE)
    spark: Annotated[str, Option("A Spark cluster for the runs: spark://HOST:7077.")] = ""
    # Of searches on real nodes (real_search.py).
    cluster: Annotated[
        str, Option("Where nodes run: sim; docker or local, on clusters kept warm.")
    ] = SIM
    nodes: Annotated[int, Option("Nodes of a real cluster; 0: three.")] = 0
    plans: Annotated[
        tuple[Path, ...], Option("Stored plans to run on real nodes, or a directory.")
    ] = ()
    policy: Annotated[tuple[str, ...], Option("A setting of a real system: KEY=VALUE.")] = ()
    repeat: Annotated[
        int, Option("Runs, at most, to see how often a real finding comes again.")
    ] = 5
    given: Mapping[str, str | bool] = field(default_factory=dict)  # of the system's parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search, planned. ``subjects``: whose plans are dealt in turn; (): ``subject``'s alone.
    ``anomaly``: the class that ends it; "": any class, if ``ends``. ``cpu_limit_s``: no new seed
    when its runs have taken so much; None: no matter."""

    subject: Subject
    subjects: tuple[Subject, ...] = ()
    seeds: Sequence[int]
    seeds_text: str
    title: str = ""  # of the scenario or the bug
    anomaly: str = ""
    ends: bool = False  # with the first finding
    cpu_limit_s: float | None = None
    changes: tuple[ChangedModule, ...] = ()  # code that is other than the sources
    corpus: Place | None = None  # a directory of plans, if it learns from its runs
    kept: tuple[Plan, ...] = ()  # that are there

    cluster = SIM
    jobs = 0  # one for each CPU
    keeps_to_time = False  # a time limit also ends what is run again, and outlives a kill

    @property
    def plans(self) -> Plans:
        return DealtPlans(self.subjects) if self.subjects else DrawnPlans(self.subject)

    def guide(self) -> Guide | None:
        """What chooses the plans of a search that learns."""
        return None if self.corpus is None else Guide(self.plans, self.seeds, self.kept)

    def repeats(self, campaign: Campaign) -> Repeats:
        """What is run again of the campaign."""
        return DigestRepeats(campaign)

    def facts(self, campaign: Campaign) -> RealSummary | None:
        """What a summary says besides of runs on real nodes."""
        return None

    @property
    def header(self) -> Header:
        drawn_from = repr(self.subject)
        if self.cluster != SIM or self.subjects:
            drawn_from = repr((self.subject, self.plans))
        if self.corpus is not None:
            drawn_from = repr((drawn_from, self.kept))
        digest = hashlib.blake2b(drawn_from.encode(), digest_size=8).hexdigest()
        return Header(subject=digest, code=code_fingerprint())

    @property
    def wanted_events(self) -> tuple[str, ...]:
        """What it wants to see happen at least once."""
        wanted = map(wanted_events, self.subjects or (self.subject,))
        return tuple(dict.fromkeys(name for each in wanted for name in each))

    def is_found_by(self, report: SeedReport) -> bool:
        """Whether this run ends the search."""
        if not self.ends or verdict_of(report) != "invalid":
            return False
        return self.anomaly in report.violations if self.anomaly else True


def plan_search(request: SearchRequest) -> Search:
    """Everything that can be refused is refused here, in one sentence. Raises UsageError."""
    if request.jobs < 0 or request.keep < 0:
        raise UsageError("give 1 or more --jobs, and 0 or more findings to --keep")
    if request.bug and request.scenario:
        raise UsageError("give --bug or --scenario, not both: a bug's scenario has its id")
    if request.time_limit:
        parse_duration_ms("--time-limit", request.time_limit)
    for flag, asked in (
        ("--plans", request.plans),
        ("--policy", request.policy),
        ("--nodes", request.nodes),
        *((f"--{name}", True) for name in request.given),
    ):
        if asked:
            raise UsageError(
                f"{flag} is of a search on real nodes: give --cluster, or leave it out"
            )
    search = _scenario_search(request) if request.bug or request.scenario else _plain(request)
    draw_plan(search.subject, search.seeds[0])
    return _learning(search, request.corpus) if request.corpus else search


def _learning(search: Search, corpus: str) -> Search:
    place, subject = open_place(corpus), search.subject
    if place.path is not None and place.path.is_file():
        raise UsageError(f"--corpus {corpus}: give a directory, which may be a new one")
    kept = read_corpus(place, system=subject.system, profile=subject.profile)
    named = dataclasses.replace(subject, name=f"{subject.name}-corpus")
    return dataclasses.replace(search, subject=named, corpus=place, kept=tuple(kept))


def _plain(request: SearchRequest) -> Search:
    system = request.system or "mirrored"
    profile = request.profile or usual_profile(system)
    text = request.seeds or "1000"
    if "sim" not in SYSTEMS.find(system).worlds:
        here = [record.name for record in SYSTEMS.records() if "sim" in record.worlds]
        raise UsageError(
            f"{system} has no simulation: search --system {' or '.join(here)}, or real nodes"
            " with --cluster"
        )
    kinds = parse_nemeses(request.nemesis)
    seeds = parse_seeds(text)
    if request.workload != ALL:
        subject = _with_faults(plain_subject(system, profile, request.workload), kinds)
        return Search(subject=subject, seeds=seeds, seeds_text=text)
    subjects = tuple(
        _with_faults(plain_subject(system, profile, workload), kinds)
        for workload in workloads_of(system)
    )
    name = f"{system}-{profile}-{ALL}"
    together = _with_faults(dataclasses.replace(plain_subject(system, profile), name=name), kinds)
    return Search(subject=together, subjects=subjects, seeds=seeds, seeds_text=text)


def workloads_of(system: str) -> list[str]:
    """Those that a search of the system can have, if it is expected to stand them."""
    speaks = SYSTEMS.find(system).speaks
    fitting = [each for each in WORKLOADS.records() if each.fits(speaks)]
    return [each.name for each in fitting if not {*each.fails_over} & {*speaks}]


def _with_faults(subject: Subject, kinds: Sequence[str]) -> Subject:
    if not kinds:
        return subject
    named = subject.swarm.but(faults=dict.fromkeys(kinds, 1.0), fault_share=1.0)
    return dataclasses.replace(subject, swarm=named, name=f"{subject.name}-{'-'.join(kinds)}")


def _scenario_search(request: SearchRequest) -> Search:
    found: Scenario | None
    found = scenario_of_bug(request.bug) if request.bug else scenario_of(request.scenario)
    if found is None:  # a bug without a scenario
        plain = _plain(request)
        name = f"{plain.subject.name}-{request.bug.lower()}"
        subject = dataclasses.replace(plain.subject, bugs=(request.bug,), name=name)
        subjects = tuple(dataclasses.replace(e, bugs=(request.bug,)) for e in plain.subjects)
        return dataclasses.replace(
            plain, subject=subject, subjects=subjects, title=request.bug, ends=True
        )
    for flag, asked, own in (
        ("--system", request.system, found.system),
        ("--profile", request.profile, found.profile),
        ("--workload", request.workload, ""),
        ("--nemesis", request.nemesis, ""),
    ):
        if asked and asked != own:
            raise UsageError(f"{found.id} is about {own or found.system}: leave {flag} {asked} out")
    text = request.seeds or str(found.seed_budget)
    return Search(
        subject=found.subject(),
        seeds=parse_seeds(text),
        seeds_text=text,
        title=found.id,
        anomaly=found.anomaly,
        ends=True,
    )


def parse_seeds(text: str) -> range:
    """How many, from 1, or the first and the last: 5000-5999."""
    match = _SEEDS.fullmatch(text.strip().replace("_", "").replace(",", ""))
    first = last = 0
    if match is not None:
        first, last = (1, int(match[1])) if match[2] is None else (int(match[1]), int(match[2]))
    if match is None or last < first:
        raise UsageError(f"--seeds {text}: give how many, such as 1000, or a range: 5000-5999")
    return range(first, last + 1)
