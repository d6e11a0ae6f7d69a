"""Reads and writes of named objects, and queues with one consumer each."""

from __future__ import annotations

from collections import Counter

import pytest

from shalott.core.generator import Context, Generator, Scheduled
from shalott.core.op import Invocation
from shalott.core.queue_generator import queue_mix
from shalott.workloads.metadata import FLAG_VALUE, register_mix

pytestmark = pytest.mark.unit


def take(generator: Generator, count: int, processes: int = 1) -> list[tuple[int, Invocation]]:
    taken = []
    for number in range(count):
        answer, generator = generator.next(Context(0, number % processes, "n1"))
        assert isinstance(answer, Scheduled)
        taken.append((number % processes, answer.invocation))
    return taken


def registers(seed: int = 1, part: str = "load") -> Generator:
    return register_mix(
        ("policy/a", "queue/b"),
        ("queue/b",),
        write_fraction=0.5,
        delete_fraction=0.2,
        seed=seed,
        part=part,
    )


def test_values_are_written_once_and_flags_know_one() -> None:
    done = [invocation for _, invocation in take(registers(), 2000)]
    writes = [each for each in done if each.f == "write"]
    values = [each.value for each in writes if each.key == "policy/a" and each.value is not None]
    assert 900 < len(writes) < 1100
    assert len(values) == len(set(values)) > 300
    flags = Counter(each.value for each in writes if each.key == "queue/b")
    assert set(flags) == {FLAG_VALUE, None}
    assert 0.4 < flags[None] / sum(flags.values()) < 0.6
    deletes = sum(each.value is None for each in writes if each.key == "policy/a")
    assert 0.1 < deletes / (deletes + len(values)) < 0.3
    assert all(each.value is None for each in done if each.f == "read")


def test_the_seed_and_the_part_decide() -> None:
    assert take(registers(), 50) == take(registers(), 50)
    assert take(registers(), 50) != take(registers(2), 50)
    assert take(registers(), 50) != take(registers(part="afterwards"), 50)


def test_a_queue_with_one_consumer_is_dequeued_by_that_thread_only() -> None:
    keys = ("q1", "q2")
    taken = take(queue_mix(keys, 0.6, 1, threads=4), 4000, processes=4)
    consumers = {(process, each.key) for process, each in taken if each.f == "dequeue"}
    assert consumers == {(0, "q1"), (1, "q2")}
    dequeues = sum(each.f == "dequeue" for _, each in taken)
    assert dequeues / 4000 == pytest.approx(0.4, abs=0.03)
    # A process that was retired is followed by one of the same thread.
    assert queue_mix(keys, 0.6, 1, threads=4)._consumed_by(9) == ("q2",)
    enqueued = {each.key for process, each in taken if process == 3}
    assert enqueued == {"q1", "q2"}


def test_more_queues_than_threads_are_shared_out() -> None:
    keys = tuple(f"q{number}" for number in range(5))
    taken = take(queue_mix(keys, 0.5, 1, threads=2), 2000, processes=2)
    by_thread = {
        thread: {each.key for process, each in taken if process == thread and each.f == "dequeue"}
        for thread in (0, 1)
    }
    assert by_thread == {0: {"q0", "q2", "q4"}, 1: {"q1", "q3"}}
