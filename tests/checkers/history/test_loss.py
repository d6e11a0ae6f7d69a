"""The anatomy of loss: its shape, and where it was. What explains it: queues/test_windows.py."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.rng import Stream
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
