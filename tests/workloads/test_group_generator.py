"""Generators of the workload group: who sends, who has members, and how a run ends."""

from __future__ import annotations

from collections import Counter

import pytest

from shalott.core.generator import Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation, OpType
from shalott.workloads.group_generator import (
    AskAll,
    Churn,
    GroupLoad,
    OnMembersThreads,
    UntilConsumed,
    churn,
    resets,
    send_mix,
)

pytestmark = pytest.mark.unit

S = 1_000_000_000
KEYS = ("t/0", "t/1")
LOOK = Invocation(f="lag", key="t/0", extra={"group": "g"})
EVERYWHERE = Invocation(f="lag", key="t/1", extra={"group": "b"})


def load(threads: int = 4, *, reset_ms: float = 0, change_ms: float = 1000) -> GroupLoad:
    return GroupLoad(
        send_mix(KEYS, ("a", "b"), delayed=0.2, levels=2, seed=7),
        churn(("g", "h"), members=2, mean_ms=change_ms, die_fraction=0.5, threads=threads, seed=7),
        resets({"g": KEYS}, mean_ms=reset_ms, to_end_fraction=0.5, seed=7),
        threads,
    )


def ask(generator: Generator, process: int, now_ns: int = 0) -> tuple[Scheduled, Generator]:
    answer, successor = generator.next(Context(now_ns, process, "n1"))
    assert isinstance(answer, Scheduled)
    return answer, successor


def tell(
    generator: Generator, process: int, invocation: Invocation, kind: OpType = "ok"
) -> Generator:
    return generator.update(Completed(0, process, "n1", invocation, kind))


