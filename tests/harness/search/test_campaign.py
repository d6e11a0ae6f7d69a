"""Campaigns on real nodes, with runs by a script: what counts, what is run again, what goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from shalott.harness.cli.search import closing_lines
from shalott.harness.scenarios.swarm import Subject
from shalott.harness.search import run_search as at_work_module
from shalott.harness.search.campaign import open_campaign
from shalott.harness.search.failure_rate import Rule
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Directory
from shalott.harness.search.real_search import REAL, RealSearch
from shalott.harness.search.repeats import RateRepeats
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import SearchRequest, parse_seeds
from shalott.harness.search.summary import Summary, exit_code
from tests.world.harness.inline_pool import Backwards
from tests.world.harness.toy_real import (
    BROKEN,
    FAILS,
    PASSES,
    STARVED,
    UNKNOWN,
    ScriptedRuns,
    report_for,
    script,
)

pytestmark = pytest.mark.unit

SUBJECT = Subject(system="controller", profile="upstream", swarm=REAL, name="toy", cluster="local")


@dataclass
class Quiet:
    said: list[str] = field(default_factory=list)
    interrupts_after: int | None = None

    def show(self, tally: Tally) -> None:
        if self.interrupts_after is not None and tally.run_now >= self.interrupts_after:
            raise Killed

    def say(self, line: str) -> None:
        self.said.append(line)


class Killed(BaseException):
    """What no search catches."""


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes."""
    monkeypatch.setattr(at_work_module, "WorkerPool", Backwards)


def search(
    store: Path,
    runs: ScriptedRuns,
    seeds: str = "4",
    *,
    most: int = 5,
    keep: int = 3,
    watch: Quiet | None = None,
    time_limit: str = "",
) -> Summary:
    planned = RealSearch(
        subject=SUBJECT,
        seeds=parse_seeds(seeds),
        seeds_text=seeds,
        cluster="local",
        rule=Rule(most=most),
    )
    request = SearchRequest(store=str(store), jobs=1, keep=keep, time_limit=time_limit)
    summary, place = run_search(planned, request, runs, watch or Quiet(), command="shalott search")
    stored = msgspec.json.decode(place.read("summary.json") or b"", type=Summary)
    assert stored == summary
    assert list(closing_lines(summary, place))
    return summary


def test_a_finding_is_run_again_until_its_rate_is_clear(tmp_path: Path) -> None:
    runs = ScriptedRuns(script(PASSES, FAILS, FAILS, FAILS, FAILS, PASSES))
    summary = search(tmp_path, runs)
    assert [again for _, again in runs.ran] == [False, False, True, True, True, False, False]
    assert {seed for seed, again in runs.ran if again} == {2}
    assert summary.real is not None
    rate = summary.real.rates["2"]
    # Three of three, and not four of four: the run that found it was chosen because it failed.
    assert (rate.kind, rate.failed, rate.ran, rate.often) == ("lost", 3, 3, True)
    assert exit_code(summary) == 1
    assert runs.closed == 1


def test_a_finding_that_does_not_come_again_is_told_so(tmp_path: Path) -> None:
    summary = search(tmp_path, ScriptedRuns(script(FAILS, PASSES)), "1")
    assert summary.real is not None
    rate = summary.real.rates["1"]
    assert (rate.failed, rate.ran, rate.often) == (0, 3, False)


def test_an_unclear_rate_costs_no_more_runs_than_were_allowed(tmp_path: Path) -> None:
    runs = ScriptedRuns(script(FAILS, PASSES, FAILS, PASSES, FAILS, PASSES))
    summary = search(tmp_path, runs, "1", most=4)
    assert summary.real is not None
    rate = summary.real.rates["1"]
    assert (rate.failed, rate.ran, rate.often) == (2, 4, None)
    assert len(runs.ran) == 1 + 4


def test_what_a_starved_harness_saw_is_no_finding(tmp_path: Path) -> None:
    """Its checkers say that messages were lost; nobody believes them."""
    runs = ScriptedRuns(script(STARVED, PASSES, BROKEN, UNKNOWN))
    summary = search(tmp_path, runs)
    assert (summary.valid, summary.invalid, summary.unknown) == (1, 0, 1)
    assert summary.real is not None
    assert list(summary.real.starved) == ["1"]
    assert list(summary.errors) == ["3"]
    assert not summary.classes
    assert not any(again for _, again in runs.ran)
    assert not (tmp_path / "search" / "toy" / "findings").exists()
    assert exit_code(summary) == 2


