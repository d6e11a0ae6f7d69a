"""A corpus: plans whose runs showed something new, and the search that goes on from them.

What a run showed is a set of features, each a number: functions and branches of the broker that it
came to, with about how often (probes.py), and pairs of kinds of events in happens-before order
(cluster/sim/loop/order.py). A plan whose run has a feature that none had before is kept, and some
of the next plans are mutations of kept ones (plan_mutation.py), preferably of those with what is
rare; a share stays drawn at random. After AFL and Mallory, for plans in place of inputs.

The plan of a number depends on what the numbers ``LAG`` and more before it showed, and on nothing
that comes later, so a search has the same plans with one worker as with many, and again when it
goes on where it was stopped.

A directory keeps a corpus between nights: a plan a file, named by its content. A search runs them
first, so they say what they show with today's code, and writes back the fewest that together show
all that was shown. Corpora are merged by copying files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shalott.core.plan import Plan, decode_plan, dump_plan
from shalott.core.rng import Stream
from shalott.harness.search.door import Plans
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Place
from shalott.harness.search.plan_mutation import mutate
from shalott.harness.search.probes import Features, unpacked

DRAWN_SHARE = 0.3  # of a guided search's plans: at random
LAG = 32
LOOKS = 12  # at features, of which the rarest is gone on from


@dataclass(slots=True)
class Entry:
    """A plan and what its run showed; ``cpu_s`` is what that cost."""

    plan: Plan
    features: Features
    cpu_s: float


@dataclass(slots=True)
class Corpus:
    """``runs``: in how many runs each feature was. ``holders``: of each feature the entry that
    showed it most cheaply."""

    entries: list[Entry] = field(default_factory=list)
    runs: dict[int, int] = field(default_factory=dict)
    holders: dict[int, int] = field(default_factory=dict)
    _known: list[int] = field(default_factory=list)  # features, in the order of their coming

    def learn(self, plan: Plan, features: Features, cpu_s: float) -> None:
        """Keep the plan if its run showed something new, or much more cheaply."""
        fresh = sorted(each for each in features if each not in self.runs)
        for each in features:
            self.runs[each] = self.runs.get(each, 0) + 1
        cheaper = [
            each
            for each in features
            if each in self.holders and cpu_s < 0.5 * self.entries[self.holders[each]].cpu_s
        ]
        if fresh or cheaper:
            self.entries.append(Entry(plan, features, cpu_s))
            place = len(self.entries) - 1
            self.holders |= dict.fromkeys((*fresh, *cheaper), place)
            self._known += fresh

    def choose(self, rng: Stream) -> Entry:
        """One that shows something rare. There must be an entry."""
        looked = [rng.choice(self._known) for _ in range(LOOKS)]
        rarest = min(looked, key=lambda each: (self.runs[each], each))
        return self.entries[self.holders[rarest]]

    def minimal(self) -> list[Entry]:
        """Few entries that show all that was shown: the one with most that is missing, and so on
        (the greedy set cover)."""
        left = set(self.runs)
        waiting, chosen = list(self.entries), list[Entry]()
        while left and waiting:
            best = max(waiting, key=lambda each: (len(left & each.features), -each.cpu_s))
            if not left & best.features:
                break
            chosen.append(best)
            waiting.remove(best)
            left -= best.features
        return chosen


class Guide:
    """The plans of a search that learns from its runs; see the module. ``drawn_share``: of plans
    that are drawn at random; with 1.0 it learns and makes no use of it."""

    def __init__(
        self,
        drawn: Plans,
        seeds: Sequence[int],
        kept: Sequence[Plan] = (),
        *,
        drawn_share: float = DRAWN_SHARE,
    ) -> None:
        self.corpus = Corpus()
        self._drawn = drawn
        self._seeds = seeds
        self._places: Mapping[int, int] = {seed: place for place, seed in enumerate(seeds)}
        self._kept = kept
        self._drawn_share = drawn_share
        self._plans: list[Plan] = []  # by place
        self._reports: dict[int, SeedReport] = {}  # by place, that are not learned from yet
        self._learned = 0

    def add(self, report: SeedReport) -> None:
        """A number was run, in any order."""
        self._reports[self._places[report.seed]] = report

    def plan(self, seed: int) -> Plan | None:
        """The number's plan; None while it depends on runs under way."""
        place = self._places[seed]
        while len(self._plans) <= place:
            if not self._learn(len(self._plans) - LAG + 1):
                return None
            self._plans.append(self._next(len(self._plans)))
        return self._plans[place]

    def finish(self) -> tuple[Corpus, Sequence[Plan]]:
        """All that was learned, from runs that are not waited for too; and the kept plans among
        those that were run."""
        for place in sorted(self._reports):
            if place < len(self._plans):
                self._take(place)
        return self.corpus, self._kept[: len(self._plans)]

    def _learn(self, upto: int) -> bool:
        while self._learned < upto:
            if self._learned not in self._reports:
                return False
            self._take(self._learned)
            self._learned += 1
        return True

    def _take(self, place: int) -> None:
        report = self._reports.pop(place)
        if report.features:
            self.corpus.learn(self._plans[place], unpacked(report.features), report.wall_s)

    def _next(self, place: int) -> Plan:
        if place < len(self._kept):
            return self._kept[place]
        seed = self._seeds[place]
        fresh = self._drawn.plan(seed)
        rng = Stream(seed, "guide")
        if not self.corpus.entries or rng.random() < self._drawn_share:
            return fresh
        parent, other = self.corpus.choose(rng), self.corpus.choose(rng)
        return mutate(parent.plan, fresh=fresh, other=other.plan, seed=seed)


# -- kept ------------------------------------------------------------------------------------------


def read_corpus(place: Place, *, system: str, profile: str) -> list[Plan]:
    """The plans that are of this system and profile, by name. Raises UsageError, StoreError."""
    names = [each for each in place.names() if each.endswith(".json") and "/" not in each]
    plans = [decode_plan(place.read(name) or b"", f"{place}/{name}") for name in names]
    return [plan for plan in plans if (plan.system.name, plan.system.profile) == (system, profile)]


def write_corpus(place: Place, entries: Iterable[Entry], before: Iterable[Plan]) -> int:
    """In place of those that were there before. Returns how many there are. Raises StoreError."""
    files = dict(_files(entry.plan for entry in entries))
    for name, text in files.items():
        place.write(name, text)
    for name in sorted(dict(_files(before)).keys() - files.keys()):
        place.remove(name)
    return len(files)


def _files(plans: Iterable[Plan]) -> Iterator[tuple[str, bytes]]:
    for plan in plans:
        text = dump_plan(plan)
        yield f"{hashlib.blake2b(text, digest_size=8).hexdigest()}.json", text
