"""Shrinking by repetition, with runs by a script: what is kept, what it costs, what goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.capabilities import MOST
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan, load_plan
from shalott.harness.scenarios.swarm import Subject, draw_plan
from shalott.harness.search.failure_rate import Rule, Trials
from shalott.harness.search.real_search import REAL
from shalott.harness.shrinking import real_shrink as shrinking_module
from shalott.harness.shrinking.oracle import LedgerHeader, open_ledger
from shalott.harness.shrinking.real_shrink import ShrinkRequest, ShrinkSummary, shrink_real
from tests.world.harness.inline_pool import Backwards
from tests.world.harness.toy_real import BROKEN, FAILS, PASSES, STARVED, ScriptedRuns, script

pytestmark = pytest.mark.explore


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, and nobody looks what this machine can do."""
    monkeypatch.setattr(shrinking_module, "WorkerPool", Backwards)
    monkeypatch.setattr(shrinking_module, "capabilities_of", lambda plan: MOST["local"])


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A plan with four faults, two of which matter."""
    subject = Subject(
        system="controller",
        profile="upstream",
        swarm=REAL.but(schedule=faults(), time_limit_ms=(40_000,)),
        cluster="local",
    )
    path = tmp_path / "plan.json"
    path.write_bytes(dump_plan(draw_plan(subject, 1)))
    return path


def faults() -> tuple[FaultAction, ...]:
    kinds = ("pause", "kill", "pause", "kill")
    return tuple(
        FaultAction(
            id=number,
            at_ms=4000 + 8000 * number,
            duration_ms=4000,
            kind=kind,
            target=f"n{number % 3 + 1}",
            nodes=(f"n{number % 3 + 1}",),
        )
        for number, kind in enumerate(kinds)
    )


def needs(*ids: int, rarely: int = 0) -> Callable[[Plan, int], str]:
    """A plan with these faults fails, but in every ``rarely``-th run; no other one does."""

    def outcome(plan: Plan, before: int) -> str:
        if not {*ids} <= {action.id for action in plan.faults}:
            return PASSES
        return PASSES if rarely and before % rarely == rarely - 1 else FAILS

    return outcome


def shrink(stored: Path, runs: ScriptedRuns, *, jobs: int = 1, **others: object) -> int:
    request = ShrinkRequest(path=stored, cluster="local", jobs=jobs, **others)  # type: ignore[arg-type]
    return shrink_real(request, runs)


def summary_of(stored: Path) -> ShrinkSummary:
    path = stored.with_name("minimal.trials.json")
    return msgspec.json.decode(path.read_bytes(), type=ShrinkSummary)


def minimal(stored: Path) -> Plan:
    return load_plan(stored.with_name("minimal.json"))


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_matters_is_left(stored: Path, jobs: int) -> None:
    assert shrink(stored, ScriptedRuns(needs(1, 2)), budget=400, jobs=jobs) == 0
    assert [action.id for action in minimal(stored).faults] == [1, 2]
    told = summary_of(stored)
    assert (told.before, told.after) == (Trials(failed=3, ran=3), Trials(failed=3, ran=3))
    assert told.anomaly == "lost"
    assert told.whole


def test_a_plan_that_passes_now_and_then_is_made_small_too(stored: Path) -> None:
    """Fails in four of five runs: no candidate with both faults is thrown away by one that
    passed."""
    runs = ScriptedRuns(needs(1, 2, rarely=5))
    assert shrink(stored, runs, budget=900) == 0
    assert [action.id for action in minimal(stored).faults] == [1, 2]


def test_a_candidate_that_fails_too_seldom_is_not_kept(stored: Path) -> None:
    """Without fault 3 the plan still fails, in one of three runs."""

    def outcome(plan: Plan, before: int) -> str:
        ids = {action.id for action in plan.faults}
        if {1, 3} <= ids:
            return FAILS
        return FAILS if 1 in ids and before % 3 == 0 else PASSES

    assert shrink(stored, ScriptedRuns(outcome), budget=900) == 0
    assert [action.id for action in minimal(stored).faults] == [1, 3]


def test_a_starved_run_decides_nothing(stored: Path) -> None:
    """All candidates look bad while the harness starves; none is kept for that."""

    first: list[Plan] = []

    def outcome(plan: Plan, before: int) -> str:
        first.append(plan)
        return FAILS if plan == first[0] else STARVED

    runs = ScriptedRuns(outcome)
    assert shrink(stored, runs, budget=60) == 0
    assert minimal(stored) == first[0]
    assert len(runs.ran) == 60 + 3


def test_a_plan_that_fails_too_seldom_is_refused(stored: Path) -> None:
    runs = ScriptedRuns(script(FAILS, PASSES))
    with pytest.raises(UsageError, match=r"lost in 0 of 3 .* lower --rate"):
        shrink(stored, runs)
    assert not stored.with_name("minimal.json").exists()
    with pytest.raises(UsageError, match="did not fail in 8 runs"):
        shrink(_copy(stored), ScriptedRuns(script(PASSES)))


def _copy(stored: Path) -> Path:
    other = stored.parent / "other" / "plan.json"
    other.parent.mkdir()
    other.write_bytes(stored.read_bytes())
    return other


def test_a_lower_rate_takes_what_is_rare(stored: Path) -> None:
    def outcome(plan: Plan, before: int) -> str:
        both = {1, 2} <= {action.id for action in plan.faults}
        return FAILS if both and before % 3 == 0 else PASSES

    with pytest.raises(UsageError, match="lower --rate"):
        shrink(stored, ScriptedRuns(outcome))
    runs = ScriptedRuns(outcome)
    other = _copy(stored)
    shrink(other, runs, budget=2000, rule=Rule(least_rate=0.2, most=12))
    assert [action.id for action in minimal(other).faults] == [1, 2]


def test_the_same_command_goes_on_after_a_kill(stored: Path) -> None:
    """It runs nothing twice, and comes to what it would have come to."""

    class Killed(BaseException):
        pass

    whole = ScriptedRuns(needs(1, 2))
    other = _copy(stored)
    shrink(other, whole, budget=400)

    first = ScriptedRuns(needs(1, 2))

    def outcome(plan: Plan, before: int) -> str:
        if len(first.ran) > 17:
            raise Killed
        return needs(1, 2)(plan, before)

    first.outcome = outcome
    with pytest.raises(Killed):
        shrink(stored, first, budget=400)
    assert load_plan(stored)  # the plan itself is never touched
    torn = stored.with_name("minimal.trials.jsonl")
    torn.write_bytes(torn.read_bytes() + b'{"line":"run","pl')
    second = ScriptedRuns(needs(1, 2))
    assert shrink(stored, second, budget=400) == 0
    assert minimal(stored) == minimal(other)
    assert len(second.ran) + 17 == len(whole.ran)


def test_the_budget_counts_what_an_earlier_command_ran(stored: Path) -> None:
    with pytest.raises(HarnessError, match="the budget was spent"):
        shrink(stored, ScriptedRuns(needs(1, 2)), budget=2)
    runs = ScriptedRuns(needs(1, 2))
    assert shrink(stored, runs, budget=12) == 0
    told = summary_of(stored)
    assert not told.whole
    assert told.runs == 12 + told.after.ran  # the smallest plan is run anew whatever is left


def test_broken_runs_are_told_and_end_at_last(stored: Path) -> None:
    with pytest.raises(UsageError, match="did not fail in 8 runs"):
        shrink(stored, ScriptedRuns(script(BROKEN)))


def test_a_ledger_of_another_plan_or_other_code_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "minimal.trials.jsonl"
    plan = draw_plan(Subject(), 1)
    header = LedgerHeader(plan="a", anomaly="", code="x")
    ledger = open_ledger(path, header)
    ledger.choose("lost")
    ledger.add(plan, "base", True, why="", seconds=1.5)
    again = open_ledger(path, header)
    assert (again.went_on, again.anomaly) == (1, "lost")
    assert again.trials(plan, "base") == Trials(failed=1, ran=1)
    assert again.trials(plan, "minimal") == Trials()
    other = open_ledger(path, LedgerHeader(plan="a", anomaly="", code="y"))
    assert (other.went_on, other.anomaly) == (0, "")
    assert (tmp_path / "minimal.trials.jsonl.1").exists()
