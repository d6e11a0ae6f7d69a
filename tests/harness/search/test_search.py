"""Search: seeds handed out, findings told apart and kept, campaigns resumed, orderly ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from shalott.core.errors import UsageError
from shalott.core.plan import load_plan
from shalott.harness.cli.main import run_command
from shalott.harness.cli.search import closing_lines
from shalott.harness.run.simulation_record import load_record
from shalott.harness.run.store import RunDirectory
from shalott.harness.scenarios.catalogue import SCENARIOS
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.harness.search import run_search as at_work_module
from shalott.harness.search import search as search_module
from shalott.harness.search.campaign import Header, open_campaign
from shalott.harness.search.door import DrawnPlans, Simulate, SimulatedRuns
from shalott.harness.search.findings import SeedReport
from shalott.harness.search.place import Directory
from shalott.harness.search.repeats import is_repeated
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import Search, SearchRequest, parse_seeds, plan_search
from shalott.harness.search.summary import Summary, exit_code
from shalott.harness.search.workers import Job, Task, WorkerPool
from tests.world.harness.inline_pool import Backwards
from tests.world.harness.toy_simulation import (
    loses,
    simulate_mortal,
    simulate_toy,
    simulate_unknown,
    simulate_wobbling,
)

pytestmark = pytest.mark.unit

SUBJECT = Subject(profile="upstream", name="toy", swarm=USUAL.but(fault_share=0.6))


@dataclass
class Quiet:
    """A watch that remembers, and may do something when it has seen enough."""

    said: list[str] = field(default_factory=list)
    on_show: Callable[[Tally], None] = lambda tally: None

    def show(self, tally: Tally) -> None:
        self.on_show(tally)

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes."""
    monkeypatch.setattr(at_work_module, "WorkerPool", Backwards)


def toy_search(seeds: str, *, title: str = "", anomaly: str = "") -> Search:
    """A search of the toy; for ``anomaly`` only, if there is one."""
    return Search(
        subject=SUBJECT,
        seeds=parse_seeds(seeds),
        seeds_text=seeds,
        title=title,
        anomaly=anomaly,
        ends=bool(anomaly),
    )


def run(
    store: Path,
    seeds: str = "30",
    simulate: Simulate = simulate_toy,
    *,
    jobs: int = 2,
    watch: Quiet | None = None,
    search: Search | None = None,
    **flags: object,
) -> Summary:
    request = SearchRequest(jobs=jobs, store=str(store), **flags)  # type: ignore[arg-type]
    summary, place = run_search(
        search or toy_search(seeds),
        request,
        SimulatedRuns(simulate),
        watch or Quiet(),
        command="shalott search",
    )
    stored = msgspec.json.decode(place.read("summary.json") or b"", type=Summary)
    assert stored == summary
    return summary


def failing_seeds(seeds: range) -> list[int]:
    return [seed for seed in seeds if loses(draw_plan(SUBJECT, seed))]


# -- with processes --------------------------------------------------------------------------------


@pytest.mark.explore
def test_processes_find_keep_and_repeat(tmp_path: Path) -> None:
    summary = run(tmp_path, "25", keep=2)
    expected = failing_seeds(range(1, 26))
    assert summary.ran == 25
    assert list(summary.classes["lost"].seeds) == expected
    assert len(summary.classes["lost"].kept) == 2
    assert summary.invalid == len(expected)
    assert summary.repeated >= 2
    assert not summary.mismatches
    assert exit_code(summary) == 1
    for name in summary.classes["lost"].kept:
        place = RunDirectory(tmp_path / "search" / "toy" / name)
        plan = load_plan(place.path / "plan.json")
        record = load_record(place.path / "plan.json")
        assert loses(plan)
        assert record is not None
        assert record.digest == simulate_toy(plan).digest
        assert {"results.json", "report.html", "junit.xml", "history.parquet"} <= {
            path.name for path in place.path.iterdir()
        }


@pytest.mark.explore
def test_processes_that_disagree_are_told_and_end_with_255(tmp_path: Path) -> None:
    summary = run(tmp_path, "12", simulate_wobbling, jobs=1)  # the repetition has its own process
    assert summary.repeated > 0
    assert len(summary.mismatches) == summary.repeated
    assert exit_code(summary) == 255
    assert any(
        line.startswith("  not deterministic: seed ")
        for line in closing_lines(summary, Directory(tmp_path))
    )


@pytest.mark.explore
def test_a_worker_that_dies_costs_its_own_seed_only(tmp_path: Path) -> None:
    summary = run(tmp_path, "8", simulate_mortal)
    assert summary.ran == 8
    assert set(summary.errors) == {"3", "5"}
    assert "exit code 9" in summary.errors["3"]
    assert "KeyError: 'no such thing'" in summary.errors["5"]
    assert exit_code(summary) == 255


