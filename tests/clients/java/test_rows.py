"""What a Java member says to brokers where it differs from the C++ client: commits that nobody
answers, and messages that it sends to the retry topic itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from shalott.broker.rocket.remoting.command import (
    ONEWAY_FLAG,
    Command,
    RequestCode,
    ResponseCode,
    response,
)
from shalott.checkers.groups.group_rules import Group
from shalott.clients.java.member import JavaMemberRows
from shalott.clients.rocketmq.stored_messages import encode_properties
from shalott.core.client import ClientRows
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.message_body import encode_body
from tests.world.clock.turns import turns
from tests.world.rocket.stored_messages import stored_message

pytestmark = pytest.mark.unit

BROKER = "127.0.0.1:10911"


class Member:
    """One member's rows. ``says``: what its broker answers, asked again and again."""

    def __init__(self, *says: int | None, **group: Any) -> None:
        clock = itertools.count(step=1000)
        self.recorder = MemoryRecorder(lambda: next(clock), lambda: 0)
        self.says = list(says)
        self.asked = 0
        of = Group(name="g", topics=("T",), **group)
        rows = ClientRows(self.recorder, 1, "n1")
        self.wire = JavaMemberRows("g-1-0", of, rows, committed=self.committed)

    async def committed(self, behind: str, key: str) -> int | None:
        assert (behind, key) == (BROKER, "T/1")
        self.asked += 1
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]

    def commits(self, offset: int) -> None:
        ext = {"topic": "T", "queueId": "1", "commitOffset": str(offset), "consumerGroup": "g"}
        request = Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext, flag=ONEWAY_FLAG)
        self.wire.asked(BROKER, request)

    def pulls(self, value: int) -> None:
        ext = {"topic": "T", "queueId": "1", "queueOffset": "3", "consumerGroup": "g"}
        request = Command(code=RequestCode.PULL_MESSAGE, ext=ext)
        self.wire.asked(BROKER, request)
        body = stored_message(topic="T", queue_id=1, queue_offset=3, offset=900, value=value)
        found = response(ResponseCode.SUCCESS, ext={"nextBeginOffset": "4"}, body=body)
        self.wire.answered(BROKER, request, found)

    def sends(self, value: int, topic: str, times: int) -> Command:
        properties = encode_properties({"DELAY": "5", "RETRY_TOPIC": "T"})
        ext = {"b": topic, "e": "0", "i": properties, "j": str(times)}
        body = encode_body(value, 64)
        request = Command(code=RequestCode.SEND_MESSAGE_V2, ext=ext, body=body)
        self.wire.asked(BROKER, request)
        return request

    def rows(self, f: str) -> list[dict[str, Any]]:
        table = self.recorder.history().ops.to_pylist()
        return [
            {**row, "extra": json.loads(row["extra"] or "{}")} for row in table if row["f"] == f
        ]


async def settled() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others)


@pytest.mark.parametrize(
    ("says", "kind", "asked"),
    [((12,), "ok", 1), ((None, 7, 12), "ok", 3), ((7,), "info", 4), ((20,), "info", 4)],
)
def test_commit_is_ok_if_the_broker_has_it(
    says: tuple[int | None, ...], kind: str, asked: int
) -> None:
    member = Member(*says)

    async def commit() -> None:
        member.commits(12)
        await settled()

    asyncio.run(commit())
    (row,) = member.rows("commit")
    assert (row["type"], row["offset"], row["key"]) == (kind, 12, "T/1")
    assert member.asked == asked


def test_commit_of_a_member_that_dies_is_unknown() -> None:
    member = Member(7)

    async def commit() -> None:
        member.commits(12)
        member.wire.end("died")
        await turns()

    asyncio.run(commit())
    (row,) = member.rows("commit")
    assert (row["type"], row["error"]) == ("info", "its member is gone")


@pytest.mark.parametrize(("orderly", "reconsumed"), [(True, 2), (False, 1)])
def test_what_it_sends_to_the_retry_topic_is_sent_back(orderly: bool, reconsumed: int) -> None:
    member = Member(orderly=orderly)
    member.pulls(77)
    request = member.sends(77, "%RETRY%g", 2)
    member.wire.answered(BROKER, request, response(ResponseCode.SUCCESS))
    (row,) = member.rows("send-back")
    assert (row["key"], row["value"], row["offset"], row["type"]) == ("T/1", 77, 3, "ok")
    assert (row["extra"]["level"], row["extra"]["reconsumed"]) == (5, reconsumed)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, "", "info"),
        (ResponseCode.SYSTEM_ERROR, "", "info"),
        (ResponseCode.SYSTEM_ERROR, "nothing was stored", "fail"),
    ],
)
def test_what_may_be_stored_again_is_unknown(code: ResponseCode, remark: str, kind: str) -> None:
    member = Member()
    member.pulls(77)
    member.wire.answered(BROKER, member.sends(77, "%RETRY%g", 2), response(code, remark))
    assert [row["type"] for row in member.rows("send-back")] == [kind]


def test_what_it_sends_elsewhere_or_never_had_is_no_row() -> None:
    member = Member()
    member.pulls(77)
    member.sends(77, "T", 0)
    member.sends(78, "%RETRY%g", 1)
    assert member.rows("send-back") == []