def play(generator: Generator, threads: int, turns: int) -> list[tuple[int, Scheduled]]:
    """Every thread in turn, each operation ok at once."""
    done = []
    for turn in range(turns):
        process = turn % threads
        answer, generator = generator.next(Context(turn * S // 10, process, "n1"))
        if isinstance(answer, Scheduled):
            done.append((process, answer))
            generator = tell(generator, process, answer.invocation)
    return done


def test_even_threads_send_and_odd_ones_have_the_members() -> None:
    done = play(load(), 4, 400)
    by_thread = {thread: {a.invocation.f for t, a in done if t == thread} for thread in range(4)}
    assert by_thread[0] == by_thread[2] == {"send"}
    assert by_thread[1] | by_thread[3] == {"join", "leave", "die"}


def test_retired_processes_keep_their_part() -> None:
    answer, _ = ask(load(), 4 * 9 + 1)
    assert answer.invocation.f == "join"
    answer, _ = ask(load(), 4 * 9 + 2)
    assert answer.invocation.f == "send"


def test_a_single_thread_does_both() -> None:
    kinds = Counter(answer.invocation.f for _, answer in play(load(1), 1, 200))
    assert kinds["send"] > 100 and kinds["join"] >= 4


def test_each_group_has_its_members_at_the_beginning() -> None:
    joins = [a.invocation.key for t, a in play(load(), 4, 40) if a.invocation.f == "join"][:4]
    assert Counter(joins) == {"g": 2, "h": 2}


def test_no_group_grows_beyond_one_more_and_threads_end_their_own_members_only() -> None:
    held: Counter[tuple[int, str]] = Counter()
    for thread, answer in play(load(), 4, 2000):
        if (place := (thread, answer.invocation.key)) and answer.invocation.f == "join":
            held[place] += 1
        elif answer.invocation.f == "die":
            assert held[place] > 0
            held[place] -= 1
        elif answer.invocation.f == "leave" and held[place]:
            held[place] -= 1
        assert all(sum(n for (_, g), n in held.items() if g == group) <= 3 for group in "gh")


def test_sends_have_values_of_their_own_tags_and_sometimes_a_delay() -> None:
    done = [a.invocation for t, a in play(load(), 4, 400) if a.invocation.f == "send"]
    assert len({one.value for one in done}) == len(done)
    assert {(one.extra or {})["tag"] for one in done} == {"a", "b"}
    delays = Counter((one.extra or {}).get("delay") for one in done)
    assert set(delays) == {None, 1, 2} and delays[None] > len(done) / 2


def test_resets_come_seldom_and_from_those_who_send() -> None:
    done = play(load(reset_ms=2000), 4, 400)
    found = [(thread, one.invocation) for thread, one in done if one.invocation.f == "reset"]
    assert 5 < len(found) < 60 and {thread for thread, _ in found} <= {0, 2}
    assert {(one.extra or {})["to"] for _, one in found} == {"begin", "end"}
    assert not [a for _, a in play(load(), 4, 400) if a.invocation.f == "reset"]


def test_who_resets_sets_up_something_of_his_own_next() -> None:
    done = [one.invocation for _, one in play(load(reset_ms=2000), 4, 400)]
    operator = [one for one in done if one.f in ("reset", "set-up")]
    pairs = list(zip(operator[::2], operator[1::2], strict=False))
    assert len(pairs) > 5
    for reset, set_up in pairs:
        assert (reset.f, set_up.f, set_up.key) == ("reset", "set-up", reset.key)
    assert len({set_up.value for _, set_up in pairs}) == len(pairs)


def test_timed_messages_have_one_of_the_times_and_a_level_of_their_own() -> None:
    mix = send_mix(
        KEYS, (), delayed=0.5, levels=2, seed=7, timed=0.5, timers_ms=(1500, 2500), first_timer=19
    )
    done = play(GroupLoad(mix, load().members, load().operator, 1), 1, 300)
    extras = [one.invocation.extra or {} for _, one in done if one.invocation.f == "send"]
    found = Counter((extra.get("delay"), extra.get("timer_ms")) for extra in extras)
    assert found.keys() == {(None, None), (1, None), (2, None), (19, 1500), (20, 2500)}


def test_members_stay_where_nothing_changes() -> None:
    done = play(load(change_ms=0), 4, 200)
    assert Counter(a.invocation.f for _, a in done if a.invocation.f != "send") == {"join": 4}


def test_generators_are_values() -> None:
    generator = load()
    first, successor = ask(generator, 0)
    again, _ = ask(generator, 0)
    assert first == again and successor is not generator
    assert isinstance(generator.members, Churn) and generator.members.held == {}


def test_what_all_threads_with_members_do_ends_when_all_have_done_it() -> None:
    leave = Invocation(f="leave", key="g")
    generator: Generator = OnMembersThreads((leave,), 4, everywhere=True)
    assert isinstance(generator.next(Context(0, 0, "n1"))[0], Pending)
    first, generator = ask(generator, 1)
    assert first.invocation == leave
    assert isinstance(generator.next(Context(0, 1, "n1"))[0], Pending)  # 3 has not yet
    _, generator = ask(generator, 3)
    assert generator.next(Context(0, 0, "n1"))[0] is None


def test_what_any_thread_may_do_is_done_once() -> None:
    generator: Generator = OnMembersThreads((Invocation(f="join", key="g"),), 4)
    assert isinstance(generator.next(Context(0, 2, "n1"))[0], Pending)
    _, generator = ask(generator, 3)
    assert generator.next(Context(0, 1, "n1"))[0] is None


def looks(generator: Generator, now_ns: int, kinds: dict[str, OpType]) -> Generator:
    """Give out all looks of one pass and answer them."""
    given = []
    for process in (0, 1, 2, 3, 1, 3):
        answer, generator = generator.next(Context(now_ns, process, "n1"))
        if isinstance(answer, Scheduled):
            given.append((process, answer.invocation))
    for process, invocation in given:
        generator = tell(generator, process, invocation, kinds.get(invocation.key, "ok"))
    assert {process for process, _ in given} <= {1, 3}
    return generator


def test_two_passes_without_a_group_behind_are_the_end() -> None:
    generator: Generator = UntilConsumed(((LOOK, False), (EVERYWHERE, True)), 4)
    generator = looks(generator, 0, {})
    assert generator.next(Context(9 * S, 1, "n1"))[0] is not None
    generator = looks(generator, 10 * S, {})
    assert generator.next(Context(20 * S, 1, "n1"))[0] is None


def test_one_that_is_behind_begins_the_count_anew() -> None:
    generator: Generator = UntilConsumed(((LOOK, False), (EVERYWHERE, True)), 4)
    generator = looks(generator, 0, {})
    generator = looks(generator, 10 * S, {"t/1": "fail"})
    generator = looks(generator, 20 * S, {})
    assert generator.next(Context(30 * S, 1, "n1"))[0] is not None
    generator = looks(generator, 30 * S, {})
    assert generator.next(Context(40 * S, 1, "n1"))[0] is None


def test_a_look_that_only_members_can_answer_is_asked_of_each_thread() -> None:
    generator: Generator = UntilConsumed(((EVERYWHERE, True),), 4)
    one, generator = ask(generator, 1)
    three, generator = ask(generator, 3)
    assert one.invocation == three.invocation == EVERYWHERE
    assert isinstance(generator.next(Context(0, 1, "n1"))[0], Pending)


def test_a_question_without_an_answer_is_asked_again() -> None:
    first, second = Invocation(f="final-offset", key="a"), Invocation(f="final-offset", key="b")
    generator: Generator = AskAll((first, second))
    _, generator = ask(generator, 0)
    _, generator = ask(generator, 1)
    assert isinstance(generator.next(Context(0, 2, "n1", in_flight=2))[0], Pending)
    generator = tell(generator, 0, first, "fail")
    again, generator = ask(generator, 2)
    assert again.invocation == first and again.at_ns > 0
    assert generator.next(Context(0, 2, "n1"))[0] is None
