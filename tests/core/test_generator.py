"""Generators are values: the same seed gives the same operations, and asking changes nothing."""

from __future__ import annotations

import pytest

from shalott.core.generator import (
    Completed,
    Context,
    Generator,
    Limit,
    Pending,
    Phases,
    Scheduled,
    Stagger,
    TimeLimit,
)
from shalott.core.op import Invocation, OpType
from shalott.core.queue_generator import drain, queue_mix
from shalott.core.rng import stream_key

pytestmark = pytest.mark.unit

MS = 1_000_000


def context(now_ns: int = 0, node: str = "n1", in_flight: int = 0) -> Context:
    return Context(now_ns, 0, node, in_flight)


def take(generator: Generator, count: int, now_ns: int = 0) -> tuple[list[Scheduled], Generator]:
    taken = []
    for _ in range(count):
        answer, generator = generator.next(context(now_ns))
        assert isinstance(answer, Scheduled)
        taken.append(answer)
    return taken, generator


def completed(
    node: str, kind: OpType, error: str | None = None, *, key: str = "q", now_ns: int = 0
) -> Completed:
    return Completed(now_ns, 0, node, Invocation(f="dequeue", key=key), kind, error)


def test_the_seed_decides_the_mix() -> None:
    first, _ = take(queue_mix(("a", "b"), 0.6, 1), 500)
    again, _ = take(queue_mix(("a", "b"), 0.6, 1), 500)
    other, _ = take(queue_mix(("a", "b"), 0.6, 2), 500)
    assert first == again != other
    enqueues = [item.invocation for item in first if item.invocation.f == "enqueue"]
    assert 250 < len(enqueues) < 350
    assert {item.invocation.key for item in first} == {"a", "b"}


def test_values_are_unique_in_order_and_exact_in_json_readers() -> None:
    taken, _ = take(queue_mix(("a",), 1.0, 9), 300)
    values = [item.invocation.value for item in taken]
    assert all(value is not None for value in values)
    numbers = [value for value in values if value is not None]
    assert numbers == list(range(numbers[0], numbers[0] + 300))
    assert numbers[-1] < 2**53
    other, _ = take(queue_mix(("a",), 1.0, 10), 1)
    assert other[0].invocation.value not in numbers


def test_a_queue_that_is_to_hold_messages_is_not_dequeued_below_its_depth() -> None:
    generator: Generator = queue_mix(("a", "b"), 0.2, 1, depth=5)
    held, lowest = {"a": 0, "b": 0}, {"a": 9, "b": 9}
    for number in range(600):
        answer, generator = generator.next(context())
        assert isinstance(answer, Scheduled)
        invocation = answer.invocation
        held[invocation.key] += 1 if invocation.f == "enqueue" else -1
        generator = generator.update(Completed(0, 0, "n1", invocation, "ok", None))
        if number > 100:
            lowest[invocation.key] = min(lowest[invocation.key], held[invocation.key])
    assert lowest == {"a": 5, "b": 5}


@pytest.mark.parametrize(("kind", "counts"), [("fail", True), ("info", False)])
def test_a_dequeue_that_may_have_taken_something_counts_as_if_it_had(
    kind: OpType, counts: bool
) -> None:
    generator: Generator = queue_mix(("a",), 0.0, 1, depth=1)
    for _ in range(2):
        answer, generator = generator.next(context())
        assert isinstance(answer, Scheduled) and answer.invocation.f == "enqueue"
        generator = generator.update(Completed(0, 0, "n1", answer.invocation, "ok", None))
    taken, generator = take(generator, 2)
    assert [each.invocation.f for each in taken] == ["dequeue", "enqueue"]
    generator = generator.update(Completed(0, 0, "n1", taken[0].invocation, kind, None))
    (after,), _ = take(generator, 1)
    assert (after.invocation.f == "dequeue") is counts


def test_without_a_depth_answers_change_nothing() -> None:
    mix = queue_mix(("a",), 0.5, 1)
    invocation = Invocation(f="enqueue", key="a", value=1)
    assert mix.update(Completed(0, 0, "n1", invocation, "ok", None)) is mix


def test_asking_changes_nothing() -> None:
    mix = Stagger(queue_mix(("a",), 0.5, 1), 1000.0, 5)
    assert mix.next(context()) == mix.next(context())


def test_stagger_keeps_the_mean_rate_and_catches_up_a_little() -> None:
    mix = Stagger(queue_mix(("a",), 0.5, 1), 10 * MS, stream_key(1, "gaps"))
    taken, generator = take(mix, 1000)
    at_ns = [item.at_ns for item in taken]
    assert at_ns == sorted(at_ns)
    assert at_ns[-1] == pytest.approx(999 * 10 * MS, rel=0.05)
    # Asked much later, it does not send all that was missed: 100 ms worth at most.
    late_ns = at_ns[-1] + 10_000 * MS
    late, _ = take(generator, 100, now_ns=late_ns)
    assert late[0].at_ns == late_ns - 100 * MS
    assert sum(item.at_ns < late_ns for item in late) < 30


