"""A search that runs: numbers are handed to workers, and what comes back is written down.

Findings of each class are kept up to a number; what is run again, and what that proves, is the
business of ``Repeats`` (repeats.py). The same command goes on where it was stopped: what a campaign
has done is taken over before anything is handed out.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

import msgspec

from shalott.core.doors import loaded_modules, typed_command
from shalott.core.parameters import parse_duration_ms
from shalott.harness.run.session import note_in_table
from shalott.harness.run.store import PLAN, RunDirectory
from shalott.harness.search.campaign import AT_WORK, Campaign, finding, open_campaign
from shalott.harness.search.corpus import Guide, write_corpus
from shalott.harness.search.door import Runs
from shalott.harness.search.findings import SeedReport, Shelf
from shalott.harness.search.place import Place, open_place
from shalott.harness.search.repeats import Repeats
from shalott.harness.search.search import Search, SearchRequest
from shalott.harness.search.summary import (
    Searched,
    Summary,
    render_summary,
    summarise,
    verdict_of,
)
from shalott.harness.search.unentered import reach_of
from shalott.harness.search.workers import Answer, Job, Task, WorkerPool

LOOK_S = 0.25
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Tally:
    wanted: int
    done: int = 0  # earlier commands' runs among them
    run_now: int = 0
    began_s: float = field(default_factory=time.monotonic)
    classes: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    starved: int = 0
    failed: int = 0
    repeated: int = 0
    wanted_events: tuple[str, ...] = ()
    seen: dict[str, None] = field(default_factory=dict)  # of these
    virtual_ns: int = 0
    cpu_s: float = 0.0

    @property
    def seeds_a_second(self) -> float:
        passed_s = time.monotonic() - self.began_s
        return self.run_now / passed_s if passed_s > 0 else 0.0

    def count(self, report: SeedReport) -> None:
        verdict = verdict_of(report)
        self.done += 1
        self.failed += verdict == "error"
        self.unknown += verdict == "unknown"
        self.starved += verdict == "starved"
        self.virtual_ns += report.virtual_ns
        self.cpu_s += report.wall_s
        for kind in report.violations if verdict == "invalid" else ():
            self.classes[kind] = self.classes.get(kind, 0) + 1
        self.seen |= {
            name: None for name in self.wanted_events if report.sometimes.get(name, 0) > 0
        }


class Watch(Protocol):
    """Shows a search's progress. ``say`` adds a line that stays."""

    def show(self, tally: Tally) -> None: ...

    def say(self, line: str) -> None: ...


class Pool(Protocol):
    """See ``WorkerPool`` (workers.py), which has its processes here, and spark_pool.py."""

    def __enter__(self) -> Pool: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def busy(self) -> int: ...

    def hand_out(self, choose: Callable[[int], Task | None]) -> None: ...

    def renew(self) -> None: ...

    def answers(self, timeout_s: float) -> list[Answer]: ...


MakePool = Callable[[Job, int], Pool]


def run_search(
    search: Search,
    request: SearchRequest,
    runs: Runs,
    watch: Watch,
    *,
    command: str,
    make_pool: MakePool | None = None,
) -> tuple[Summary, Place]:
    """Search; the summary, which is stored too, and the campaign's place. ``make_pool``: where
    its workers are; None: here."""
    header = search.header
    name = search.subject.name
    store = open_place(request.store)
    campaign = open_campaign(store, name, header, fresh=request.fresh)
    began_s, began_wall_ns = time.monotonic(), time.time_ns()
    try:
        loop = _SearchLoop(search, request, campaign, watch)
        loop.resume()
        interrupted = False
        if not loop.over:
            probed = loop.guide is not None
            job = Job(search.plans, runs, header.code, loaded_modules(), search.changes, probed)
            jobs = request.jobs or search.jobs or os.cpu_count() or 1
            interrupted = loop.run(job, jobs, make_pool or WorkerPool)
        summary = summarise(
            campaign,
            Searched(
                command=command,
                seeds=search.seeds,
                seeds_text=search.seeds_text,
                wanted_events=search.wanted_events,
                wall_s=time.monotonic() - began_s,
                interrupted=interrupted,
                scenario=search.title,
                anomaly=search.anomaly,
                found_seed=loop.found_seed,
            ),
        )
        summary = msgspec.structs.replace(
            summary,
            system=search.subject.system,
            profile=search.subject.profile,
            workload=search.subject.workload,
            started_wall_ns=began_wall_ns,
            cluster=search.cluster,
            real=search.facts(campaign),
        )
        if loop.guide is not None and search.corpus is not None and not interrupted:
            summary = _keep_corpus(search.corpus, loop.guide, summary)
        campaign.save_summary(render_summary(summary))
        if store.path is not None and campaign.place.path is not None:
            _note_in_table(store.path, campaign.place.path, campaign.kept)
        return summary, campaign.place
    finally:
        campaign.close()


def _keep_corpus(place: Place, guide: Guide, summary: Summary) -> Summary:
    """What was learned, for the next search."""
    corpus, before = guide.finish()
    if not corpus.entries:  # all was run by an earlier command
        return summary
    count = write_corpus(place, corpus.minimal(), before)
    reach = reach_of(corpus.runs, f"{summary.system}/{summary.profile}")
    return msgspec.structs.replace(
        summary,
        features=len(corpus.runs),
        corpus=count,
        unentered=reach.unentered,
        explained=reach.explained,
        outdated=reach.outdated,
    )


