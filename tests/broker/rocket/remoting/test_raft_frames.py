"""Messages on the wire: DLedger's codes and names, and what is refused."""

from __future__ import annotations

import pytest

from shalott.broker.raft import api
from shalott.broker.raft.api import RaftCode
from shalott.broker.rocket.remoting import raft_frames as wire
from shalott.broker.rocket.remoting.codec import FrameReader, encode
from shalott.broker.rocket.remoting.command import Command

pytestmark = pytest.mark.unit

ENTRIES = (api.Entry(8, 3, b"\0\xffdata"), api.Entry(9, 4, b""))


def push(kind: api.PushType, **more: object) -> api.PushRequest:
    fields = {"serial": 5, "term": 4, "leader": "a", "prev_index": 7, "prev_term": 3}
    return api.PushRequest(type=kind, commit_index=6, **fields, **more)  # type: ignore[arg-type]


REQUESTS: list[tuple[int, api.Request]] = [
    (
        51001,
        api.VoteRequest(
            serial=1, term=2, candidate="a", last_index=3, last_term=1, pre=True, transfer=False
        ),
    ),
    (51002, api.HeartbeatRequest(serial=1, term=2, leader="a", round=9)),
    (51004, push(api.PushType.COMPARE)),
    (51004, push(api.PushType.TRUNCATE, next_term=4)),
    (51004, push(api.PushType.APPEND, entries=ENTRIES)),
    (51004, push(api.PushType.COMMIT)),
    (51006, push(api.PushType.INSTALL_SNAPSHOT, snapshot=api.Snapshot(7, 3, b"state"))),
    (51005, api.TakeLeadership(serial=1, term=2, leader="a")),
]

RESPONSES: list[tuple[int, api.Request, api.Response]] = [
    (
        200,
        REQUESTS[0][1],
        api.VoteResponse(
            serial=1, term=2, voter="b", result=api.VoteResult.ALREADY_VOTED, pre=True
        ),
    ),
    (
        403,
        REQUESTS[1][1],
        api.HeartbeatResponse(serial=1, term=3, node="b", code=RaftCode.EXPIRED_TERM, round=9),
    ),
    (
        406,
        REQUESTS[2][1],
        api.PushResponse(
            serial=5,
            term=4,
            node="b",
            type=api.PushType.COMPARE,
            code=RaftCode.INCONSISTENT_STATE,
            prev_index=7,
            match_index=0,
            end_index=9,
            x_term=2,
            x_index=4,
        ),
    ),
]


def sent(command: Command) -> Command:
    (received,) = FrameReader().feed(encode(command))
    return received


@pytest.mark.parametrize(("code", "message"), REQUESTS)
def test_a_request_comes_as_it_was_sent(code: int, message: api.Request) -> None:
    command = sent(wire.encode_request("group", message))
    assert command.code == code
    assert wire.decode_request("group", command) == message


@pytest.mark.parametrize(("code", "request_", "message"), RESPONSES)
def test_an_answer_comes_as_it_was_sent(
    code: int, request_: api.Request, message: api.Response
) -> None:
    command = sent(wire.encode_response(message))
    assert command.code == code
    assert wire.decode_response(request_, command) == message


def test_the_bytes_of_an_entry() -> None:
    command = wire.encode_request("group", push(api.PushType.APPEND, entries=ENTRIES[:1]))
    assert command.body == (
        b"\0\0\0\0\0\0\0\x08" + b"\0\0\0\0\0\0\0\x03" + b"\0\0\0\x06" + b"\0\xffdata"
    )
    assert command.ext == {
        "group": "group",
        "term": "4",
        "serial": "5",
        "leaderId": "a",
        "type": "APPEND",
        "preLogIndex": "7",
        "preLogTerm": "3",
        "commitIndex": "6",
        "nextTerm": "0",
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, "unknown group"),
        ({"term": "four"}, "four"),
        ({"type": "EAT"}, "EAT"),
        ({"preLogIndex": "9"}, "follow"),
        ({"type": "INSTALL_SNAPSHOT"}, "snapshot"),
    ],
)
def test_what_no_member_sends_is_refused(change: dict[str, str], reason: str) -> None:
    command = wire.encode_request("group", push(api.PushType.APPEND, entries=ENTRIES))
    command.ext.update(change)
    with pytest.raises(wire.WireError, match=reason):
        wire.decode_request("group", command)


def test_entries_that_are_cut_off_are_refused() -> None:
    command = wire.encode_request("group", push(api.PushType.APPEND, entries=ENTRIES[:1]))
    for size in range(1, len(command.body)):
        torn = Command(code=command.code, ext=command.ext, body=command.body[:size])
        with pytest.raises(wire.WireError):
            wire.decode_request("group", torn)


def test_an_error_is_no_answer() -> None:
    with pytest.raises(wire.WireError, match="busy"):
        wire.decode_response(REQUESTS[1][1], Command(code=1, remark="busy"))
