"""What a C++ member says to brokers, as rows: queues, locks, offsets, messages sent back."""

from __future__ import annotations

import itertools
import json
import struct
from typing import Any

import msgspec
import pytest

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.checkers.groups.group_rules import Group
from shalott.clients.cpp.sender import SentRows, fate_of_send
from shalott.clients.cpp.tap import with_store_host
from shalott.clients.cpp.wire_rows import MemberRows, key_of_delivery
from shalott.core.client import ClientRows
from shalott.core.errors import Definite, Indefinite
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.message_body import encode_body
from shalott.core.op import Invocation
from tests.world.rocket.stored_messages import stored_message

pytestmark = pytest.mark.unit

BROKER = "127.0.0.1:10911"


class Member:
    """One member's rows, and the requests that its library makes."""

    def __init__(self, **group: Any) -> None:
        clock = itertools.count(step=1000)
        self.recorder = MemoryRecorder(lambda: next(clock), lambda: 0)
        of = Group(name="g", topics=("T",), **group)
        self.wire = MemberRows("g-1-0", of, ClientRows(self.recorder, 1, "n1"))

    def ask(self, code: RequestCode, body: bytes = b"", **ext: object) -> Command:
        told = {name: str(value) for name, value in ext.items()}
        request = Command(code=code, ext=told, body=body)
        self.wire.asked(BROKER, request)
        return request

    def answer(self, request: Command, answer: Command) -> None:
        self.wire.answered(BROKER, request, answer)

    def knows_route(self, queues: int = 4) -> None:
        asked = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        data = {"brokerName": "b", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        self.answer(asked, success(body=msgspec.json.encode({"queueDatas": [data]})))

    def beats(self, client_id: str = "b@me") -> None:
        said = {"clientID": client_id, "consumerDataSet": [{"groupName": "g"}]}
        self.answer(self.ask(RequestCode.HEART_BEAT, msgspec.json.encode(said)), success())

    def pulls(self, queue: int, offset: int, topic: str = "T") -> Command:
        where = {"topic": topic, "queueId": queue, "queueOffset": offset}
        return self.ask(RequestCode.PULL_MESSAGE, consumerGroup="g", **where)

    def rows(self, *fs: str) -> list[dict[str, Any]]:
        table = self.recorder.history().ops.to_pylist()
        return [
            {**row, "extra": json.loads(row["extra"] or "{}")} for row in table if row["f"] in fs
        ]


def success(body: bytes = b"", **ext: object) -> Command:
    told = {name: str(value) for name, value in ext.items()}
    return response(ResponseCode.SUCCESS, ext=told, body=body)


def test_member_begins_with_its_first_heartbeat_and_ends_as_it_is_told() -> None:
    member = Member(orderly=True, tags=("a",))
    assert member.rows("member") == []
    member.beats()
    member.beats()
    member.wire.end("died")
    (row,) = member.rows("member")
    assert row["extra"] == {
        "member": "g-1-0",
        "group": "g",
        "broadcast": False,
        "orderly": True,
        "tags": ["a"],
        "ended": "died",
    }


@pytest.mark.parametrize(
    ("found", "why"),
    [(success(offset=7), "committed"), (response(ResponseCode.QUERY_NOT_FOUND), "first")],
)
def test_assignment_begins_with_its_first_pull(found: Command, why: str) -> None:
    member = Member()
    asked = member.ask(RequestCode.QUERY_CONSUMER_OFFSET, topic="T", queueId=2, consumerGroup="g")
    member.answer(asked, found)
    member.pulls(2, 7)
    member.pulls(2, 9)
    (row,) = member.rows("assignment")
    assert (row["key"], row["extra"]["why"], row["complete_ns"]) == ("T/2", why, None)


def test_member_that_asks_for_the_end_begins_there() -> None:
    member = Member()
    asked = member.ask(RequestCode.QUERY_CONSUMER_OFFSET, topic="T", queueId=2, consumerGroup="g")
    member.answer(asked, response(ResponseCode.QUERY_NOT_FOUND))
    member.answer(member.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=2), success(offset=40))
    member.pulls(2, 40)
    assert member.rows("assignment")[0]["extra"]["why"] == "last"


def test_queue_that_goes_to_another_is_given_up_when_nothing_of_it_is_worked_on() -> None:
    member = Member()
    member.knows_route(queues=2)
    member.beats("b@me")
    member.pulls(0, 0)
    member.pulls(1, 0)
    work = member.wire.work("T/1")
    asked = member.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    both = {"consumerIdList": ["c@other", "b@me"]}
    member.answer(asked, success(body=msgspec.json.encode(both)))
    assert [row["complete_ns"] is None for row in member.rows("assignment")] == [True, True]
    member.wire.worked("T/1", work)
    kept, given_up = member.rows("assignment")
    assert kept["complete_ns"] is None
    assert (given_up["extra"]["ended"], given_up["offset"]) == ("rebalanced", 0)


def test_members_of_a_broadcast_keep_all_queues() -> None:
    member = Member(broadcast=True)
    member.knows_route(queues=1)
    member.beats("b@me")
    member.pulls(0, 5)
    asked = member.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    both = {"consumerIdList": ["a@other", "b@me"]}
    member.answer(asked, success(body=msgspec.json.encode(both)))
    (row,) = member.rows("assignment")
    assert (row["extra"]["why"], row["complete_ns"]) == ("local", None)
    assert member.wire.stands_at("T/0") == 5


