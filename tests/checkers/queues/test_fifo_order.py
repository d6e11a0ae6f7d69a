"""The order of first deliveries: what breaks it, what excuses it, and what a real queue may do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.queues.fifo_order import FifoOrder
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def judge(story: Story) -> Result:
    return FifoOrder().check(story.history())


def swapped(**second: object) -> Story:
    """2 comes out before 1, which went in first."""
    story = Story().enqueue(1, 1).enqueue(2, 2)
    return story.dequeue(2, 5).dequeue(1, 6, **second)  # type: ignore[arg-type]


def test_messages_that_come_out_as_they_went_in_are_in_order() -> None:
    story = Story().enqueue(1, 1).enqueue(2, 2).dequeue(1, 5).dequeue(2, 6)
    result = judge(story)
    assert result.valid is True
    assert result.counts["first-delivery-count"] == 2


def test_a_message_that_overtakes_another_is_named_with_its_four_operations() -> None:
    result = judge(swapped())
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "order"
    assert anomaly.summary.startswith("q: message 2 was dequeued before message 1")
    assert sorted(anomaly.operations) == [0, 1, 2, 3]


def test_queues_have_no_order_among_each_other() -> None:
    story = Story().enqueue(1, 1, key="a").enqueue(2, 2, key="b")
    assert judge(story.dequeue(2, 5, key="b").dequeue(1, 6, key="a")).valid is True


def test_concurrent_enqueues_may_come_out_in_any_order() -> None:
    story = Story().enqueue(1, 1, took=2.0).enqueue(2, 2)
    assert judge(story.dequeue(2, 5).dequeue(1, 6)).valid is True


def test_concurrent_dequeues_may_have_been_in_any_order() -> None:
    story = Story().enqueue(1, 1).enqueue(2, 2)
    assert judge(story.dequeue(2, 5).dequeue(1, 4.9, took=2.0)).valid is True


def test_a_redelivered_message_may_have_been_delivered_to_nobody_before() -> None:
    result = judge(swapped(redelivered=True).row("dequeue", 4, kind="info", process=3))
    assert result.valid is True
    assert result.counts["redelivered-first-count"] == 1


def test_a_flag_alone_excuses_nothing() -> None:
    """A promoted mirror flags all that it has: that must not hide in which order it has it."""
    result = judge(swapped(redelivered=True))
    assert result.valid is False
    assert result.counts["redelivered-first-count"] == 1


@pytest.mark.parametrize(
    ("since", "until", "flag"), [(4.0, 6.5, True), (4.0, 6.5, False), (5.5, 6.5, True)]
)
def test_a_dequeue_that_a_new_master_was_asked_again_excuses_one(
    since: float, until: float, flag: bool
) -> None:
    """It may have had 1 of the dead master, that no client heard of; and returned 3 later. One
    that is not flagged, or that began when 2 was out, has not."""
    story = Story().enqueue(1, 1).enqueue(2, 2).enqueue(3, 3).dequeue(2, 5).dequeue(1, 6)
    story.dequeue(3, since, took=until - since, redelivered=flag, process=3)
    assert judge(story).valid is (flag and since < 5)


def test_a_delivery_that_could_not_be_read_may_have_been_of_any_message() -> None:
    assert judge(swapped().row("dequeue", 4, error="corrupted", process=3)).valid is True
    assert judge(swapped().row("dequeue", 5.5, error="corrupted", process=3)).valid is False


def test_a_redelivered_message_still_overtakes_others() -> None:
    story = Story().enqueue(1, 1).enqueue(2, 2)
    assert judge(story.dequeue(2, 5, redelivered=True).dequeue(1, 6)).valid is False


def test_a_dequeue_without_an_answer_excuses_one_overtaken_message() -> None:
    lost = swapped().row("dequeue", 4, kind="info", process=3)
    result = judge(lost)
    assert result.valid is True
    assert result.counts["overtaken-count"] == 1
    assert "1 messages of q came out after later ones" in result.notes[0]
    three = Story().enqueue(1, 1).enqueue(2, 2).enqueue(3, 3).row("dequeue", 4, kind="info")
    three.dequeue(3, 5).dequeue(2, 6)
    assert judge(three).valid is True
    two = judge(three.dequeue(1, 7))
    assert two.valid is False
    assert "no dequeue with an unknown result is left" in two.anomalies[0].summary


def test_a_dequeue_without_an_answer_excuses_nothing_that_was_over_before() -> None:
    assert judge(swapped().row("dequeue", 5.5, kind="info", process=3)).valid is False


def test_a_dequeue_that_failed_for_want_of_a_master_may_have_taken_a_message() -> None:
    down = swapped().row("dequeue", 4, kind="fail", error="channel closed: 404", process=3)
    assert judge(down).valid is True
    empty = swapped().row("dequeue", 4, kind="fail", error="empty", process=3)
    assert judge(empty).valid is False


def test_only_the_first_of_several_deliveries_counts() -> None:
    story = Story().enqueue(1, 1).enqueue(2, 2).dequeue(1, 5).dequeue(2, 6)
    assert judge(story.dequeue(1, 7, redelivered=True)).valid is True


def test_an_enqueue_without_an_answer_happened_before_its_message_came_out() -> None:
    story = Story().enqueue(1, 1, kind="info").enqueue(2, 4)
    assert judge(story.dequeue(1, 5).dequeue(2, 6)).valid is True
    late = Story().enqueue(1, 1, kind="info").dequeue(1, 2).enqueue(2, 4).dequeue(2, 5)
    assert judge(late).valid is True
    # It was asked for after 2 had been taken, so it could not be before 2.
    story = Story().enqueue(2, 1).enqueue(1, 3, kind="info")
    assert judge(story.dequeue(1, 5).dequeue(2, 6)).valid is False


def test_what_never_came_out_or_failed_or_is_unknown_is_not_judged() -> None:
    story = Story().enqueue(1, 1).enqueue(2, 2).enqueue(3, 3, kind="fail")
    story.dequeue(2, 5).dequeue(3, 6).dequeue(99, 7).row("dequeue", 8, error="corrupted")
    result = judge(story)
    assert result.valid is True
    assert result.counts["first-delivery-count"] == 1


def test_nothing_delivered_proves_nothing() -> None:
    assert judge(Story().enqueue(1, 1)).valid == "unknown"


# --- a queue that may do all that a mirrored one may ----------------------------------------------


@dataclass
class AtLeastOnceQueue:
    """Gives the first ready message; what is not acknowledged comes back after a while, at its old
    place or behind everything, and its flag may be forgotten."""

    rng: random.Random
    ready: list[tuple[int, bool]] = field(default_factory=list)
    unacked: list[tuple[int, bool]] = field(default_factory=list)

    def enqueue(self, value: int) -> None:
        self.ready.append((value, False))

    def take(self) -> tuple[int, bool] | None:
        return self.ready.pop(0) if self.ready else None

    def keep(self, value: int, *, flagged: bool) -> None:
        self.unacked.append((value, flagged))

    def give_back(self) -> None:
        for message in [each for each in self.unacked if self.rng.random() < 0.4]:
            self.unacked.remove(message)
            places = range(len(self.ready))
            old = next((i for i in places if self.ready[i][0] > message[0]), len(self.ready))
            self.ready.insert(self.rng.choice([old, len(self.ready)]), message)


def random_story(seed: int) -> Story:
    """Overlapping operations, each with an effect at some moment between its call and its return.

    Values are numbered by the moment of their enqueue, so a place in the queue is an order.
    """
    rng = random.Random(seed)
    queue, story = AtLeastOnceQueue(rng), Story()
    value = 0
    for step in range(rng.randrange(4, 20)):
        queue.give_back()
        at = 1.0 + step  # the effect
        longest = rng.choice([0.4, 2.5])
        begin, end = at - rng.uniform(0.01, longest), at + rng.uniform(0.01, longest)
        span = {"took": end - begin, "process": step}
        if rng.random() < 0.5:
            value += 1
            queue.enqueue(value)
            kind = "info" if rng.random() < 0.2 else "ok"
            story.enqueue(value, begin, kind, **span)
            continue
        taken = queue.take()
        if taken is None:
            story.row("dequeue", begin, kind="fail", error="empty", **span)
        elif rng.random() < 0.3:  # the answer is lost: the flag too, perhaps
            queue.keep(taken[0], flagged=rng.random() < 0.5)
            how = rng.choice([("info", None), ("fail", "channel closed: 404")])
            story.row("dequeue", begin, kind=how[0], error=how[1], **span)
        else:
            story.dequeue(taken[0], begin, taken[1], **span)
            if rng.random() < 0.2:  # not acknowledged in time
                queue.keep(taken[0], flagged=rng.random() < 0.8)
    return story


@pytest.mark.explore
def test_no_history_of_such_a_queue_is_refused() -> None:
    delivered = overtaken = 0
    for seed in range(800):
        result = judge(random_story(seed))
        assert result.valid is not False, (seed, result.anomalies)
        delivered += int(result.counts["first-delivery-count"])
        overtaken += int(result.counts["overtaken-count"])
    assert delivered > 1500
    assert overtaken > 10


def test_most_swaps_of_sequential_deliveries_are_seen() -> None:
    seen = 0
    for seed in range(100):
        rng = random.Random(seed)
        count = rng.randrange(2, 8)
        story = Story()
        for value in range(1, count + 1):
            story.enqueue(value, value)
        order = list(range(1, count + 1))
        at = rng.randrange(count - 1)
        order[at], order[at + 1] = order[at + 1], order[at]
        for place, value in enumerate(order):
            story.dequeue(value, 20 + place)
        seen += judge(story).valid is False
    assert seen == 100
