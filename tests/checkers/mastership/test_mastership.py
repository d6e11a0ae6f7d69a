"""Mastership: claimed and effective dual masters, epoch regressions, and what is none of them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.mastership.mastership import Mastership
from shalott.core.rng import Stream
from tests.checkers.histories import NODES, Story, ns

pytestmark = pytest.mark.unit


def check(story: Story, *, strict: bool = False, tolerance_ms: int = 100) -> Result:
    return Mastership(strict=strict, tolerance_ms=tolerance_ms).check(story.history())


def kinds(result: Result) -> list[str]:
    return [anomaly.kind for anomaly in result.anomalies]


def handover() -> Story:
    """n1 rules until it is killed at 10 s, n2 from 11 s; both acknowledge all the time."""
    story = Story().role("n1", 0, "master", 1).role("n2", 0.1, "mirror", 1)
    for tenth in range(1, 99):
        story.acked("n1", tenth / 10, tenth / 10 + 0.1, 1)
    story.fault(1, "kill", 10, 15, ["n1"]).event("n2", 11, "promoted", "master", 2)
    story.role("n2", 11, "master", 2)
    for tenth in range(111, 199):
        story.acked("n2", tenth / 10, tenth / 10 + 0.1, 2)
    story.role("n1", 16, "mirror", 3, incarnation=2)
    return story


def test_handover_after_a_kill_is_fine() -> None:
    result = check(handover(), strict=True)
    assert result.valid is True
    assert result.anomalies == () and result.notes == ()
    assert result.counts["tenure-count"] == 2


def test_a_master_rules_until_its_operator_restarts_it() -> None:
    """Its own log ends with its last word, long before."""
    story = Story().role("n1", 0, "master", 1).role("n2", 10, "master", 2)
    story.around("operator", 20, 24, extra={"restarted": ["n1"]})
    story.role("n1", 25, "mirror", 3, incarnation=2).role("n2", 40, "master", 2)
    result = check(story)
    assert kinds(result) == ["dual-master-claimed"]
    assert result.counts["claimed-ms-max"] == pytest.approx(10_000)


def test_the_wait_for_the_next_master_is_told() -> None:
    assert check(handover()).counts["takeover-ms-max"] == pytest.approx(1000)


def test_a_master_behind_a_partition_is_followed_by_another_one() -> None:
    story = Story().role("n1", 0, "master", 1).role("n2", 0.1, "slave", 1)
    links = [("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1")]
    story.fault(1, "partition-isolate-master", 6, 30, links=links)
    story.role("n2", 18.5, "master", 2).role("n1", 30, "slave", 2)
    assert check(story).counts["takeover-ms-max"] == pytest.approx(12_500)


@pytest.mark.parametrize(("begin", "end", "node"), [(10, 11, "n1"), (10, 20, "n3"), (13, 20, "n1")])
def test_what_the_fault_did_not_bring_about_is_no_takeover(
    begin: float, end: float, node: str
) -> None:
    """It was over before the next master, struck another node, or came later."""
    story = Story().role("n1", 0, "master", 1).fault(1, "kill", begin, end, [node])
    story.role("n2", 12, "master", 2).role("n1", 12, "slave", 2)
    assert check(story).counts["takeover-ms-max"] == 0


def test_nothing_to_judge_is_unknown() -> None:
    result = check(Story().enqueue(1, 1))
    assert result.valid == "unknown"
    assert "nothing was judged" in result.notes[0]


class TestClaimed:
    def both(self, until: float = 20) -> Story:
        story = Story().role("n1", 0, "master", 1).role("n2", 10, "master", 2)
        return story.role("n1", until, "mirror", 3).role("n2", 40, "master", 2)

    def test_claims_are_reported_and_leave_the_run_valid(self) -> None:
        result = check(self.both())
        assert result.valid is True
        assert kinds(result) == ["dual-master-claimed"]
        detail = result.anomalies[0].detail
        assert (detail["begin_ns"], detail["end_ns"]) == (ns(10), ns(20))
        assert detail["nodes"] == ["n1", "n2"]
        assert result.counts["claimed-ms-max"] == 10_000
        assert "no two nodes acknowledged" in result.notes[-1]

    def test_strict_makes_it_invalid(self) -> None:
        assert check(self.both(), strict=True).valid is False

    def test_evidence_are_the_rows_of_both_claims(self) -> None:
        story = self.both()
        rows = story.history().events.to_pylist()
        found = [rows[i] for i in check(story).anomalies[0].detail["events"]]
        assert [(row["node"], row["role"]) for row in found] == [("n1", "master"), ("n2", "master")]

    def test_the_fault_in_force_is_named(self) -> None:
        story = self.both().fault(3, "partition-halves", 5, 15)
        summary = check(story).anomalies[0].summary
        assert summary == (
            "n1 and n2 both claimed to be master of q for 10.00 s from 10.0 s, "
            "during 3 partition-halves"
        )

    @pytest.mark.parametrize(("overlap_s", "told"), [(0.09, 0), (0.11, 1)])
    def test_tolerance(self, overlap_s: float, told: int) -> None:
        assert len(check(self.both(10 + overlap_s)).anomalies) == told

    def test_other_queues_do_not_overlap(self) -> None:
        story = Story().role("n1", 0, "master").role("n2", 10, "master", group="other")
        assert check(story.role("n1", 30, "master")).anomalies == ()

    def test_a_killed_master_claims_nothing_after_its_death(self) -> None:
        story = Story().role("n1", 0, "master", 1).fault(1, "kill", 9, 30, ["n1"])
        story.role("n2", 10, "master", 2).role("n1", 31, "mirror", 3, incarnation=2)
        assert check(story.role("n2", 40, "master", 2)).anomalies == ()

    def test_a_crashed_master_claims_nothing_after_its_last_word(self) -> None:
        story = Story().role("n1", 0, "master", 1).role("n2", 10, "master", 2)
        story.role("n1", 31, "mirror", 3, incarnation=2).role("n2", 40, "master", 2)
        assert check(story).anomalies == ()

    def test_a_paused_minority_claims_nothing(self) -> None:
        story = Story().role("n1", 0, "master", 1).event("n1", 9, "paused", "paused", group="")
        story.role("n2", 10, "master", 2).role("n1", 30, "mirror", 3).role("n2", 40, "master", 2)
        assert check(story).anomalies == ()

    def test_a_suspended_process_claims_nothing_until_it_is_resumed(self) -> None:
        story = Story().role("n1", 0, "master", 1).fault(1, "pause", 9, 20, ["n1"])
        story.role("n2", 14, "master", 2).role("n2", 40, "master", 2)
        assert check(story.role("n1", 20.05, "mirror", 3)).anomalies == ()
        story.events.pop()
        result = check(story.role("n1", 22, "mirror", 3))
        assert kinds(result) == ["dual-master-claimed"]
        assert result.anomalies[0].detail["begin_ns"] == ns(20)

    def test_unanswered_polls_and_events_without_run_time_are_no_claims(self) -> None:
        story = Story().observe("n1", 1, None).observe("n2", 1, "master")
        story.role("n3", 0, "master").events[-1]["run_ns"] = None
        assert check(story).anomalies == ()


class TestObserved:
    def test_one_round_in_which_both_say_master(self) -> None:
        story = Story().observe("n1", 5, "master", 1).observe("n2", 5.02, "master", 2)
        result = check(story)
        assert kinds(result) == ["dual-master-claimed"]
        rows = story.history().ops.to_pylist()
        assert {rows[i]["node"] for i in result.anomalies[0].operations} == {"n1", "n2"}

    def test_answers_of_different_rounds_prove_nothing(self) -> None:
        story = Story().observe("n1", 5, "master", 1).observe("n2", 5.4, "master", 2)
        assert check(story).anomalies == ()

    def test_slow_answers_prove_nothing(self) -> None:
        story = Story().observe("n2", 5.02, "master", 2)
        claim = {"claims": [{"group": "q", "role": "master", "epoch": 1}]}
        story.around("observe", 4.9, 6, node="n1", extra=claim)
        assert check(story).anomalies == ()

    def test_polls_out_of_step_prove_it_by_the_answers_before_and_after(self) -> None:
        story = Story()
        for second in range(10):
            story.observe("n1", second, "master", 1).observe("n2", second + 0.5, "master", 2)
        result = check(story)
        assert kinds(result) == ["dual-master-claimed"]
        assert result.anomalies[0].detail["begin_ns"] == ns(0.51)
        assert result.anomalies[0].detail["end_ns"] == ns(9)

    def test_an_orderly_handover_is_none(self) -> None:
        story = Story()
        for second in range(10):
            story.observe("n1", second, "master" if second < 5 else "mirror", 1)
            story.observe("n2", second + 0.5, "mirror" if second < 5 else "master", 2)
        assert check(story, strict=True).valid is True


class TestEffective:
    def test_overlapping_acknowledgements_are_invalid(self) -> None:
        story = Story().role("n1", 0, "master", 1).role("n2", 5, "master", 2)
        for second in range(10):
            story.acked("n1", second, second + 0.1, 1)
        for second in range(6, 12):
            story.acked("n2", second, second + 0.1, 2)
        result = check(story)
        assert result.valid is False
        assert kinds(result) == ["dual-master-effective", "dual-master-claimed"]
        detail = result.anomalies[0].detail
        assert (detail["begin_ns"], detail["end_ns"]) == (ns(6), ns(9.1))

    def test_acknowledgements_are_timed_by_the_node_s_own_clock(self) -> None:
        story = Story().acked("n1", 1, 5, 1, boot=10_000).acked("n2", 4, 9, 2, boot=3)
        result = check(story)
        detail = result.anomalies[0].detail
        assert (detail["begin_ns"], detail["end_ns"]) == (ns(4), ns(5))

    def test_one_after_the_other_is_fine(self) -> None:
        story = Story().role("n1", 0, "master", 1).acked("n1", 1, 5, 1).acked("n2", 5, 9, 2)
        assert check(story, strict=True).valid is True

    def test_there_and_back_again_is_fine(self) -> None:
        story = Story().role("n1", 0, "master", 1).acked("n1", 1, 2, 1).role("n1", 3, "mirror", 2)
        story.acked("n2", 4, 5, 2).role("n1", 6, "master", 3).acked("n1", 7, 8, 3)
        assert check(story).valid is True

    def test_what_a_deposed_master_tells_late_does_not_make_it_rule_till_it_is_elected_again(
        self,
    ) -> None:
        """Its last line was gathered before it stepped down, and written after."""
        story = Story().role("n1", 0, "master", 1).acked("n1", 1, 2, 1).role("n1", 2.01, "slave", 1)
        story.acked("n1", 1.9, 2.02, 1).role("n2", 3, "master", 2).acked("n2", 4, 8, 2)
        story.role("n2", 8.5, "slave", 2).role("n1", 9, "master", 3).acked("n1", 10, 11, 3)
        assert check(story, strict=True).valid is True

    def test_a_deposed_master_that_goes_on_acknowledging_is_invalid(self) -> None:
        story = Story().role("n1", 0, "master", 1).acked("n1", 1, 2, 1).role("n1", 2, "slave", 1)
        story.role("n2", 3, "master", 2).acked("n2", 4, 8, 2)
        for tenth in range(25, 60):
            story.acked("n1", tenth / 10, tenth / 10 + 0.05, 1)
        assert "dual-master-effective" in kinds(check(story))

    def test_a_tenure_whose_epoch_moves_on_is_one_tenure(self) -> None:
        story = Story().role("n1", 0, "master", 1)
        story.acked("n1", 1, 2, 1).acked("n1", 8, 9, 3).acked("n2", 4, 5, 2)
        assert check(story).valid is False

    def test_the_same_epoch_twice_is_invalid_even_apart_in_time(self) -> None:
        story = Story().acked("n1", 1, 2, 7).acked("n2", 5, 6, 7)
        result = check(story)
        assert result.valid is False
        assert result.anomalies[0].summary == (
            "n1 and n2 both acknowledged writes of q as master in epoch 7"
        )

    def test_epochs_begin_anew_when_every_node_was_restarted(self) -> None:
        story = Story().acked("n1", 1, 2, 7).fault(1, "restart-all", 3, 4, ["n1", "n2"])
        story.acked("n2", 5, 6, 7, incarnation=2)
        assert check(story).valid is True

    def test_epoch_0_is_none(self) -> None:
        assert check(Story().acked("n1", 1, 2, 0).acked("n2", 5, 6, 0)).anomalies == ()

    def both_observed(self, **claimed: Any) -> Story:
        story = Story()
        for second in range(20):
            story.observe("n1", second, "master", 1, **claimed)
            story.observe("n2", second, "master" if second > 5 else "mirror", 2, **claimed)
        return story

    def test_without_acked_events_the_clients_acknowledgements_count(self) -> None:
        story = self.both_observed()
        for second in range(8, 15):
            story.enqueue(second, second + 0.2).enqueue(second + 100, second + 0.3, node="n2")
        result = check(story)
        assert result.valid is False
        assert kinds(result) == ["dual-master-effective", "dual-master-claimed"]
        rows = story.history().ops.to_pylist()
        assert {rows[i]["f"] for i in result.anomalies[0].operations} == {"enqueue"}

    def test_where_members_vote_a_stale_leader_has_acknowledged_nothing(self) -> None:
        story = self.both_observed(by_majority=True)
        for second in range(8, 15):
            story.enqueue(second, second + 0.2).enqueue(second + 100, second + 0.3, node="n2")
        assert check(story).valid is True
        assert kinds(check(story)) == ["dual-master-claimed"]

    def test_a_master_that_acknowledges_nothing_is_only_claimed(self) -> None:
        story = self.both_observed()
        for second in range(8, 15):
            story.enqueue(second, second + 0.2).enqueue(
                second + 100, second + 0.3, "info", node="n2"
            )
        assert check(story).valid is True


class TestEpochs:
    def test_regression_from_one_master_to_the_next(self) -> None:
        story = Story().role("n1", 1, "master", 5).role("n1", 3, "none", 5)
        result = check(story.role("n2", 4, "master", 4))
        assert kinds(result) == ["epoch-regression"]
        assert result.valid is True
        assert check(story, strict=True).valid is False
        assert result.anomalies[0].summary == (
            "n2 logged that it was master of q in epoch 4 at 4.0 s, after n1 in epoch 5 at 1.0 s"
        )

    def test_regression_on_one_node(self) -> None:
        story = Story().role("n1", 1, "master", 5).role("n1", 1.01, "master", 4)
        assert kinds(check(story)) == ["epoch-regression"]

    def test_each_fall_on_one_node_is_told_once(self) -> None:
        story = Story()
        for tenth, epoch in enumerate([4, 5, 4, 4, 5, 4]):
            story.role("n1", tenth / 10, "master", epoch)
        assert len(check(story).anomalies) == 2

    def test_a_master_that_goes_on_in_its_old_epoch_is_an_overlap(self) -> None:
        story = Story().role("n1", 1, "master", 4).role("n2", 2, "master", 5)
        story.role("n1", 3, "master", 4).role("n2", 4, "master", 5)
        assert kinds(check(story)) == ["dual-master-claimed"]

    def test_clocks_that_can_t_order_two_nodes_prove_nothing(self) -> None:
        story = Story().role("n1", 1, "master", 5).role("n1", 1.01, "none", 5)
        assert check(story.role("n2", 1.05, "master", 4)).anomalies == ()

    def test_observed_regression(self) -> None:
        story = Story().observe("n1", 1, "master", 5).observe("n1", 2, "master", 4)
        result = check(story)
        assert kinds(result) == ["epoch-regression"]
        assert result.anomalies[0].operations == (0, 1)

    def test_after_a_restart_of_all_it_is_none(self) -> None:
        story = Story().role("n1", 1, "master", 5).role("n2", 1, "mirror", 5)
        story.role("n2", 9, "mirror", 1, incarnation=2).role("n1", 9, "mirror", 1, incarnation=2)
        assert check(story.role("n1", 10, "master", 1, incarnation=2)).anomalies == ()


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(5))
def test_claimed_overlaps_agree_with_a_sampling_oracle(seed: int) -> None:
    """Roles on a grid of seconds; the oracle looks at every second."""
    found = 0
    for number in range(30):
        rng = Stream(seed, "mastership", number)
        story = Story()
        grid: dict[str, list[bool]] = {}
        for node in NODES:
            grid[node] = [bool(rng.below(4) == 0) for _ in range(12)]
            for second, is_master in enumerate([*grid[node], False]):
                story.role(node, second, "master" if is_master else "mirror")
        expected = set()
        for first, second in combinations(NODES, 2):
            both = [a and b for a, b in zip(grid[first], grid[second], strict=True)]
            for at, here in enumerate(both):
                if here and not (at and both[at - 1]):
                    end = both.index(False, at) if False in both[at:] else len(both)
                    expected.add((frozenset((first, second)), ns(at), ns(end)))
        got = {
            (frozenset(a.detail["nodes"]), a.detail["begin_ns"], a.detail["end_ns"])
            for a in check(story).anomalies
            if a.kind == "dual-master-claimed"
        }
        assert got == expected
        found += len(expected)
    assert found > 20
