"""A search that learns: what it keeps and goes on from, and that both are the same each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shalott.core.plan import Plan
from shalott.core.rng import Stream
from shalott.harness.scenarios.swarm import draw_plan, plain_subject
from shalott.harness.search import run_search as at_work_module
from shalott.harness.search.corpus import LAG, Corpus, Guide, read_corpus
from shalott.harness.search.door import DrawnPlans, Lane, Ran
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Directory
from shalott.harness.search.probes import packed, unpacked
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import SearchRequest, plan_search
from shalott.harness.search.summary import Summary
from tests.world.harness.inline_pool import Backwards

pytestmark = pytest.mark.unit

SUBJECT = plain_subject("dledger", "upstream")
DEEP = 30  # so many faults of processes, which no drawn plan of these has


def depth(plan: Plan) -> int:
    return sum(action.kind in ("kill", "power", "pause", "stop") for action in plan.faults)


@dataclass(frozen=True)
class Ladder:
    """Runs whose features are how deep a plan goes: a search that goes on from what is new climbs
    it step by step."""

    limit_s = closes_within_s = 0.0

    def open(self, lane: Lane) -> Ladder:
        return self

    def run(self, number: int, plan: Plan, *, again: bool) -> Ran:
        found = depth(plan)
        bad = found >= DEEP
        return Ran(
            SeedReport(
                seed=number,
                valid=not bad,
                violations=("deep",) if bad else (),
                digest=str(hash(plan.seed) + found),
                wall_s=1.0,
                features=packed(range(1, found + 2)),
            )
        )

    def close(self) -> None:
        return


class Quiet:
    def show(self, tally: Tally) -> None:
        return

    def say(self, line: str) -> None:
        return


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work_module, "WorkerPool", Backwards)


def search(
    tmp_path: Path, seeds: str, *, jobs: int = 3, corpus: str = "corpus", store: str = "store"
) -> Summary:
    request = SearchRequest(
        system="dledger",
        profile="upstream",
        seeds=seeds,
        jobs=jobs,
        corpus=str(tmp_path / corpus) if corpus else "",
        store=str(tmp_path / store),
    )
    summary, _ = run_search(plan_search(request), request, Ladder(), Quiet(), command="search")
    return summary


def guided(reports: Iterable[int], count: int) -> list[Plan]:
    """The plans of a guide that hears of its runs in that order, as far as it may be asked."""
    guide, runner, plans = Guide(DrawnPlans(SUBJECT), range(count)), Ladder(), dict[int, Plan]()
    waiting = list(reports)
    while waiting:
        number = next(n for n in waiting if guide.plan(n) is not None)
        plan = guide.plan(number)
        assert plan is not None
        plans[number] = plan
        guide.add(runner.run(number, plan, again=False).report)
        waiting.remove(number)
    return [plans[number] for number in range(count)]


def test_what_was_learned_goes_deeper_than_what_is_drawn(tmp_path: Path) -> None:
    assert max(depth(draw_plan(SUBJECT, seed)) for seed in range(1, 201)) < DEEP
    assert search(tmp_path, "200", corpus="").classes == {}
    assert search(tmp_path, "200").classes["deep"].count > 3


def test_the_order_in_which_runs_end_changes_no_plan() -> None:
    count = 3 * LAG
    forward = guided(range(count), count)
    late = guided(sorted(range(count), key=lambda n: (n // LAG, -n)), count)
    assert forward == late
    drawn = [draw_plan(SUBJECT, number) for number in range(count)]
    assert sum(one != other for one, other in zip(forward, drawn, strict=True)) > LAG


def test_a_plan_waits_for_what_it_depends_on() -> None:
    guide = Guide(DrawnPlans(SUBJECT), range(100))
    assert guide.plan(LAG - 1) is not None and guide.plan(LAG) is None
    guide.add(SeedReport(seed=0, valid=True))
    assert guide.plan(LAG) is not None and guide.plan(LAG + 1) is None


def test_a_stopped_search_goes_on_with_the_same_plans(tmp_path: Path) -> None:
    whole = search(tmp_path, "120", store="whole", corpus="one")
    search(tmp_path, "50", store="parts", corpus="two")
    for path in (tmp_path / "two").iterdir():
        path.unlink()  # as if it had been killed: what it learned was not kept
    parts = search(tmp_path, "120", store="parts", corpus="two")
    assert parts.classes == whole.classes and not parts.mismatches
    names = [sorted(path.name for path in (tmp_path / each).iterdir()) for each in ("one", "two")]
    assert names[0] == names[1]


def test_the_next_search_begins_with_what_was_kept(tmp_path: Path) -> None:
    first = search(tmp_path, "200")
    kept = read_corpus(Directory(tmp_path / "corpus"), system="dledger", profile="upstream")
    assert first.corpus == len(kept) > 0 and max(map(depth, kept)) >= DEEP
    assert read_corpus(Directory(tmp_path / "corpus"), system="dledger", profile="safe") == []
    again = search(tmp_path, str(len(kept)), store="other")
    assert again.features >= first.features and again.classes["deep"].count


def test_a_minimal_corpus_shows_all_that_was_shown() -> None:
    corpus, rng = Corpus(), Stream(3, "features")
    plan = draw_plan(SUBJECT, 1)
    for _ in range(60):
        corpus.learn(plan, frozenset(rng.below(200) for _ in range(20)), rng.between(1, 3))
    corpus.learn(plan, frozenset(range(60)), 1.0)
    minimal = corpus.minimal()
    assert frozenset().union(*(each.features for each in minimal)) == corpus.runs.keys()
    assert len(minimal) < len(corpus.entries)


def test_what_is_rare_is_gone_on_from() -> None:
    corpus = Corpus()
    plain, rare = draw_plan(SUBJECT, 1), draw_plan(SUBJECT, 2)
    for _ in range(50):
        corpus.learn(plain, frozenset(range(20)), 1.0)
    corpus.learn(rare, frozenset(range(22)), 1.0)
    rng = Stream(1, "choose")
    chosen = [corpus.choose(rng).plan.seed for _ in range(100)]
    assert chosen.count(2) > 40


def test_features_are_kept_as_text() -> None:
    assert unpacked(packed([])) == frozenset()
    assert unpacked(packed([7, 2**32 - 1, 7])) == {7, 2**32 - 1}
