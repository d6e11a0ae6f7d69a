"""The log workload's generators: what is drawn, and a final reading that leaves nothing out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.core.generator import Completed, Context, Generator, Pending, Scheduled
from shalott.core.log_generator import (
    BACK_MAX,
    GROW,
    POP_PAUSE_NS,
    POP_QUIET_NS,
    SETTLE_PAUSE_NS,
    PopAll,
    Settle,
    log_mix,
    read_all,
)
from shalott.core.op import Invocation, OpType
from shalott.core.queue_generator import RETRY_PAUSE_NS

pytestmark = pytest.mark.unit

KEYS = ("shalott/0", "shalott/1")


def drawn(seed: int, count: int, send_fraction: float = 0.6) -> list[Invocation]:
    generator: Generator = log_mix(KEYS, send_fraction, seed)
    found = []
    for number in range(count):
        answer, generator = generator.next(Context(number, 0, "n1"))
        assert isinstance(answer, Scheduled)
        found.append(answer.invocation)
    return found


def test_a_seed_draws_the_same_mix_and_another_seed_another_one() -> None:
    assert drawn(1, 200) == drawn(1, 200)
    assert drawn(1, 200) != drawn(2, 200)


def test_sends_have_the_share_that_was_asked_for_and_values_of_their_own() -> None:
    found = drawn(3, 2000, 0.7)
    values = [one.value for one in found if one.f == "send"]
    assert 1300 < len(values) < 1500
    assert len(set(values)) == len(values)
    assert {one.key for one in found} == set(KEYS)


def test_polls_go_on_and_sometimes_jump_back() -> None:
    polls = [one.value for one in drawn(4, 4000) if one.f == "poll"]
    jumps = [value for value in polls if value is not None]
    assert 0.05 < len(jumps) / len(polls) < 0.15
    assert all(-BACK_MAX <= value < 0 for value in jumps)
    assert len(set(jumps)) > BACK_MAX // 2


class Reading:
    """Plays the readers of one final reading: ``answer`` says how each poll ends."""

    def __init__(self, answer: Callable[[int, str, Invocation], tuple[OpType, str | None]]) -> None:
        self.generator: Generator = read_all(("n1", "n2"), KEYS)
        self.answer = answer
        self.now_ns = 0
        self.polls: list[tuple[int, str, str, int | None, int]] = []

    def step(self, process: int, node: str) -> bool:
        """Whether the process had something to do."""
        answer, self.generator = self.generator.next(Context(self.now_ns, process, node))
        if not isinstance(answer, Scheduled):
            assert answer is None or isinstance(answer, Pending)
            return False
        one = answer.invocation
        self.polls.append((process, node, one.key, one.value, answer.at_ns))
        self.now_ns = max(self.now_ns, answer.at_ns) + 1
        kind, error = self.answer(process, node, one)
        done = Completed(self.now_ns, process, node, one, kind, error)
        self.generator = self.generator.update(done)
        return True

    def run(self) -> None:
        while any([self.step(0, "n1"), self.step(1, "n2"), self.step(2, "n1")]):
            pass
        assert self.generator.next(Context(self.now_ns, 0, "n1"))[0] is None


def test_every_queue_is_read_at_every_node_from_zero_to_its_end() -> None:
    left = {(node, key): 3 for node in ("n1", "n2") for key in KEYS}

    def answer(process: int, node: str, one: Invocation) -> tuple[OpType, str | None]:
        left[node, one.key] -= 1
        return ("ok", None) if left[node, one.key] > 0 else ("fail", "empty")

    reading = Reading(answer)
    reading.run()
    for place in left:
        own = [poll for poll in reading.polls if poll[1:3] == place]
        assert [value for *_, value, _ in own] == [0, None, None]
        assert len({process for process, *_ in own}) == 1
    assert not any(left.values())


@pytest.mark.parametrize(("kind", "error"), [("info", "timeout"), ("fail", "no connection")])
def test_a_reader_that_fails_is_followed_by_one_that_begins_anew(kind: OpType, error: str) -> None:
    failed: list[int] = []

    def answer(process: int, node: str, one: Invocation) -> tuple[OpType, str | None]:
        if node == "n2" and not failed and one.value is None:
            failed.append(reading.now_ns)
            return kind, error
        return ("ok", None) if one.value == 0 else ("fail", "empty")

    reading = Reading(answer)
    reading.run()
    own = [
        (value, at) for _, node, key, value, at in reading.polls if (node, key) == ("n2", KEYS[0])
    ]
    assert [value for value, _ in own] == [0, None, 0, None]
    assert own[2][1] >= failed[0] + RETRY_PAUSE_NS


def test_a_reader_that_is_sent_elsewhere_goes_on_there() -> None:
    def answer(process: int, node: str, one: Invocation) -> tuple[OpType, str | None]:
        if one.value == 0:
            return "fail", "there is no offset 0: the broker says 7"
        return "fail", "empty"

    reading = Reading(answer)
    reading.run()
    own = [poll[3] for poll in reading.polls if poll[1:3] == ("n2", KEYS[0])]
    assert own == [0, None]


def test_a_reader_that_did_not_begin_it_knows_nothing_of_its_end() -> None:
    generator: Generator = read_all(("n1",), KEYS)
    _, generator = generator.next(Context(0, 5, "n1"))
    other = Completed(1, 9, "n1", Invocation(f="poll", key=KEYS[0]), "fail", "empty")
    assert generator.update(other) == generator


def test_brokers_are_asked_until_they_have_decided_every_transaction() -> None:
    generator: Generator = Settle(KEYS[0])
    began: list[int] = []
    now_ns = 5
    for kind in ("fail", "info", "ok"):
        answer, generator = generator.next(Context(now_ns, 0, "n1"))
        assert isinstance(answer, Scheduled)
        began.append(answer.at_ns)
        asked = answer.invocation
        assert (asked.f, asked.key) == ("settle", KEYS[0])
        assert isinstance(generator.next(Context(now_ns, 1, "n2"))[0], Pending)  # one asks
        now_ns = answer.at_ns + 7
        generator = generator.update(Completed(now_ns, 0, "n1", asked, kind, None))
    assert began == [5, 12 + SETTLE_PAUSE_NS, 19 + 2 * SETTLE_PAUSE_NS]
    assert generator.next(Context(now_ns, 0, "n1"))[0] is None


def test_who_waits_for_transactions_looks_at_no_other_operation() -> None:
    _, generator = Settle(KEYS[0]).next(Context(0, 0, "n1"))
    late = Completed(1, 3, "n2", Invocation(f="send", key=KEYS[0], value=1), "ok", None)
    assert generator.update(late) == generator


def test_a_group_pops_until_nothing_came_for_long() -> None:
    generator: Generator = PopAll(KEYS[0])
    now_ns, empties = 5, 0
    answers = iter([("fail", None), ("ok", "empty"), ("ok", None)])
    while True:
        answer, generator = generator.next(Context(now_ns, 0, "n1"))
        if answer is None:
            break
        assert isinstance(answer, Scheduled)
        asked = answer.invocation
        assert (asked.f, asked.extra) == ("pop", {"calm": True})
        assert isinstance(generator.next(Context(now_ns, 1, "n2"))[0], Pending)
        kind, error = next(answers, ("ok", "empty"))
        empties = empties + 1 if error else 0
        now_ns = answer.at_ns + 7
        generator = generator.update(Completed(now_ns, 0, "n1", asked, kind, error))
    assert empties == 1 + POP_QUIET_NS // POP_PAUSE_NS  # after what came, not before


def test_a_share_of_polls_are_pops_and_nothing_else_changes() -> None:
    def drawn(share: float) -> list[Invocation]:
        generator: Generator = log_mix(KEYS, 0.5, 3, share)
        found = []
        for number in range(400):
            answer, generator = generator.next(Context(number, 0, "n1"))
            assert isinstance(answer, Scheduled)
            found.append(answer.invocation)
        return found

    plain, popping = drawn(0.0), drawn(0.5)
    changed = [(one, two) for one, two in zip(plain, popping, strict=True) if one != two]
    assert {one.f for one, _ in changed} == {"poll"} and {two.f for _, two in changed} == {"pop"}
    assert 70 < len(changed) < 130


def test_a_queue_is_sent_to_once_it_was_added_and_polled_once_a_message_is_there() -> None:
    generator: Generator = log_mix(KEYS, 0.5, 3, added="shalott/2")
    found: list[tuple[str, str]] = []
    for number in range(3000):
        answer, generator = generator.next(Context(number, 0, "n1"))
        assert isinstance(answer, Scheduled)
        one = answer.invocation
        if one.key == "shalott/2":
            found.append((one.f, kind := "fail" if len(found) < 2 or one.f == "poll" else "ok"))
            generator = generator.update(Completed(number, 0, "n1", one, kind, None))
    assert found[:4] == [(GROW, "fail"), (GROW, "fail"), (GROW, "ok"), ("send", "ok")]
    assert {f for f, _ in found[3:]} == {"send", "poll"}
