"""The anatomy of loss: its shape, where it was, and which documented window explains it."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from shalott.checkers.queues.total_queue import TotalQueue
from shalott.harness.core.rng import Stream
from tests.checkers.histories import Story, ns

pytestmark = pytest.mark.unit

CUT = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"))


def drained(story: Story) -> Story:
    return story.phases().empty(64.5)


def loss(story: Story) -> dict[str, Any]:
    result = TotalQueue().check(story.history())
    assert result.valid is False
    detail = result.detail["loss"]
    assert sum(detail["by-cause"].values()) == result.counts["lost-count"]
    return dict(detail)


def sent(lost: range, *, count: int = 60, node: str = "n1") -> Story:
    """A message a second from 0 s; those in ``lost`` never come out."""
    story = Story()
    for value in range(count):
        story.enqueue(value, value, node=node, process=value % 3)
        if value not in lost:
            story.dequeue(value, value + 0.5)
    return drained(story)


def test_no_loss_has_no_anatomy() -> None:
    result = TotalQueue().check(sent(range(0)).history())
    assert result.valid is True
    assert result.detail["loss"] == {}


def test_the_shape_of_2014_a_long_tail_and_stragglers() -> None:
    """Jepsen's RabbitMQ run: 239 lost, 234 of them one contiguous tail."""
    story = Story()
    stragglers = (69, 149, 187, 192, 305)
    for value in range(588):
        story.enqueue(value, value / 10, process=value % 5, node=f"n{value % 5 + 1}")
        if value < 354 and value not in stragglers:
            story.dequeue(value, value / 10 + 0.05)
    story.phases().empty(64.5, [f"n{number}" for number in range(1, 6)])
    result = TotalQueue().check(story.history())
    detail = result.detail["loss"]
    assert result.counts["lost-count"] == 239
    assert detail["runs"] == {"count": 6, "longest": 234, "lengths": [234, 1, 1, 1, 1, 1]}
    assert detail["by-queue"] == {"q": {"prefix": 0, "middle": 5, "suffix": 234, "whole": 0}}
    assert detail["positions-by-process"] == {"prefix": 0, "middle": 5, "suffix": 234, "whole": 0}
    tail = result.anomalies[0]
    assert tail.kind == "lost"
    assert tail.summary.startswith("234 acknowledged messages in a row of q lost, acknowledged at")
    assert (tail.detail["first"], tail.detail["last"]) == (354, 587)
    assert len(tail.operations) == 32
    assert len(result.anomalies) == 6


def test_prefix_middle_and_whole() -> None:
    story = sent(range(4), count=20)
    assert loss(story)["by-queue"]["q"] == {"prefix": 4, "middle": 0, "suffix": 0, "whole": 0}
    assert loss(sent(range(5, 9), count=20))["by-queue"]["q"]["middle"] == 4
    gone = loss(sent(range(20), count=20))
    assert gone["by-queue"]["q"] == {"prefix": 0, "middle": 0, "suffix": 0, "whole": 20}
    assert set(gone["by-process"]) == {"0", "1", "2"}


def test_by_node_and_by_fault_window() -> None:
    story = sent(range(20, 30)).fault(4, "partition-one", 15, 35, ["n1"], CUT)
    detail = loss(story)
    assert detail["by-node"] == {"n1": {"acknowledged": 60, "lost": 10}}
    assert detail["by-fault-window"] == [
        {"window": "before the first fault", "acknowledged": 15, "lost": 0},
        {"window": "during 4 partition-one n1", "acknowledged": 20, "lost": 10},
        {"window": "after 4 partition-one n1", "acknowledged": 25, "lost": 0},
    ]
    assert detail["stories"][0]["window"] == "during 4 partition-one n1"


def test_interleaved_losses_of_one_side_are_told_as_that_sides_run() -> None:
    story = Story()
    for value in range(60):
        node = "n1" if value % 2 else "n2"
        story.enqueue(value, value, node=node)
        if not (node == "n1" and 20 <= value < 40):
            story.dequeue(value, value + 0.5)
    detail = loss(drained(story))
    assert detail["runs"]["longest"] == 1
    assert detail["runs-by-node"] == {"count": 1, "longest": 10, "lengths": [10]}
    assert [(s["node"], s["length"]) for s in detail["stories"]] == [("n1", 10)]


