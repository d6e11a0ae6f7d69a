"""Members of consumer groups against our broker: what they consume, commit, send back and lock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shalott.broker.rocket.processor.clients import LOCK_EXPIRES_MS
from shalott.broker.rocket.remoting.command import RequestCode
from shalott.checkers.groups.group_rules import Group
from tests.world.clock.turns import passes
from tests.world.rocket.members import Groups, with_groups

pytestmark = pytest.mark.unit

ALL = Group(name="g", topics=("t",), max_reconsume=2)
ORDERLY = Group(name="o", topics=("t",), orderly=True, max_reconsume=2)
EVERYBODY = Group(name="b", topics=("t",), broadcast=True)
QUEUES = 3  # of the topic two, and one of retries


async def send_many(groups: Groups, count: int, first: int = 0) -> None:
    for value in range(first, first + count):
        await groups.send(value, queue=value % 2)


def committed(groups: Groups) -> list[int | None]:
    """The offsets of ``ALL`` in both queues."""
    return [groups.committed("g", queue=number) for number in (0, 1)]


def ends(groups: Groups) -> list[str | None]:
    """How assignments ended; None for those that last."""
    return [row["extra"].get("ended") for row in groups.rows("assignment")]


def overlaps(rows: list[dict[str, Any]]) -> int:
    """How many of them begin while another one of the same queue lasts."""
    ends: dict[str, int] = {}
    found = 0
    for row in sorted(rows, key=lambda row: int(row["invoke_ns"])):
        found += row["invoke_ns"] < ends.get(row["key"], 0)
        ends[row["key"]] = max(ends.get(row["key"], 0), row["complete_ns"] or 1 << 62)
    return found


def test_members_share_the_queues_and_commit_what_they_consumed() -> None:
    async def test(groups: Groups) -> None:
        groups.join(ALL)
        groups.join(ALL)
        await groups.until(lambda: len(set(groups.owners().values())) == 2)
        await send_many(groups, 20)
        await groups.until(
            lambda: [groups.committed("g", queue=number) for number in (0, 1)] == [10, 10]
        )
        assert sorted(groups.delivered()) == list(range(20))
        by_member = {row["extra"]["member"]: row["key"] for row in groups.rows("deliver")}
        assert by_member == {"g-0": "t/0", "g-1": "t/1"}
        row = groups.rows("deliver")[0]
        assert row["extra"] == {
            "member": row["extra"]["member"],
            "group": "g",
            "reconsumed": 0,
            "origin": "t",
            "outcome": "success",
        }
        assert (row["type"], row["offset"], row["redelivered"]) == ("ok", 0, False)

    with_groups(test)


def test_who_leaves_commits_first_and_the_other_goes_on_there() -> None:
    async def test(groups: Groups) -> None:
        first = groups.join(ALL)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        groups.join(ALL)
        await groups.until(lambda: len(set(groups.owners().values())) == 2)
        await send_many(groups, 10)
        await groups.until(lambda: len(groups.delivered()) == 10)
        await first.leave()
        await send_many(groups, 10, first=10)
        await groups.until(lambda: len(groups.delivered()) == 20)
        assert sorted(groups.delivered()) == list(range(20))
        ended = {row["extra"]["ended"] for row in groups.rows("assignment") if row["complete_ns"]}
        assert ended == {"left", "rebalanced"}
        (row,) = [one for one in groups.rows("member") if one["complete_ns"]]
        assert row["extra"]["ended"] == "left"

    with_groups(test)


def test_who_dies_says_nothing_and_its_messages_come_again() -> None:
    async def test(groups: Groups) -> None:
        groups.listener.slow, groups.listener.slow_ms = 1.0, 5000
        first = groups.join(ALL)
        await send_many(groups, 4)
        await groups.until(lambda: len(groups.rows("deliver")) == 4)
        await first.end("died")
        groups.listener.slow = 0.0
        groups.join(ALL)
        await groups.until(lambda: [row["type"] for row in groups.rows("deliver")].count("ok") == 4)
        rows = groups.rows("deliver")
        assert Counter(row["type"] for row in rows) == {"info": 4, "ok": 4}
        assert all(row["error"] for row in rows if row["type"] == "info")
        assert sorted(row["value"] for row in rows if row["type"] == "ok") == [0, 1, 2, 3]

    with_groups(test)


def test_a_message_that_nobody_can_do_with_is_retried_and_ends_as_a_dead_letter() -> None:
    async def test(groups: Groups) -> None:
        groups.listener.poison = 1.0
        groups.join(ALL)
        await groups.send(7)
        await groups.until(lambda: groups.committed("g", "%RETRY%g") == 2)
        rows = groups.rows("deliver")
        assert [row["key"] for row in rows] == ["t/0", "%RETRY%g/0", "%RETRY%g/0"]
        assert [row["extra"]["reconsumed"] for row in rows] == [0, 1, 2]
        assert [row["redelivered"] for row in rows] == [False, True, True]
        assert {row["extra"]["origin"] for row in rows} == {"t"}
        assert [row["extra"]["level"] for row in groups.rows("send-back")] == [1, 1, 1]
        times = [row["invoke_ns"] / 1e9 for row in rows]
        assert all(
            1 <= later - sooner < 1.5 for sooner, later in zip(times, times[1:], strict=False)
        )
        assert groups.world.broker.store.reader.queue_range("%DLQ%g", 0) == (0, 1)
        assert groups.committed("g", "%RETRY%g") == 2

    with_groups(test)


def test_what_was_not_certainly_sent_back_is_consumed_here_again_and_holds_the_offset() -> None:
    async def test(groups: Groups) -> None:
        groups.listener.later = 1.0
        groups.join(ALL)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        await groups.send(1)
        await groups.send(2)
        groups.world.replica.role = "slave"  # which refuses
        await groups.until(lambda: {row["type"] for row in groups.rows("send-back")} == {"fail"})
        assert groups.committed("g") in (None, 0)
        groups.world.replica.role, groups.listener.later = "master", 0.0
        await groups.until(lambda: groups.committed("g") == 2)
        assert sorted(groups.delivered(outcome="later")) == [1, 2]
        assert sorted(groups.delivered(outcome="success")) == [1, 2]

    with_groups(test)


def test_an_orderly_queue_is_one_members_one_message_at_a_time() -> None:
    async def test(groups: Groups) -> None:
        groups.listener.suspend = 0.3
        groups.join(ORDERLY)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        await send_many(groups, 20)
        groups.join(ORDERLY)
        await passes(15)
        rows = groups.rows("deliver")
        assert overlaps(rows) == 0
        for key in ("t/0", "t/1"):
            own = [r for r in rows if r["key"] == key and r["extra"]["outcome"] == "success"]
            assert [r["offset"] for r in own] == sorted(r["offset"] for r in own)
        assert {row["extra"]["outcome"] for row in rows} >= {"success", "suspend"}
        locks = groups.rows("lock")
        assert locks and {row["extra"]["held"] for row in locks} <= {True, False}

    with_groups(test)


def test_the_same_message_comes_again_until_it_goes_to_the_retry_topic() -> None:
    async def test(groups: Groups) -> None:
        groups.listener.poison = 1.0
        groups.join(ORDERLY)
        await groups.send(7)
        await groups.until(lambda: groups.committed("o") == 1)
        own = [row for row in groups.rows("deliver") if row["key"] == "t/0"]
        assert [row["redelivered"] for row in own] == [False, True, True]
        assert [row["extra"]["reconsumed"] for row in own] == [0, 0, 0]
        (sent,) = [row for row in groups.rows("send-back") if row["key"] == "t/0"]
        assert (sent["type"], sent["extra"]["reconsumed"]) == ("ok", 2)

    with_groups(test)


def test_a_dead_members_lock_keeps_the_queue_until_it_expires() -> None:
    async def test(groups: Groups) -> None:
        first = groups.join(ORDERLY)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        await first.end("died")
        await groups.send(1)
        groups.join(ORDERLY)
        await passes(LOCK_EXPIRES_MS / 1000 - 5)
        assert groups.delivered() == []
        assert {row["extra"]["held"] for row in groups.rows("lock")} == {True, False}
        await passes(7)
        assert groups.delivered() == [1]

    with_groups(test)


def test_who_leaves_gives_its_locks_back() -> None:
    async def test(groups: Groups) -> None:
        first = groups.join(ORDERLY)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        await first.leave()
        await groups.send(1)
        groups.join(ORDERLY)
        await groups.until(lambda: groups.delivered() == [1])

    with_groups(test)


def test_a_queue_whose_lock_is_anothers_is_given_up() -> None:
    async def test(groups: Groups) -> None:
        groups.join(ORDERLY)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        locks = groups.world.broker.locks
        locks.unlock("o", "o-0", [("t", 0)])
        assert locks.lock("o", "stranger", [("t", 0)], groups.world.broker.now_ms()) == [0]
        await groups.until(
            lambda: "lock-lost" in [row["extra"].get("ended") for row in groups.rows("assignment")]
        )
        await groups.send(1)
        await passes(2)
        assert groups.delivered() == []

    with_groups(test)


def test_other_tags_are_passed_over_and_committed() -> None:
    async def test(groups: Groups) -> None:
        groups.join(Group(name="g", topics=("t",), tags=("a", "b")))
        for value, tag in enumerate(["a", "c", "b", "", "c"]):
            await groups.send(value, tag=tag)
        await groups.until(lambda: groups.committed("g") == 5)
        assert sorted(groups.delivered()) == [0, 2]
        assert {row["extra"]["tag"] for row in groups.rows("deliver")} == {"a", "b"}

    with_groups(test)


def test_every_member_of_a_broadcast_gets_everything_and_tells_the_broker_nothing() -> None:
    async def test(groups: Groups) -> None:
        groups.join(EVERYBODY)
        groups.join(EVERYBODY)
        await send_many(groups, 6)
        await groups.until(lambda: len(groups.delivered(outcome="success")) == 12)
        await passes(1)
        assert Counter(groups.delivered()) == dict.fromkeys(range(6), 2)
        assert groups.rows("commit") == [] and groups.committed("b") is None
        assert groups.members[0].stands_at("t/0") == 3

    with_groups(test)


def test_members_go_where_the_operator_sets_them() -> None:
    async def test(groups: Groups) -> None:
        groups.join(ALL)
        await send_many(groups, 6)
        await groups.until(lambda: committed(groups) == [3, 3])
        reset = {"topic": "t", "group": "g", "timestamp": 0, "isForce": "true"}
        await groups.world.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        await groups.until(
            lambda: len(groups.delivered(outcome="success")) == 12 and groups.committed("g") == 3
        )
        assert Counter(groups.delivered()) == dict.fromkeys(range(6), 2)
        offsets = [row["offset"] for row in groups.rows("commit") if row["key"] == "t/0"]
        assert 0 in offsets and offsets[-1] == 3

    with_groups(test)


def test_an_offset_that_the_queue_does_not_have_moves_the_member() -> None:
    async def test(groups: Groups) -> None:
        await send_many(groups, 4)
        groups.world.broker.tables.put_offset("g", "t", 0, 9)
        groups.join(ALL)
        await groups.until(lambda: groups.rows("moved"))
        (row,) = groups.rows("moved")
        assert (row["key"], row["offset"], row["extra"]["from"]) == ("t/0", 2, 9)
        await groups.send(10)
        await groups.until(lambda: groups.committed("g") == 3)
        assert 10 in groups.delivered()

    with_groups(test)


def test_a_damaged_message_is_told_and_passed_over() -> None:
    async def test(groups: Groups) -> None:
        await groups.world.send(b"no value of ours")
        groups.join(ALL)
        await groups.until(lambda: groups.delivered(outcome="success"))
        (row,) = groups.rows("deliver")
        assert (row["value"], row["error"], row["type"]) == (None, "corrupted", "ok")

    with_groups(test)


def test_a_broker_that_is_silent_changes_nothing_and_is_told_as_unknown() -> None:
    async def test(groups: Groups) -> None:
        groups.join(ALL)
        await groups.until(lambda: len(groups.owners()) == QUEUES)
        await send_many(groups, 4)
        await groups.until(lambda: len(groups.delivered(outcome="success")) == 4)
        await groups.world.server.stop()
        await groups.until(lambda: "fail" in [row["type"] for row in groups.rows("commit")])
        await passes(2)
        assert len(groups.rows("assignment")) == 3

    with_groups(test)