def test_a_seed_that_never_ends_is_given_up() -> None:
    job = Job(DrawnPlans(SUBJECT), SimulatedRuns(simulate_toy), code="another")
    with WorkerPool(job, 1, seed_limit_s=0) as pool:
        pool.hand_out(lambda worker: Task(1))
        (answer,) = [*pool.answers(0), *pool.answers(0)][:1]
        assert answer.report.error == "it had not ended after 0 s"
        assert pool.busy == 0


# -- in this process -------------------------------------------------------------------------------


@pytest.mark.explore
@pytest.mark.usefixtures("inline")
def test_the_first_seed_in_order_is_found_whatever_ends_first(tmp_path: Path) -> None:
    expected = failing_seeds(range(1, 101))[0]
    for jobs in (1, 2, 7, 50):
        ending = toy_search("100", anomaly="lost", title="L0")
        summary = run(tmp_path / str(jobs), search=ending, jobs=jobs)
        assert (summary.found_seed, summary.found_after) == (expected, expected)
        assert exit_code(summary) == 1
        first = next(closing_lines(summary, Directory(tmp_path)))
        assert first == f"L0: found after {expected} seeds (lost in seed {expected})."


@pytest.mark.usefixtures("inline")
def test_what_is_found_counts_from_the_ranges_first_seed(tmp_path: Path) -> None:
    expected = failing_seeds(range(500, 600))[0]
    ending = toy_search("500-599", anomaly="lost", title="L0")
    summary = run(tmp_path, search=ending)
    assert (summary.found_seed, summary.found_after) == (expected, expected - 499)


@pytest.mark.usefixtures("inline")
def test_another_anomaly_does_not_end_a_search(tmp_path: Path) -> None:
    ending = toy_search("20", anomaly="diverged", title="L0")
    summary = run(tmp_path, search=ending)
    assert summary.ran == 20
    assert summary.found_after is None
    assert (
        next(closing_lines(summary, Directory(tmp_path)))
        == "L0: diverged was not found in 20 seeds."
    )
    assert exit_code(summary) == 1  # for what else was found


@pytest.mark.explore
@pytest.mark.usefixtures("inline")
def test_the_same_command_goes_on_and_a_wider_one_too(tmp_path: Path) -> None:
    first = run(tmp_path, "20")
    ran: list[int] = []

    def counting(watch: Quiet) -> Quiet:
        watch.on_show = lambda tally: ran.append(tally.run_now)
        return watch

    watch = counting(Quiet())
    again = run(tmp_path, "20", watch=watch)
    assert ran == []
    assert watch.said == ["20 seeds were run before; going on."]
    assert again.classes == first.classes
    assert again.repeated == first.repeated
    wider = run(tmp_path, "30", watch=counting(Quiet()))
    assert ran[-1] == 10
    assert wider.ran == 30
    assert list(wider.classes["lost"].seeds) == failing_seeds(range(1, 31))


@pytest.mark.usefixtures("inline")
def test_fresh_sets_the_old_campaign_aside(tmp_path: Path) -> None:
    run(tmp_path, "5")
    watch = Quiet()
    run(tmp_path, "5", watch=watch, fresh=True)
    assert watch.said[0] == "A campaign begins anew: --fresh was given."
    assert sorted(path.name for path in (tmp_path / "search").iterdir()) == ["toy", "toy.1"]


@pytest.mark.usefixtures("inline")
def test_other_code_begins_a_campaign_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, "5")
    monkeypatch.setattr(search_module, "code_fingerprint", lambda: "other")
    watch = Quiet()
    run(tmp_path, "5", watch=watch)
    assert watch.said[0] == "A campaign begins anew: the code has changed since."