def test_commit_is_ok_failed_or_unknown_as_it_is_answered() -> None:
    member = Member()
    where = {"topic": "T", "queueId": 0, "consumerGroup": "g", "commitOffset": 12}
    done, refused, open_ = [member.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where)] + [
        member.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **where) for _ in range(2)
    ]
    member.answer(done, success())
    member.answer(refused, response(ResponseCode.SYSTEM_ERROR, "no"))
    member.wire.unanswered(BROKER, open_)
    assert [(row["type"], row["offset"]) for row in member.rows("commit")] == [
        ("ok", 12),
        ("fail", 12),
        ("info", 12),
    ]


def test_each_queue_of_a_lock_is_a_row() -> None:
    member = Member(orderly=True)
    queues = [{"topic": "T", "brokerName": "b", "queueId": number} for number in (0, 1)]
    body = msgspec.json.encode({"consumerGroup": "g", "clientId": "b@me", "mqSet": queues})
    asked = member.ask(RequestCode.LOCK_BATCH_MQ, body)
    member.answer(asked, success(body=msgspec.json.encode({"lockOKMQSet": queues[:1]})))
    assert [(row["key"], row["extra"]["held"]) for row in member.rows("lock")] == [
        ("T/0", True),
        ("T/1", False),
    ]


def test_message_sent_back_is_known_by_its_place_in_the_brokers_log() -> None:
    member = Member()
    pulled = member.pulls(1, 3)
    body = stored_message(topic="T", queue_id=1, queue_offset=3, offset=900, value=77, reconsumed=2)
    member.answer(pulled, success(body=body, nextBeginOffset=4))
    assert member.wire.stands_at("T/1") == 3
    asked = member.ask(RequestCode.CONSUMER_SEND_MSG_BACK, offset=900, delayLevel=0, group="g")
    member.answer(asked, success())
    (row,) = member.rows("send-back")
    assert (row["key"], row["value"], row["offset"], row["type"]) == ("T/1", 77, 3, "ok")
    assert (row["extra"]["level"], row["extra"]["reconsumed"]) == (0, 2)
    member.wire.done("T/1", 3)
    assert member.wire.stands_at("T/1") == 4


def test_member_is_told_that_its_offset_is_none_of_the_queues() -> None:
    member = Member()
    pulled = member.pulls(0, 30)
    moved = response(ResponseCode.PULL_OFFSET_MOVED, ext={"nextBeginOffset": "9"})
    member.answer(pulled, moved)
    (row,) = member.rows("moved")
    assert (row["key"], row["offset"], row["extra"]["from"]) == ("T/0", 9, 30)
    assert member.wire.stands_at("T/0") == 9


def test_everything_ends_with_the_member() -> None:
    member = Member()
    member.beats()
    member.pulls(0, 0)
    member.ask(RequestCode.UPDATE_CONSUMER_OFFSET, topic="T", queueId=0, commitOffset=1)
    member.wire.work("T/0")
    member.wire.end("died")
    ended = [(row["f"], row["type"]) for row in member.rows("member", "assignment", "commit")]
    assert ended == [("member", "ok"), ("assignment", "ok"), ("commit", "info")]
    assert member.rows("assignment")[0]["extra"]["ended"] == "died"


@pytest.mark.parametrize(
    ("retry", "reconsumed", "key"), [("", 0, "T/3"), ("T", 1, "%RETRY%g/3"), ("T", 0, "T/3")]
)
def test_queue_that_a_delivery_was_pulled_from(retry: str, reconsumed: int, key: str) -> None:
    said = {"topic": "T", "queue": 3, "retry": retry, "reconsumed": reconsumed}
    assert key_of_delivery(said, "g") == key


def test_store_hosts_are_replaced_and_nothing_else() -> None:
    both = b"".join(
        stored_message(topic="T", queue_id=0, queue_offset=n, offset=100 * n, value=n)
        for n in (1, 2)
    )
    changed = with_store_host(both, "127.0.0.9", 4321)
    size = len(both) // 2
    for start in (0, size):
        at = start + 48 + 8 + 8
        assert changed[at : at + 8] == bytes((127, 0, 0, 9)) + struct.pack(">i", 4321)
        assert changed[start:at] == both[start:at]
        assert changed[at + 8 : start + size] == both[at + 8 : start + size]


# -- sends -----------------------------------------------------------------------------------------

SEND = Invocation(f="send", key="T/1", value=5)
OK = {"said": "sent", "status": "OK", "offset": 8}


def sent(*queues: int) -> list[str]:
    """As the tap of a producer sees it."""
    seen = SentRows()
    for number in queues:
        ext = {"topic": "T", "queueId": str(number)}
        request = Command(code=RequestCode.SEND_MESSAGE, ext=ext, body=encode_body(5, 16))
        seen.asked(BROKER, request)
    return seen.queues.get(5, [])


def test_send_is_ok_if_it_went_out_once_to_its_queue() -> None:
    done = fate_of_send(SEND, OK, sent(1))
    assert (done.type, done.offset) == ("ok", 8)


def test_delayed_send_has_no_offset() -> None:
    delayed = Invocation(f="send", key="T/1", value=5, extra={"delay": 2})
    assert fate_of_send(delayed, OK, sent(1)).offset is None


@pytest.mark.parametrize(
    ("said", "queues", "error"),
    [
        ({"error": "no route"}, (), Definite),
        ({"error": "timeout"}, (1,), Indefinite),
        (OK, (1, 1), Indefinite),  # sent again: there may be two
        (OK, (1, 2), Indefinite),
        (OK, (2,), Indefinite),
        ({"status": "FLUSH_SLAVE_TIMEOUT", "offset": 8}, (1,), Indefinite),
    ],
)
def test_other_sends(said: dict[str, Any], queues: tuple[int, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        fate_of_send(SEND, said, sent(*queues))
