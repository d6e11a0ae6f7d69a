"""Locks are acquired at a rate, held for a while, and released by whoever holds one."""

from __future__ import annotations

import pytest

from shalott.core.generator import (
    Answer,
    Completed,
    Context,
    Generator,
    Pending,
    Scheduled,
)
from shalott.core.op import Invocation, OpType
from shalott.workloads.lock import LockMix, lock_mix

pytestmark = pytest.mark.unit

S = 1_000_000_000


def mix(*, rate_hz: float = 10.0, hold_ms: float = 500.0, limit_ms: int = 60_000) -> LockMix:
    return lock_mix(
        ("a", "b"), rate_hz=rate_hz, hold_ms=hold_ms, limit_ms=limit_ms, seed=1, part="load"
    )


def ask(generator: Generator, now_ns: int = 0, process: int = 0) -> tuple[Answer, Generator]:
    return generator.next(Context(now_ns, process, "n1"))


def told(
    generator: Generator, f: str, kind: OpType, *, now_ns: int = 0, process: int = 0
) -> Generator:
    return generator.update(Completed(now_ns, process, "n1", Invocation(f=f, key="a"), kind))


def test_attempts_come_at_the_rate_on_every_lock() -> None:
    generator: Generator = mix()
    asked = []
    for _ in range(400):
        answer, generator = ask(generator, asked[-1].at_ns if asked else 0)
        assert isinstance(answer, Scheduled)
        asked.append(answer)
    assert {scheduled.invocation.f for scheduled in asked} == {"acquire"}
    assert {scheduled.invocation.key for scheduled in asked} == {"a", "b"}
    assert asked[-1].at_ns / 400 == pytest.approx(S / 10, rel=0.1)
    assert not any(scheduled.when_lost for scheduled in asked)


def test_who_holds_a_lock_releases_it_after_a_while_and_nobody_else_does() -> None:
    generator = told(mix(), "acquire", "ok", now_ns=S)
    answer, generator = ask(generator, S)
    assert isinstance(answer, Scheduled)
    assert answer.invocation == Invocation(f="release", key="a")
    assert answer.when_lost
    assert S <= answer.at_ns < 2 * S
    other, generator = ask(generator, S, process=1)
    assert isinstance(other, Scheduled) and other.invocation.f == "acquire"


@pytest.mark.parametrize("kind", ["ok", "info"])
def test_a_release_ends_a_hold_whatever_came_of_it(kind: OpType) -> None:
    generator = told(told(mix(), "acquire", "ok"), "release", kind)
    answer, _ = ask(generator)
    assert isinstance(answer, Scheduled) and answer.invocation.f == "acquire"


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_an_attempt_that_is_not_known_to_succeed_holds_nothing(kind: OpType) -> None:
    answer, _ = ask(told(mix(), "acquire", kind))
    assert isinstance(answer, Scheduled) and answer.invocation.f == "acquire"


def test_the_end_waits_for_the_holders() -> None:
    _, generator = ask(mix(limit_ms=1000))
    generator = told(generator, "acquire", "ok", now_ns=int(0.999 * S))
    assert ask(generator, S, process=1)[0] is None
    answer, generator = ask(generator, S)
    assert isinstance(answer, Scheduled)
    assert answer.invocation.f == "release" and answer.at_ns <= S
    assert ask(told(generator, "release", "ok", now_ns=S), S)[0] is None


def test_an_attempt_that_would_be_due_after_the_end_is_waited_out() -> None:
    generator: Generator = mix(rate_hz=0.1, limit_ms=1000)
    answer: Answer = Scheduled(0, Invocation(f="acquire"))
    while isinstance(answer, Scheduled):
        answer, generator = ask(generator)
    assert answer == Pending(S)