def test_the_operation_that_waited_keeps_the_time_at_which_it_was_due() -> None:
    mix = Stagger(queue_mix(("a",), 0.5, 1), 10 * MS, stream_key(1, "gaps"))
    taken, generator = take(mix, 100)
    assert all(item.due_ns == item.at_ns for item in taken)
    late_ns = taken[-1].at_ns + 10_000 * MS
    late, _ = take(generator, 2, now_ns=late_ns)
    assert late[0].due_ns is not None and late[0].due_ns < taken[-1].at_ns + 20 * MS
    assert late[1].due_ns == late[1].at_ns, "those between the two are given up"


def test_time_limit_counts_from_the_first_question_and_ends_waits() -> None:
    limited: Generator = TimeLimit(Stagger(queue_mix(("a",), 0.5, 1), 1.0, 5), 50)
    answer, limited = limited.next(context(1000))
    assert isinstance(answer, Scheduled)
    while isinstance(answer, Scheduled):
        assert answer.at_ns < 1050
        answer, limited = limited.next(context(1000))
    assert answer == Pending(1050)
    assert limited.next(context(1050))[0] is None


def test_phases_begin_when_the_one_before_has_completed() -> None:
    one, two = Limit(queue_mix(("one",), 1.0, 1), 1), Limit(queue_mix(("two",), 1.0, 1), 1)
    phases: Generator = Phases((one, two))
    answer, phases = phases.next(context())
    assert isinstance(answer, Scheduled) and answer.invocation.key == "one"
    answer, phases = phases.next(context(in_flight=1))
    assert answer == Pending()
    answer, phases = phases.next(context())
    assert isinstance(answer, Scheduled) and answer.invocation.key == "two"
    assert phases.next(context())[0] is None


def test_the_drain_ends_when_every_node_said_empty_twice() -> None:
    generator: Generator = drain(("n1", "n2"), ("q",))
    for now_ns in (0, 200 * MS):
        for node in ("n1", "n2"):
            answer, generator = generator.next(context(now_ns, node))
            assert isinstance(answer, Scheduled) and answer.invocation.f == "dequeue"
            generator = generator.update(completed(node, "fail", "empty", now_ns=now_ns))
    assert generator.next(context(300 * MS))[0] is None


def test_a_node_that_is_done_waits_for_the_others() -> None:
    generator: Generator = drain(("n1", "n2"), ("q",))
    for now_ns in (0, 200 * MS):
        generator = generator.update(completed("n1", "fail", "empty", now_ns=now_ns))
    assert generator.next(context(300 * MS, "n1"))[0] == Pending()
    assert isinstance(generator.next(context(300 * MS, "n2"))[0], Scheduled)


def test_a_node_that_is_not_asked_waits_for_the_others() -> None:
    generator: Generator = drain(("n1",), ("q",))
    assert generator.next(context(0, "n2"))[0] == Pending()
    assert isinstance(generator.next(context(0, "n1"))[0], Scheduled)


def test_two_workers_asking_at_once_are_one_answer() -> None:
    generator: Generator = drain(("n1",), ("q",))
    generator = generator.update(completed("n1", "fail", "empty", now_ns=0))
    generator = generator.update(completed("n1", "fail", "empty", now_ns=1 * MS))
    answer, _ = generator.next(context(2 * MS))
    assert isinstance(answer, Scheduled) and answer.at_ns == 100 * MS


def test_a_message_that_still_comes_resets_every_node() -> None:
    generator: Generator = drain(("n1", "n2"), ("q", "p"))
    for now_ns in (0, 200 * MS):
        for key in ("q", "p"):
            event = completed("n1", "fail", "empty", key=key, now_ns=now_ns)
            generator = generator.update(event)
    assert generator.next(context(400 * MS, "n1"))[0] == Pending()
    generator = generator.update(completed("n2", "ok", key="q", now_ns=400 * MS))
    answer, _ = generator.next(context(500 * MS, "n1"))
    assert isinstance(answer, Scheduled) and answer.invocation.key == "q"


def test_a_node_that_cannot_answer_is_asked_again_later() -> None:
    generator: Generator = drain(("n1",), ("q",))
    generator = generator.update(completed("n1", "fail", "404 NOT_FOUND", now_ns=5 * MS))
    answer, _ = generator.next(context(6 * MS))
    assert isinstance(answer, Scheduled) and answer.at_ns == 205 * MS
