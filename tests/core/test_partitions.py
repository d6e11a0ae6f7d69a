"""What is drawn of sends to partitions and polls of them, and how all are polled in the end."""

from __future__ import annotations

from collections import Counter

import pytest

from shalott.core.generator import Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation, OpType
from shalott.core.partitions import (
    EMPTY,
    QUIET_NS,
    PollAll,
    f_of,
    mops_of,
    partition_mix,
    read_group,
)

pytestmark = pytest.mark.unit


def asked_of(generator: Generator, process: int, node: str = "n1", now_ns: int = 0) -> Invocation:
    answer, _ = generator.next(Context(now_ns, process, node))
    assert isinstance(answer, Scheduled)
    return answer.invocation


def step(
    generator: Generator, process: int, kind: OpType, error: str | None = None, node: str = "n1"
) -> tuple[Invocation, Generator]:
    """Asks and completes."""
    answer, generator = generator.next(Context(0, process, node))
    assert isinstance(answer, Scheduled)
    asked = answer.invocation
    return asked, generator.update(Completed(0, process, node, asked, kind, error))


def test_a_process_is_assigned_keys_before_it_sends_and_polls() -> None:
    mix: Generator = partition_mix(keys=3, longest=1, send_share=0.5, crash_share=0.0, seed=7)
    asked, failed = step(mix, 4, "fail")
    assert asked.f == "assign" and asked.extra is not None and asked.extra["value"]
    assert asked_of(failed, 4).f == "assign"
    _, mix = step(mix, 4, "ok")
    drawn: Counter[str] = Counter()
    for _ in range(400):
        asked, mix = step(mix, 4, "ok")
        drawn[asked.f] += 1
    assert set(drawn) == {"assign", "send", "poll"}
    assert drawn["assign"] < 40 and min(drawn["send"], drawn["poll"]) > 120
    assert asked_of(mix, 5).f == "assign"  # it is another one


def test_a_process_that_crashed_has_no_keys() -> None:
    mix: Generator = partition_mix(keys=2, longest=1, send_share=0.5, crash_share=0.0, seed=1)
    _, mix = step(mix, 0, "ok")
    _, mix = step(mix, 0, "info")
    assert asked_of(mix, 0).f == "assign"


def test_no_value_is_sent_twice_and_keys_are_those_that_there_are() -> None:
    mix: Generator = partition_mix(keys=3, longest=4, send_share=0.6, crash_share=0.02, seed=2)
    values: list[object] = []
    fs = Counter[str]()
    for _ in range(500):
        asked, mix = step(mix, 0, "ok")
        fs[asked.f] += 1
        if asked.f in ("assign", "crash"):
            continue
        mops = mops_of(asked)
        assert asked.f == f_of(mops) and 1 <= len(mops) <= 4
        values += [mop[2] for mop in mops if mop[0] == "send"]
        assert {mop[1] for mop in mops if mop[0] == "send"} <= {0, 1, 2}
    assert len(values) == len(set(values)) > 300
    assert set(fs) == {"assign", "crash", "send", "poll", "txn"}


def test_in_the_end_a_new_process_of_each_node_polls_all_until_there_is_no_more() -> None:
    polls: Generator = PollAll(keys=3, nodes=("n1", "n2"))
    asked, polls = step(polls, 0, "info")
    assert asked.f == "crash"
    asked, polls = step(polls, 6, "ok")
    assert asked.f == "assign" and asked.extra == {"value": [0, 1, 2]}
    assert polls.next(Context(0, 1, "n1"))[0] == Pending()  # another one of the node waits
    asked, polls = step(polls, 6, "ok")
    assert asked.f == "poll" and asked.extra is not None and asked.extra["to_the_end"]
    _, polls = step(polls, 6, "fail", "no route")
    answer, _ = polls.next(Context(0, 6, "n1"))
    assert isinstance(answer, Pending) and answer.until_ns  # a node that refused is left alone
    later = polls.next(Context(10**9, 6, "n1"))[0]
    assert isinstance(later, Scheduled) and later.invocation.f == "poll"
    _, generator = polls.next(Context(10**9, 6, "n1"))
    polls = generator.update(Completed(10**9, 6, "n1", later.invocation, "fail", EMPTY))
    assert polls.next(Context(10**9, 6, "n1"))[0] is None
    assert polls.next(Context(10**9, 6, "n1", in_flight=1))[0] == Pending()
    assert asked_of(polls, 2, "n2").f == "crash"
    assert polls.next(Context(0, 2, "n3"))[0] is None


def test_a_process_that_is_lost_in_the_end_is_replaced() -> None:
    polls: Generator = PollAll(keys=1, nodes=("n1",))
    for process, kind in ((0, "info"), (3, "ok"), (3, "info")):
        _, polls = step(polls, process, kind)  # type: ignore[arg-type]
    assert asked_of(polls, 6).f == "assign"


def test_where_there_are_groups_some_subscribe_and_those_commit() -> None:
    mix: Generator = partition_mix(
        keys=3, longest=1, send_share=0.5, crash_share=0.0, seed=7, subscribe_share=0.5
    )
    drawn: Counter[str] = Counter()
    subscribed = False
    for _ in range(600):
        asked, mix = step(mix, 4, "ok")
        drawn[asked.f] += 1
        assert subscribed or asked.f != "commit"
        subscribed = asked.f == "subscribe" or (subscribed and asked.f != "assign")
    assert min(drawn[f] for f in ("assign", "subscribe", "commit", "send", "poll")) > 3
    _, mix = step(mix, 4, "info")
    assert asked_of(mix, 4).f in ("assign", "subscribe")


def test_a_group_gets_one_member_in_the_end_which_polls_until_it_is_quiet() -> None:
    crashes, polls = read_group(2, 3, ("n1", "n2"))
    for process in (0, 1):
        asked, crashes = step(crashes, process, "info")
        assert asked.f == "crash"
    assert crashes.next(Context(0, 2, "n1"))[0] is None
    asked, polls = step(polls, 2, "info")
    assert asked.f == "crash"
    asked, polls = step(polls, 4, "ok")
    assert asked.f == "subscribe"
    assert polls.next(Context(0, 3, "n2"))[0] == Pending()  # the phase is not over
    poll = asked_of(polls, 4)
    for now_ns, is_over in ((10**9, False), (QUIET_NS, True)):
        polls = polls.update(Completed(now_ns, 4, "n1", poll, "fail", EMPTY))
        answer, _ = polls.next(Context(2 * now_ns, 4, "n1"))
        assert (answer is None) is is_over
        assert (polls.next(Context(2 * now_ns, 3, "n2"))[0] is None) is is_over
