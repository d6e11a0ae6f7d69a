"""What explains a breach of a promise to consumer groups, and what does not."""

from __future__ import annotations

import pytest

from tests.checkers.groups.telling import CONCURRENT, Told, broken
from tests.checkers.groups.test_planted_groups import (
    early_retry,
    retry_that_never_came,
    set_back_too_far,
    stuck,
)
from tests.checkers.groups.test_sound_groups import committed_in_trouble, failed_over, rebalanced

pytestmark = pytest.mark.unit


def test_a_failover_excuses_no_more_than_its_copies_are_old() -> None:
    """Of the same history: with a shorter interval of copying it is no excuse."""
    told = failed_over()
    assert broken(told) == {}
    quick = Told(CONCURRENT, offsets_follow_ms=1000, keeps_acknowledged=True)
    quick.story, quick.logs, quick.offsets = failed_over().story, told.logs, told.offsets
    commits = [row for row in quick.story.rows if row["f"] == "commit"]
    commits[1]["invoke_ns"] -= 14_000_000_000  # 20 was committed at 14 s, 16 s before the failover
    commits[1]["complete_ns"] -= 14_000_000_000
    assert set(broken(quick)) == {"group-redelivery", "offsets-forward"}


def test_logs_that_may_be_cut_promise_no_offsets() -> None:
    told = Told(CONCURRENT, keeps_acknowledged=False)
    bad = set_back_too_far()
    told.story, told.logs, told.offsets = bad.story, bad.logs, bad.offsets
    assert broken(told) == {}


def test_a_clock_that_is_wrong_explains_an_early_retry() -> None:
    told = early_retry()
    told.story.fault(1, "clock-skew", 6.0, 9.0, nodes=("n1",))
    assert broken(told) == {}


def test_a_stall_of_the_harness_is_nobodys_liveness() -> None:
    told = stuck()
    told.story.stall(62.5, 64.9)
    assert broken(told) == {"group-liveness": ()}  # not known


def test_without_events_a_fault_excuses_what_a_failover_does() -> None:
    told = Told(CONCURRENT, master=False).sends(6).member("c.1").member("c.2", 8.0)
    told.assigned("c.1", end=9.0, ended="rebalanced").consumes("c.1", 0, 6, 2.0)
    told.commits("c.1", 2, 2.5).commits("c.1", 6, 3.0)
    told.assigned("c.2", 9.5, offset=2).commits("c.2", 6, 12.0)
    assert set(broken(told)) == {"offsets-forward"}
    again = Told(CONCURRENT, master=False)
    again.story = Told(CONCURRENT, master=False).story
    for row in told.story.rows:
        if row["f"] not in ("poll", "final-offset", "phase"):
            again.story.rows.append(row)
    again.logs, again.offsets = told.logs, told.offsets
    again.story.fault(1, "kill", 7.0, 8.0, nodes=("n1",))
    assert broken(again) == {}


def test_rows_that_are_not_as_they_should_be_are_counted() -> None:
    told = rebalanced()
    told.story.row("deliver", 20.0, value=100, offset=0, extra={"member": "x", "group": "nobody's"})
    assert set(broken(told)) == {"group-fates"}


def test_another_master_goes_by_another_clock() -> None:
    told = early_retry().failover(6.5)
    assert "retry-delay" not in broken(told)


def test_what_was_stored_in_a_future_is_due_when_the_clock_is_right() -> None:
    """Of the retry that never came: a clock that was wrong until the end explains it, one that has
    been right for long does not."""
    late = retry_that_never_came()
    late.story.fault(1, "clock-jump", 6.0, 58.0, nodes=("n1",))
    assert broken(late) == {"retry-delay": ("retry-lost",)}
    wrong = retry_that_never_came()
    wrong.story.fault(1, "clock-jump", 6.0, 62.0, nodes=("n1",))
    assert broken(wrong) == {"group-liveness": ()}  # it may just have come too late


def test_what_was_committed_in_quiet_is_not_taken_back() -> None:
    """As committed in trouble, without the trouble."""
    told = committed_in_trouble()
    told.story.rows = [row for row in told.story.rows if row["f"] != "fault"]
    told.story.rows = [row for row in told.story.rows if row["f"] != "partition"]
    assert set(broken(told)) == {"group-redelivery", "offsets-forward"}