class TestCauses:
    """Messages 20 to 29 are lost: acknowledged between 20 and 29.01 s."""

    def story(self) -> Story:
        return sent(range(20, 30))

    def cause(self, story: Story) -> tuple[str, str]:
        (told,) = loss(story)["stories"]
        return told["cause"], told["why"]

    def test_nothing_explains_it(self) -> None:
        assert self.cause(self.story())[0] == "unexplained"

    def test_l1_promoted_while_synchronising(self) -> None:
        story = self.story().role("n2", 10, "mirror")
        story.event("n1", 12, "sync_started", mirrors=["n2"])
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        cause, why = self.cause(story)
        assert cause == "L1"
        assert why == "n2 was promoted at 31.0 s without being synchronised"

    def test_a_synchronisation_of_another_mirror_is_none_of_it(self) -> None:
        story = (
            self.story().role("n2", 10, "mirror").event("n1", 12, "sync_started", mirrors=["n3"])
        )
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        assert self.cause(story)[0] == "L2"

    def test_evidence_is_the_row_of_the_event(self) -> None:
        story = self.story().role("n2", 10, "mirror")
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        (told,) = loss(story)["stories"]
        row = story.history().events.to_pylist()[told["evidence"]["event"]]
        assert (row["kind"], row["node"]) == ("promoted", "n2")

    def test_l2_joined_empty_and_never_synchronised(self) -> None:
        story = self.story().role("n2", 10, "mirror")
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        assert self.cause(story)[0] == "L2"

    def test_l4_restarted_and_not_synchronised_since(self) -> None:
        story = self.story().fault(1, "kill", 5, 8, ["n2"]).role("n2", 10, "mirror")
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        assert self.cause(story)[0] == "L4"

    def test_l8_promoted_on_shutdown(self) -> None:
        story = self.story().role("n2", 10, "mirror")
        story.event(
            "n2", 31, "promoted", "master", 3, synchronised=False, reason="shutdown of the master"
        )
        assert self.cause(story)[0] == "L8"

    def test_l8_told_by_the_master_that_stops(self) -> None:
        story = self.story().event("n1", 30, "loss_window", reason="L8: on shutdown")
        assert self.cause(story) == ("L8", "n1 said at 30.0 s: L8: on shutdown")
        story.events.clear()
        story.event("n1", 28.5, "loss_window", reason="L8: on shutdown")
        story.event("n2", 31, "promoted", "master", 3, synchronised=False)
        causes = loss(story)["by-cause"]
        assert causes == {"L8": 10}

    def test_a_restarted_mirrors_wipe_alone_explains_nothing(self) -> None:
        story = self.story().fault(1, "kill", 28, 31, ["n2"])
        story.event("n2", 32, "discarded", count=30, reason="L4: a mirror throws away what it had")
        assert self.cause(story)[0] == "unexplained"

    def test_l3_the_loser_that_an_operator_restarted_wipes(self) -> None:
        story = self.story().fault(1, "partition-one", 15, 35, ["n1"], CUT)
        story.event("n1", 61, "discarded", count=30, reason="L4: a mirror throws away what it had")
        assert self.cause(story)[0] == "L3"

    def test_synchronised_promotion_explains_nothing(self) -> None:
        story = self.story().event("n2", 31, "promoted", "master", 3, synchronised=True)
        assert self.cause(story)[0] == "unexplained"

    def test_promotion_of_another_queue_explains_nothing(self) -> None:
        story = self.story()
        story.event("n2", 31, "promoted", "master", 3, group="other", synchronised=False)
        assert self.cause(story)[0] == "unexplained"

    def test_promotion_before_the_messages_explains_nothing(self) -> None:
        story = self.story().event("n2", 11, "promoted", "master", 3, synchronised=False)
        assert self.cause(story)[0] == "unexplained"

    def test_l3_two_masters_and_one_restarted(self) -> None:
        story = self.story().fault(1, "partition-one", 15, 35, ["n1"], CUT)
        story.role("n1", 0, "master").role("n2", 19, "master", 2).role("n2", 59, "master", 2)
        story.role("n1", 36, "mirror", 3, incarnation=2)
        story.around("operator", 35, 36, "info", extra={"restarted": ["n1"]})
        cause, why = self.cause(story)
        assert cause == "L3"
        assert why == "n1 was master beside n2 from 19.0 s and ceased to be at 35.0 s"

    def test_l3_by_polls_alone(self) -> None:
        story = self.story().fault(1, "partition-one", 15, 35, ["n1"], CUT)
        for second in range(60):
            story.observe("n1", second, "master" if second < 36 else "mirror")
            story.observe("n2", second + 0.1, "mirror" if second < 19 else "master", 2)
        cause, why = self.cause(story)
        assert cause == "L3"
        assert why.startswith("n1 was master beside n2 from 19.")

    def test_l3_a_node_says_what_it_discarded(self) -> None:
        story = self.story().fault(1, "partition-halves", 15, 35, [], CUT)
        story.event("n1", 37, "discarded", count=10, reason="autoheal: this side lost")
        assert self.cause(story) == ("L3", "n1 discarded 10 messages at 37.0 s")

    def test_l3_a_master_in_a_minority_paused(self) -> None:
        story = self.story().fault(1, "partition-one", 25, 45, ["n1"], CUT)
        story.role("n1", 0, "master").event("n1", 29.5, "paused", "paused", group="")
        story.role("n2", 29.6, "master", 2)
        assert self.cause(story)[0] == "L3"

    def test_l11_a_resumed_master_acts_on(self) -> None:
        story = self.story().fault(1, "pause", 20, 28, ["n1"])
        story.role("n1", 0, "master").role("n2", 25, "master", 2).role("n1", 29.5, "mirror", 3)
        story.role("n2", 59, "master", 2)
        assert self.cause(story)[0] == "L11"

    def test_l12_all_stopped_and_another_recovered(self) -> None:
        nodes = ["n1", "n2", "n3"]
        story = self.story().role("n1", 0, "master").fault(1, "restart-all", 30, 33, nodes)
        story.event("n2", 1, "up", group="").event("n3", 1, "up", group="")
        story.role("n3", 34, "master", 1, incarnation=2)
        cause, why = self.cause(story)
        assert cause == "L12"
        assert "1 restart-all n1+n2+n3; n3 recovered the queue at 34.0 s" in why

    def test_observed_promotion_of_an_unlisted_mirror(self) -> None:
        """What is known of a system that logs no promotions."""
        story = self.story().fault(1, "kill", 5, 8, ["n2"]).fault(2, "kill", 30, 50, ["n1"])
        for second in range(30):
            story.observe("n1", second, "master", synchronised=["n3"] if second > 5 else ["n2"])
        for second in range(31, 60):
            story.observe("n2", second, "master", 2)
        assert self.cause(story)[0] == "L4"

    def test_the_word_of_the_promoted_goes_before_an_old_poll(self) -> None:
        story = self.story().fault(2, "kill", 30, 50, ["n1"])
        story.observe("n1", 29, "master", synchronised=["n3"])
        story.observe("n2", 31, "master", 2).observe("n2", 32, "master", 2)
        assert self.cause(story)[0] == "L2"
        story.event("n2", 30.8, "promoted", "master", 2, synchronised=True)
        assert self.cause(story)[0] == "unexplained"

    def test_observed_promotion_of_a_listed_mirror_explains_nothing(self) -> None:
        story = self.story().fault(2, "kill", 30, 50, ["n1"])
        for second in range(30):
            story.observe("n1", second, "master", synchronised=["n2", "n3"])
        for second in range(31, 60):
            story.observe("n2", second, "master", 2)
        assert self.cause(story)[0] == "unexplained"


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(5))
def test_runs_and_positions_agree_with_a_slow_oracle(seed: int) -> None:
    for number in range(20):
        rng = Stream(seed, "loss", number)
        story = Story()
        acked: dict[str, list[tuple[int, bool]]] = {"q": [], "r": []}
        for value in range(3 + rng.below(25)):
            key = rng.choice(["q", "r"])
            is_lost = bool(rng.below(2))
            at = rng.between(0, 50)
            story.enqueue(value, at, key=key)
            if not is_lost:
                story.dequeue(value, at + 5, key=key)
            acked[key].append((ns(at), is_lost))
        for key in acked:
            story.empty(64.5, ["n1"], key=key)
        orders = {key: [lost for _, lost in sorted(rows)] for key, rows in acked.items()}
        runs = [
            sum(1 for _ in group) for o in orders.values() for lost, group in groupby(o) if lost
        ]
        if not runs:
            continue
        detail = loss(story.phases())
        assert detail["runs"]["lengths"] == sorted(runs, reverse=True)
        for key, order in orders.items():
            if True not in order:
                assert key not in detail["by-queue"]
                continue
            if all(order):
                expected = [0, 0, 0, len(order)]
            else:
                prefix, suffix = order.index(False), order[::-1].index(False)
                expected = [prefix, sum(order) - prefix - suffix, suffix, 0]
            assert list(detail["by-queue"][key].values()) == expected
