"""pops: one planted failure a kind, and what no pop can tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.logs.pops import KINDS, Pops
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

KEY = "log/0"
RETRIES = "%RETRY%g_log/0"
Place = tuple[str, int]


def pop(
    told: Story,
    at: float,
    popped: Sequence[tuple[str, int, int | None]],
    acked: Sequence[Place] = (),
    broker: str = "n1",
    kind: str = "ok",
) -> Story:
    extra = {"popped": popped, "acked": acked, "unsure": [], "broker": broker}
    return told.row("pop", at, kind=kind, extra=extra, process=9)


def drained(told: Story) -> Story:
    for at in (64, 70, 76):
        pop(told, at, [])
    return told


def good() -> Story:
    """100 is acknowledged at once, 101 when it comes for the second time."""
    told = Story(queue=KEY).phases()
    for number in range(2):
        told.row("send", 1 + number, value=100 + number, offset=number, process=number)
    pop(told, 3, [(KEY, 0, 100), (KEY, 1, 101)], [(KEY, 0)])
    return pop(told, 8, [(RETRIES, 0, 101)], [(RETRIES, 0)])


def check(told: Story) -> Result:
    return Pops().check(told.history(True))


def test_what_is_done_with_is_valid() -> None:
    result = check(drained(good()))
    assert result.valid is True and result.anomalies == ()
    assert result.counts["popped-count"] == 3 and result.counts["acked-count"] == 2


PLANTED: dict[str, Callable[[], Story]] = {
    "acked-again": lambda: pop(good(), 20, [(KEY, 0, 100)]),
    "pop-lost": lambda: good().row("send", 5, value=102, offset=2, process=3),
    "early": lambda: pop(pop(good(), 20, [(KEY, 2, 101)]), 21, [(RETRIES, 1, 101)]),
    "phantom": lambda: pop(
        good().row("send", 5, value=102, kind="fail", process=3), 20, [(KEY, 2, 102)]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found(kind: str) -> None:
    result = check(drained(PLANTED[kind]()))
    assert [anomaly.kind for anomaly in result.anomalies] == [kind]
    assert result.valid is False and result.counts[f"{kind}-count"] == 1


def test_what_another_broker_or_another_clock_gives_may_be_early() -> None:
    told = pop(good(), 20, [(KEY, 2, 101)])
    assert check(drained(pop(told, 21, [(RETRIES, 1, 101)], broker="n2"))).valid is True


def test_fillers_of_batches_are_not_taken_for_copies_of_each_other() -> None:
    told = pop(good(), 20, [(KEY, 2, None)])
    assert check(drained(pop(told, 21, [(RETRIES, 1, None)]))).valid is True


def test_a_group_that_was_not_given_everything_proves_no_loss() -> None:
    told = good().row("send", 5, value=102, offset=2, process=3)
    for planted in (pop(told, 64, []), pop(drained(told), 80, [], kind="fail")):
        result = check(planted)
        assert result.valid == "unknown" and result.anomalies == ()