def _note_in_table(store: Path, directory: Path, kept: Iterable[int]) -> None:
    places = [directory, *(directory / finding(seed) for seed in sorted(kept))]
    note_in_table(store, *map(RunDirectory, places))


class _SearchLoop:
    """The state of a search under way: which seeds are still to be run, and to be run again."""

    def __init__(
        self, search: Search, request: SearchRequest, campaign: Campaign, watch: Watch
    ) -> None:
        self._search = search
        self._campaign = campaign
        self._watch = watch
        limit = request.time_limit
        self._limit_s = parse_duration_ms("--time-limit", limit) / 1000 if limit else None
        self._todo = deque(search.seeds)
        self.guide = search.guide()
        self._repeats: Repeats = search.repeats(campaign)
        self._shelf = Shelf(request.keep)
        self._tally = Tally(wanted=len(search.seeds), wanted_events=search.wanted_events)
        self.found_seed: int | None = None

    @property
    def over(self) -> bool:
        return not self._todo and self._repeats.is_empty

    def resume(self) -> None:
        earlier = self._campaign.reports
        self._todo = deque(seed for seed in self._search.seeds if seed not in earlier)
        for seed in self._search.seeds if earlier else ():
            if seed in earlier:
                self._count(earlier[seed], None)
        self._keep_to_cpu_limit()
        if self._campaign.place.path is not None:  # runs on real nodes that were cut short
            shutil.rmtree(self._campaign.place.path / AT_WORK, ignore_errors=True)
        if self._campaign.fresh_because:
            self._watch.say(f"A campaign begins anew: {self._campaign.fresh_because}.")
        elif self._tally.done:
            self._watch.say(f"{self._tally.done:,} seeds were run before; going on.")

    def run(self, job: Job, jobs: int, make_pool: MakePool) -> bool:
        """Until everything is done, found, out of time, or interrupted (then true)."""
        self._tally.began_s = time.monotonic()
        is_late = False
        with _signals() as asked, make_pool(job, min(jobs, len(self._todo) + 1)) as pool:
            while not (is_late or self.over) or pool.busy:
                if asked:
                    self._spend()
                    return True
                self._keep_to_cpu_limit()
                if not is_late and self._limit_s is not None and self._passed_s > self._limit_s:
                    self._todo.clear()
                    is_late = self._search.keeps_to_time
                if not is_late:
                    pool.hand_out(self._choose)
                if not (is_late or pool.busy or self._repeats.is_empty):
                    pool.renew()  # all that is to be repeated was run by who is idle now
                for answer in pool.answers(LOOK_S):
                    self._take(answer)
                self._watch.show(self._tally)
        self._spend(over=True)
        return False

    @property
    def _passed_s(self) -> float:
        before_s = self._campaign.spent_s if self._search.keeps_to_time else 0.0
        return before_s + time.monotonic() - self._tally.began_s

    def _keep_to_cpu_limit(self) -> None:
        limit_s = self._search.cpu_limit_s
        if limit_s is not None and self._tally.cpu_s >= limit_s:
            self._todo.clear()

    def _spend(self, *, over: bool = False) -> None:
        if self._search.keeps_to_time:
            self._campaign.spend(self._passed_s, over=over)

    def _choose(self, worker: int) -> Task | None:
        seed = self._repeats.take(worker)
        if seed is not None:
            plan = None if self.guide is None else self.guide.plan(seed)
            return Task(seed, again=True, plan=plan)
        if not self._todo:
            return None
        if self.guide is None:
            return Task(self._todo.popleft())
        plan = self.guide.plan(self._todo[0])
        return None if plan is None else Task(self._todo.popleft(), plan=plan)

    def _take(self, answer: Answer) -> None:
        report = answer.report
        if answer.task.again:
            self._repeats.record(report)
            self._tally.repeated += 1
            self._spend()
            return
        if answer.evidence is not None:
            self._keep(answer)
        self._campaign.add(report)
        self._spend()
        self._tally.run_now += 1
        self._count(report, answer.worker)

    def _keep(self, answer: Answer) -> None:
        """Of what was found, if there is little of it yet."""
        report, evidence = answer.report, answer.evidence
        assert evidence is not None
        if verdict_of(report) == "starved" or not self._shelf.wants(report):
            evidence.drop()
            return
        name = finding(report.seed)
        place = f"{self._campaign.place}/{name}"
        copied = name if self._campaign.place.path is None else place
        with self._campaign.place.filled(name) as directory:
            evidence.keep(RunDirectory(directory), typed_command("replay", f"{copied}/{PLAN}"))
        self._campaign.kept.add(report.seed)
        kinds = ", ".join(report.violations)
        self._watch.say(f"seed {report.seed}: {kinds}: {place}")

    def _count(self, report: SeedReport, worker: int | None) -> None:
        seed = report.seed
        self._tally.count(report)
        if self.guide is not None:
            self.guide.add(report)
        is_kept = seed in self._campaign.kept
        if is_kept:
            self._shelf.put(report)
        self._repeats.add(report, worker, is_kept=is_kept)
        if self._search.is_found_by(report) and (self.found_seed is None or seed < self.found_seed):
            self.found_seed = seed
        if self.found_seed is not None:  # seeds before it may still show it earlier
            self._todo = deque(other for other in self._todo if other < self.found_seed)
            self._repeats.only(self.found_seed)


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
