"""Which queues are a member's, and how far a queue is consumed."""

from __future__ import annotations

import pytest

from shalott.clients.rocketmq.consumption import ProcessingQueue, allocate_averagely
from shalott.clients.rocketmq.stored_messages import PulledMessage

pytestmark = pytest.mark.unit


def message(offset: int) -> PulledMessage:
    return PulledMessage(0, offset, 100 * offset, "t", b"", {}, 0, is_sound=True)


@pytest.mark.parametrize(("queues", "members"), [(8, 3), (3, 3), (2, 5), (1, 1), (16, 7), (0, 2)])
def test_every_queue_is_one_members_and_shares_differ_by_one(queues: int, members: int) -> None:
    names = [f"m{number}" for number in range(members)]
    shares = [allocate_averagely(name, list(reversed(names)), range(queues)) for name in names]
    assert [queue for share in shares for queue in share] == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_upstreams_example() -> None:
    shares = [allocate_averagely(name, ["b", "c", "a"], range(8)) for name in "abc"]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_who_is_not_among_the_members_gets_nothing() -> None:
    assert allocate_averagely("d", ["a", "b"], range(4)) == []


def test_the_lowest_message_that_is_not_consumed_holds_the_offset_back() -> None:
    queue = ProcessingQueue(5)
    assert queue.committable == 5
    five, six, seven = message(5), message(6), message(7)
    queue.put([five, six, seven], 8)
    queue.done(six)
    queue.done(seven)
    assert (queue.committable, len(queue)) == (5, 1)
    queue.done(five)
    assert queue.committable == 8


def test_messages_that_nobody_wants_are_passed_over() -> None:
    queue = ProcessingQueue(0)
    queue.put([], 9)
    assert (queue.committable, queue.next_offset) == (9, 9)
    queue.put([message(9)], 20)
    assert (queue.committable, queue.next_offset) == (9, 20)


def test_an_answer_that_comes_late_does_not_go_back() -> None:
    queue = ProcessingQueue(4)
    first = message(4)
    assert queue.put([first], 5) == [first]
    assert queue.put([message(4)], 5) == []
    queue.put([], 3)
    assert queue.next_offset == 5


def test_a_queue_that_was_moved_forgets_what_it_had() -> None:
    queue = ProcessingQueue(0)
    former = message(3)
    queue.put([former], 4)
    queue.move(2)
    assert (queue.committable, queue.next_offset, queue.first) == (2, 2, None)
    anew = message(3)
    queue.put([anew], 4)
    queue.done(former)  # of the queue's former life: not this one
    assert queue.first is anew and queue.holds(anew) and not queue.holds(former)