def test_a_starved_repetition_says_nothing_of_the_rate(tmp_path: Path) -> None:
    runs = ScriptedRuns(script(FAILS, STARVED, BROKEN, FAILS, FAILS, FAILS))
    summary = search(tmp_path, runs, "1")
    assert summary.real is not None
    rate = summary.real.rates["1"]
    assert (rate.failed, rate.ran, rate.void, rate.often) == (3, 3, 2, True)


def test_only_broken_runs_make_a_broken_search(tmp_path: Path) -> None:
    assert exit_code(search(tmp_path, ScriptedRuns(script(BROKEN)), "2")) == 255


def test_the_same_command_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Within the repetitions of a finding, too: what was run is not run again."""
    first = ScriptedRuns(script(PASSES, FAILS, FAILS))
    with pytest.raises(Killed):
        search(tmp_path, first, watch=KilledInRepeats(first))
    assert first.ran == [(1, False), (2, False), (2, True)]
    second = ScriptedRuns(script(FAILS, FAILS, PASSES))
    summary = search(tmp_path, second)
    assert second.ran == [(2, True), (2, True), (3, False), (4, False)]
    assert summary.ran == 4
    assert summary.real is not None
    assert summary.real.rates["2"].failed == 3


@dataclass
class KilledInRepeats(Quiet):
    """When the first repetition has ended."""

    runs: ScriptedRuns | None = None

    def __init__(self, runs: ScriptedRuns) -> None:
        super().__init__()
        self.runs = runs

    def show(self, tally: Tally) -> None:
        if tally.repeated:
            raise Killed


def test_a_budget_outlives_a_kill_and_is_whole_again_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    slow = ScriptedRuns(clock.taking(40.0, script(PASSES)))
    with pytest.raises(Killed):
        search(tmp_path, slow, "9", time_limit="100s", watch=Quiet(interrupts_after=2))
    assert len(slow.ran) == 2  # 80 s of 100
    summary = search(tmp_path, slow, "9", time_limit="100s")
    assert summary.ran == 3  # one more began at 80 s, and ended at 120 s
    assert search(tmp_path, slow, "9", time_limit="100s").ran == 6


def test_a_spent_budget_begins_no_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    runs = ScriptedRuns(clock.taking(60.0, script(FAILS)))
    summary = search(tmp_path, runs, "9", time_limit="100s")
    assert runs.ran == [(1, False), (1, True)]
    assert summary.real is not None
    assert summary.real.rates["1"].ran == 1
    summary = search(tmp_path, runs, "9", time_limit="100s")  # which the next command takes up
    assert runs.ran == [(1, False), *[(1, True)] * 3]
    assert summary.real is not None
    assert summary.real.rates["1"].often is True


class Clock:
    """Of what is at work: it moves when a run says that it took time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(at_work_module.time, "monotonic", lambda: self.now_s)

    def taking(self, seconds: float, outcome):  # type: ignore[no-untyped-def]
        def run(plan, before):  # type: ignore[no-untyped-def]
            self.now_s += seconds
            return outcome(plan, before)

        return run


def test_no_finding_is_repeated_by_more_workers_than_the_rule_allows(tmp_path: Path) -> None:
    campaign = open_campaign(Directory(tmp_path), "toy", _header(), fresh=False)
    repeats = RateRepeats(campaign, Rule(most=2))
    repeats.add(report_for(7, FAILS), 1, is_kept=True)
    assert [repeats.take(worker) for worker in (1, 2, 3)] == [7, 7, None]
    repeats.record(report_for(7, BROKEN))
    assert repeats.take(3) == 7  # one of them proved nothing
    campaign.close()


def test_findings_that_are_not_kept_are_not_repeated(tmp_path: Path) -> None:
    campaign = open_campaign(Directory(tmp_path), "toy", _header(), fresh=False)
    repeats = RateRepeats(campaign, Rule())
    for report in (report_for(1, FAILS), report_for(2, PASSES)):
        repeats.add(report, 1, is_kept=False)
    repeats.add(report_for(3, STARVED), 1, is_kept=True)
    assert repeats.is_empty
    campaign.close()


def _header():  # type: ignore[no-untyped-def]
    return RealSearch(subject=SUBJECT, seeds=range(1, 2), seeds_text="1").header


def test_an_old_report_has_no_real_facts() -> None:
    stored = b'{"seed":1,"valid":true,"digest":"ab"}'
    assert msgspec.json.decode(stored, type=SeedReport).real is None