@pytest.mark.usefixtures("inline")
def test_a_torn_last_line_is_run_again(tmp_path: Path) -> None:
    run(tmp_path, "6")
    log = tmp_path / "search" / "toy" / "campaign.jsonl"
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    summary = run(tmp_path, "6")
    assert summary.ran == 6
    assert sorted(log.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_broken_line_is_one_clear_sentence(tmp_path: Path) -> None:
    header = Header(subject="s", code="c")
    open_campaign(Directory(tmp_path), "x", header, fresh=False).close()
    log = tmp_path / "search" / "x" / "campaign.jsonl"
    log.write_bytes(log.read_bytes() + b"what is this\n")
    with pytest.raises(UsageError, match=r"line 2, can't be read .*: begin anew with --fresh$"):
        open_campaign(Directory(tmp_path), "x", header, fresh=False)


def test_two_searches_do_not_write_one_campaign(tmp_path: Path) -> None:
    header = Header(subject="s", code="c")
    campaign = open_campaign(Directory(tmp_path), "x", header, fresh=False)
    for fresh in (False, True):
        with pytest.raises(UsageError, match=r"^another search is at work in "):
            open_campaign(Directory(tmp_path), "x", header, fresh=fresh)
    campaign.close()
    open_campaign(Directory(tmp_path), "x", header, fresh=False).close()


@pytest.mark.usefixtures("inline")
def test_a_signal_ends_it_in_order_and_the_next_command_goes_on(tmp_path: Path) -> None:
    def interrupt(tally: Tally) -> None:
        if tally.run_now == 4:
            os.kill(os.getpid(), signal.SIGINT)

    summary = run(tmp_path, "20", watch=Quiet(on_show=interrupt))
    assert summary.interrupted
    assert 4 <= summary.ran < 20
    assert exit_code(summary) in (1, 2)
    assert run(tmp_path, "20").ran == 20


@pytest.mark.usefixtures("inline")
def test_a_time_limit_hands_out_no_new_seed(tmp_path: Path) -> None:
    summary = run(tmp_path, "100000", time_limit="50ms")
    assert 0 < summary.ran < 100_000
    assert not summary.interrupted


@pytest.mark.usefixtures("inline")
def test_unknown_is_neither_valid_nor_a_finding(tmp_path: Path) -> None:
    summary = run(tmp_path, "4", simulate_unknown)
    assert (summary.valid, summary.invalid, summary.unknown) == (0, 0, 4)
    assert summary.unknown_seeds["1"] == ("Too few operations.",)
    assert not summary.classes
    assert exit_code(summary) == 2


@pytest.mark.usefixtures("inline")
def test_events_are_counted_and_those_never_seen_are_named(tmp_path: Path) -> None:
    summary = run(tmp_path, "4")
    assert summary.sometimes["client_ok"].runs == 4
    assert summary.sometimes["client_ok"].times == 28
    assert "promoted" not in summary.never
    assert {"demoted", "sync_interrupted", "autoheal", "paused", "fault_power"} <= set(
        summary.never
    )


def test_about_one_seed_in_twenty_is_repeated() -> None:
    assert 400 < sum(is_repeated(seed) for seed in range(10_000)) < 600


# -- what is asked for -----------------------------------------------------------------------------


def test_seeds_are_a_number_or_a_range() -> None:
    assert parse_seeds("3") == range(1, 4)
    assert parse_seeds("5000-5999") == range(5000, 6000)
    assert parse_seeds("1,000") == range(1, 1001)
    for text in ("", "x", "0", "9-8", "1-", "-3", "1.5"):
        with pytest.raises(UsageError, match=r"give how many, such as 1000, or a range"):
            parse_seeds(text)


def test_a_bug_brings_its_scenario_and_its_budget() -> None:
    search = plan_search(SearchRequest(bug="KB-RMQ-22"))
    assert search.subject.bugs == ("KB-RMQ-22",)
    budget = SCENARIOS["KB-RMQ-22"].seed_budget
    assert (search.anomaly, search.ends, len(search.seeds)) == ("lost", True, budget)
    assert plan_search(SearchRequest(bug="KB-RMQ-22", seeds="7-9")).seeds == range(7, 10)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--bug", "KB-RMQ-999"), "there is no known bug KB-RMQ-999"),
        (("--scenario", "L99"), "there is no scenario L99"),
        (("--seeds", "many"), "--seeds many: give how many, such as 1000, or a range: 5000-5999"),
        (("--profile", "reckless"), "unknown profile reckless: choose one of upstream, safe"),
        (("--system", "kafka"), "unknown system kafka: choose one of compose, controller, dledger"),
        (("--system", "rabbitmq"), "rabbitmq has no simulation: search --system "),
        (("--time-limit", "soon"), "--time-limit soon: give a time above 0"),
        (("--bug", "KB-RMQ-22", "--scenario", "L1"), "give --bug or --scenario, not both"),
        (
            ("--scenario", "L1", "--profile", "safe"),
            "L1 is about upstream: leave --profile safe out",
        ),
        (("--jobs", "-1"), "give 1 or more --jobs"),
    ],
)
def test_bad_input_is_one_clear_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_command(["search", *arguments, "--store", str(tmp_path / "store")])
    told = capsys.readouterr().err
    assert code == 254
    assert told.startswith(f"shalott: {sentence}")
    assert told.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_report_of_a_run_survives_the_log() -> None:
    report = SeedReport(seed=1, valid="unknown", reasons=("x",), sometimes={"a": 1}, error="y")
    assert msgspec.json.decode(msgspec.json.encode(report), type=SeedReport) == report
