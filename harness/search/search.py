"""``shalott search``: a seed after the other, each a plan of its own, until something is found.

A search is planned first (what is drawn from, which seeds, what is looked for), then run by workers
of processes (harness/search/workers.py) and written down as it goes (harness/search/campaign.py).
Some seeds, drawn by the seed itself, and all findings are run a second time in another process;
digests that differ mean that the simulation is not deterministic, and then nothing that it says can
be believed.

A search for a known bug ends with the first seed that shows it: the first in the order of the
seeds, whatever finished first, so that "found after N seeds" does not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from shalott.cluster.systems.record import SYSTEMS
from shalott.harness.core.doors import loaded_modules
from shalott.harness.core.errors import UsageError
from shalott.harness.core.quantities import parse_duration_ms
from shalott.harness.core.rng import Stream
from shalott.harness.run.request import parse_nemeses
from shalott.harness.run.sim_record import code_fingerprint
from shalott.harness.run.store import PLAN
from shalott.harness.search.campaign import Campaign, Header, open_campaign
from shalott.harness.search.drawing.swarm import (
    Subject,
    draw_plan,
    plain_subject,
    wanted_events,
)
from shalott.harness.search.findings import SeedReport, Shelf, save_evidence
from shalott.harness.search.scenarios.catalogue import scenario_of, scenario_of_bug
from shalott.harness.search.scenarios.scenario import Scenario
from shalott.harness.search.summary import Summary, render_summary, summarise, verdict_of
from shalott.harness.search.workers import Answer, Job, Simulate, Task, WorkerPool

AGAIN_SHARE = 0.05  # of the seeds that are run twice (FoundationDB's unseed_check_ratio)
LOOK_S = 0.25
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SEEDS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """``shalott search``'s flags; times as users write them. "" stands for the default."""

    system: str = ""
    profile: str = ""
    workload: str = ""
    nemesis: str = ""  # faults to draw from, with commas between them; "": the profile's
    seeds: str = ""
    jobs: int = 0  # 0: one for each CPU
    bug: str = ""
    scenario: str = ""
    time_limit: str = ""
    keep: int = 3
    fresh: bool = False
    store: Path = Path("store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search, planned. ``anomaly``: the class that ends it; "": any class, if ``ends``."""

    subject: Subject
    seeds: range
    seeds_text: str
    title: str = ""  # of the scenario or the bug
    anomaly: str = ""
    ends: bool = False  # with the first finding

    @property
    def header(self) -> Header:
        drawn_from = hashlib.blake2b(repr(self.subject).encode(), digest_size=8).hexdigest()
        return Header(subject=drawn_from, code=code_fingerprint())

    @property
    def wanted_events(self) -> tuple[str, ...]:
        """What it wants to see happen at least once."""
        return wanted_events(self.subject)

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
    search = _scenario_search(request) if request.bug or request.scenario else _plain(request)
    draw_plan(search.subject, search.seeds[0])
    return search


def _plain(request: SearchRequest) -> Search:
    system, profile = request.system or "mirrored", request.profile or "safe"
    text = request.seeds or "1000"
    if "sim" not in SYSTEMS.find(system).worlds:
        here = [record.name for record in SYSTEMS.records() if "sim" in record.worlds]
        raise UsageError(f"{system} has no simulation: search --system {' or '.join(here)}")
    subject = plain_subject(system, profile, request.workload)
    kinds = parse_nemeses(request.nemesis)
    if kinds:
        named = subject.swarm.but(faults=dict.fromkeys(kinds, 1.0), fault_share=1.0)
        subject = dataclasses.replace(
            subject, swarm=named, name=f"{subject.name}-{'-'.join(kinds)}"
        )
    return Search(subject=subject, seeds=parse_seeds(text), seeds_text=text)


def _scenario_search(request: SearchRequest) -> Search:
    found: Scenario | None
    found = scenario_of_bug(request.bug) if request.bug else scenario_of(request.scenario)
    if found is None:  # a bug that nobody has written a scenario for
        plain = _plain(request)
        name = f"{plain.subject.name}-{request.bug.lower()}"
        subject = dataclasses.replace(plain.subject, bugs=(request.bug,), name=name)
        return dataclasses.replace(plain, subject=subject, title=request.bug, ends=True)
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


def is_repeated(seed: int) -> bool:
    """Whether this seed is one of those that are run twice."""
    return Stream(seed, "search", "again").random() < AGAIN_SHARE


# -- at work ---------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What a progress bar shows."""

    wanted: int
    done: int = 0  # earlier commands' runs among them
    run_now: int = 0
    began_s: float = field(default_factory=time.monotonic)
    classes: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    failed: int = 0
    repeated: int = 0
    wanted_events: tuple[str, ...] = ()
    seen: dict[str, None] = field(default_factory=dict)  # of these
    virtual_ns: int = 0

    @property
    def seeds_a_second(self) -> float:
        passed_s = time.monotonic() - self.began_s
        return self.run_now / passed_s if passed_s > 0 else 0.0

    def count(self, report: SeedReport) -> None:
        verdict = verdict_of(report)
        self.done += 1
        self.failed += verdict == "error"
        self.unknown += verdict == "unknown"
        self.virtual_ns += report.virtual_ns
        for kind in report.violations if verdict == "invalid" else ():
            self.classes[kind] = self.classes.get(kind, 0) + 1
        self.seen |= {
            name: None for name in self.wanted_events if report.sometimes.get(name, 0) > 0
        }


class Watch(Protocol):
    """Shows a search's progress. ``say`` adds a line that stays."""

    def show(self, tally: Tally) -> None: ...

    def say(self, line: str) -> None: ...


def run_search(
    search: Search,
    request: SearchRequest,
    simulate: Simulate,
    watch: Watch,
    *,
    command: str,
) -> tuple[Summary, Path]:
    """Search; the summary, which is stored too, and the campaign's directory."""
    header = search.header
    name = search.subject.name
    campaign = open_campaign(request.store, name, header, fresh=request.fresh)
    began_s = time.monotonic()
    try:
        at_work = _AtWork(search, request, campaign, watch)
        at_work.resume()
        interrupted = False
        if not at_work.over:
            job = Job(search.subject, simulate, header.code, loaded_modules())
            interrupted = at_work.run(job, request.jobs or os.cpu_count() or 1)
        summary = summarise(
            campaign,
            search.seeds,
            command=command,
            seeds_text=search.seeds_text,
            wanted_events=search.wanted_events,
            wall_s=time.monotonic() - began_s,
            interrupted=interrupted,
            scenario=search.title,
            anomaly=search.anomaly,
            found_seed=at_work.found_seed,
        )
        campaign.save_summary(render_summary(summary))
        return summary, campaign.directory
    finally:
        campaign.close()


class _AtWork:
    """The state of a search under way: which seeds are still to be run, and to be run again."""

    def __init__(
        self,
        search: Search,
        request: SearchRequest,
        campaign: Campaign,
        watch: Watch,
    ) -> None:
        self._search = search
        self._campaign = campaign
        self._watch = watch
        limit = request.time_limit
        self._limit_s = parse_duration_ms("--time-limit", limit) / 1000 if limit else None
        self._todo = deque(search.seeds)
        self._again: list[int] = []
        self._made_by: dict[int, int] = {}
        self._shelf = Shelf(request.keep)
        self._tally = Tally(wanted=len(search.seeds), wanted_events=search.wanted_events)
        self.found_seed: int | None = None

    @property
    def over(self) -> bool:
        return not self._todo and not self._again

    def resume(self) -> None:
        """Take over what an earlier command has done, of these seeds."""
        earlier = self._campaign.reports
        self._todo = deque(seed for seed in self._search.seeds if seed not in earlier)
        for seed in self._search.seeds if earlier else ():
            if seed in earlier:
                self._count(earlier[seed])
        if self._campaign.fresh_because:
            self._watch.say(f"A campaign begins anew: {self._campaign.fresh_because}.")
        elif self._tally.done:
            self._watch.say(f"{self._tally.done:,} seeds were run before; going on.")

    def run(self, job: Job, jobs: int) -> bool:
        """Until everything is done, found, out of time, or interrupted (then true)."""
        self._tally.began_s = time.monotonic()
        with _signals() as asked, WorkerPool(job, min(jobs, len(self._todo) + 1)) as pool:
            while not self.over or pool.busy:
                if asked:
                    return True
                if self._limit_s is not None and self._passed_s > self._limit_s:
                    self._todo.clear()
                pool.hand_out(self._choose)
                if not pool.busy and self._again:
                    pool.renew()  # all that is to be repeated was run by who is idle now
                for answer in pool.answers(LOOK_S):
                    self._take(answer)
                self._watch.show(self._tally)
        return False

    @property
    def _passed_s(self) -> float:
        return time.monotonic() - self._tally.began_s

    def _choose(self, worker: int) -> Task | None:
        for seed in self._again:
            if self._made_by.get(seed) != worker:
                self._again.remove(seed)
                return Task(seed, again=True)
        return Task(self._todo.popleft()) if self._todo else None

    def _take(self, answer: Answer) -> None:
        report, seed = answer.report, answer.task.seed
        if answer.task.again:
            digest = report.digest if report.error is None else f"failed: {report.error}"
            self._campaign.add_again(seed, digest)
            self._tally.repeated += 1
            return
        self._made_by[seed] = answer.worker
        if answer.evidence is not None and self._shelf.wants(report):
            place = self._campaign.finding(seed)
            command = f"shalott replay {place.path / PLAN}"
            save_evidence(answer.evidence, place, command)
            kinds = ", ".join(report.violations)
            self._watch.say(f"seed {seed}: {kinds}: {place.path}")
        self._campaign.add(report)
        self._tally.run_now += 1
        self._count(report)

    def _count(self, report: SeedReport) -> None:
        seed = report.seed
        self._tally.count(report)
        is_kept = (self._campaign.finding(seed).path / PLAN).exists()
        if is_kept:
            self._shelf.put(report)
        wanted = report.error is None and (is_kept or is_repeated(seed))
        if wanted and seed not in self._campaign.again:
            self._again.append(seed)
        if self._search.is_found_by(report) and (self.found_seed is None or seed < self.found_seed):
            self.found_seed = seed
        if self.found_seed is not None:  # seeds before it may still show it earlier
            self._todo = deque(other for other in self._todo if other < self.found_seed)
            self._again = [other for other in self._again if other == self.found_seed]


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that asked for an end meanwhile."""
    asked: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, remember) for number in STOP_SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
