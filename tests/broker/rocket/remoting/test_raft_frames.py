"""Messages of members on the wire: between ours, to and from members of upstream's."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from shalott.broker.raft import api
from shalott.broker.raft.api import Entry, PushType, RaftCode, VoteResult
from shalott.broker.rocket.remoting.codec import FrameReader, encode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.raft_frames import (
    Original,
    PlacedEntry,
    RaftFrames,
    WireError,
)
from shalott.broker.rocket.remoting.raft_originals import Originals

pytestmark = pytest.mark.unit

ENTRIES = (Entry(8, 3, b"\0\xffdata"), Entry(9, 4, b""))
OURS, THEIRS = RaftFrames("group", "a"), RaftFrames("group", "b")


def push(kind: PushType, **more: object) -> api.PushRequest:
    fields = {"serial": 5, "term": 4, "leader": "a", "prev_index": 7, "prev_term": 3}
    return api.PushRequest(type=kind, commit_index=6, **{**fields, **more})  # type: ignore[arg-type]


def vote(*, pre: bool) -> api.VoteRequest:
    return api.VoteRequest(
        serial=1, term=2, candidate="a", last_index=3, last_term=1, pre=pre, transfer=False
    )


REQUESTS: list[tuple[int, api.Request]] = [
    (51001, vote(pre=True)),
    (51001, vote(pre=False)),
    (51002, api.HeartbeatRequest(serial=1, term=2, leader="a", round=0)),
    (51004, push(PushType.COMPARE)),
    (51004, push(PushType.TRUNCATE, next_term=4)),
    (51004, push(PushType.APPEND, entries=ENTRIES)),
    (51004, push(PushType.APPEND, entries=ENTRIES[:1])),
    (51004, push(PushType.COMMIT)),
    (51006, push(PushType.INSTALL_SNAPSHOT, snapshot=api.Snapshot(7, 3, b"state"))),
    (51005, api.TakeLeadership(serial=1, term=2, leader="a")),
]
HEARTBEAT = api.HeartbeatRequest(serial=1, term=2, leader="a", round=9)
REFUSED = api.PushResponse(
    serial=5,
    term=4,
    node="b",
    type=PushType.COMPARE,
    code=RaftCode.INCONSISTENT_STATE,
    prev_index=7,
    end_index=9,
    x_term=2,
    x_index=4,
)
RESPONSES: list[tuple[api.Request, api.Response]] = [
    (
        vote(pre=True),
        api.VoteResponse(serial=1, term=2, voter="b", result=VoteResult.ALREADY_VOTED, pre=True),
    ),
    (
        HEARTBEAT,
        api.HeartbeatResponse(serial=1, term=3, node="b", code=RaftCode.EXPIRED_TERM, round=9),
    ),
    (push(PushType.COMPARE), REFUSED),
    (
        push(PushType.APPEND, entries=ENTRIES),
        api.PushResponse(
            serial=5,
            term=4,
            node="b",
            type=PushType.APPEND,
            code=RaftCode.SUCCESS,
            prev_index=7,
            match_index=9,
            end_index=9,
        ),
    ),
]


def sent(command: Command) -> Command:
    (received,) = FrameReader().feed(encode(command))
    return received


@pytest.mark.parametrize(("code", "message"), REQUESTS)
def test_a_request_comes_as_it_was_sent(code: int, message: api.Request) -> None:
    command = sent(OURS.encode_request("b", message))
    assert (command.code, command.ext) == (code, {})
    assert THEIRS.decode_request(command, message.serial) == ("a", message)


@pytest.mark.parametrize(("request_", "message"), RESPONSES)
def test_an_answer_comes_as_it_was_sent(request_: api.Request, message: api.Response) -> None:
    command = sent(THEIRS.encode_answer(request_, message))
    assert command.code == 200
    assert OURS.decode_answer(request_, command) == message


@pytest.mark.parametrize(
    ("change", "reason", "code"),
    [
        ({"group": "other"}, "unknown group", RaftCode.UNKNOWN_GROUP),
        ({"remoteId": "c"}, "'c' is another", RaftCode.UNKNOWN_MEMBER),
        ({"term": "four"}, "term", RaftCode.UNEXPECTED_ARGUMENT),
        ({"type": "EAT"}, "EAT", RaftCode.UNEXPECTED_ARGUMENT),
        ({"preLogIndex": 9}, "follow", RaftCode.UNEXPECTED_ARGUMENT),
        ({"type": "INSTALL_SNAPSHOT"}, "snapshot", RaftCode.UNEXPECTED_ARGUMENT),
    ],
)
def test_what_no_member_sends_is_refused(
    change: dict[str, object], reason: str, code: RaftCode
) -> None:
    command = OURS.encode_request("b", push(PushType.APPEND, entries=ENTRIES))
    command.body = json.dumps(json.loads(command.body) | change).encode()
    with pytest.raises(WireError, match=reason) as caught:
        THEIRS.decode_request(command, 1)
    assert caught.value.code == code
    assert json.loads(THEIRS.refusal(command, caught.value).body)["code"] == code


def test_an_error_is_no_answer() -> None:
    with pytest.raises(WireError, match="busy"):
        OURS.decode_answer(HEARTBEAT, Command(code=1, remark="busy"))


# -- an original's ---------------------------------------------------------------------------------


def original(**fields: object) -> Command:
    """As captured between two of them; ``fields`` differ."""
    common = {"code": 200, "group": "group", "leaderId": "a", "localId": "a", "remoteId": "b"}
    return Command(code=51004, body=json.dumps({**common, "term": 4, **fields}).encode())


ENTRY = {"body": base64.b64encode(b"\0\xffdata").decode(), "bodyCrc": 0, "chainCrc": 0}
ENTRY |= {"channel": 0, "index": 7, "magic": 1, "pos": 480, "size": 54, "term": 3}
PUSH: dict[str, Any] = {"batch": False, "batchEntry": [], "commitIndex": 5, "count": 1}
PUSH |= {"entry": ENTRY, "firstEntryIndex": 7, "lastEntryIndex": 7, "totalSize": 0}
COMMIT = {**PUSH, "type": "COMMIT", "count": 0, "firstEntryIndex": -1, "lastEntryIndex": -1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**PUSH, "type": "COMPARE"}, push(PushType.COMPARE, prev_index=8)),
        (
            {**PUSH, "type": "TRUNCATE"},
            push(PushType.TRUNCATE, prev_index=8, entries=ENTRIES[:1]),
        ),
        (
            {**PUSH, "type": "APPEND"},
            push(PushType.APPEND, prev_term=api.UNTOLD, entries=ENTRIES[:1]),
        ),
        (
            {**PUSH, "type": "APPEND", "entry": None, "batch": True, "batchEntry": [ENTRY]},
            push(PushType.APPEND, prev_term=api.UNTOLD, entries=ENTRIES[:1]),
        ),
        (
            {key: value for key, value in COMMIT.items() if key != "entry"},
            push(PushType.COMMIT, prev_index=0, prev_term=api.UNTOLD),
        ),
    ],
)
def test_an_originals_push_is_understood(fields: dict[str, Any], message: api.PushRequest) -> None:
    assert THEIRS.decode_request(original(**fields), 5) == ("a", message)


def test_an_originals_vote_request_and_heartbeat_are_understood() -> None:
    asked = original(ledgerEndIndex=-1, ledgerEndTerm=-1)
    asked.code = 51001
    empty = api.VoteRequest(serial=1, term=4, candidate="a", last_index=0, last_term=0, pre=False)
    assert THEIRS.decode_request(asked, 1) == ("a", empty)
    beat = original()
    beat.code = 51002
    heartbeat = api.HeartbeatRequest(serial=1, term=4, leader="a", round=0)
    assert THEIRS.decode_request(beat, 1) == ("a", heartbeat)


def test_what_ours_say_has_upstreams_fields() -> None:
    def fields(message: api.Request) -> dict[str, Any]:
        return dict(json.loads(OURS.encode_request("b", message).body))

    common = {"code": 200, "group": "group", "localId": "a", "remoteId": "b"}
    asked = {**common, "leaderId": "a", "term": 2}
    assert fields(vote(pre=False)) == {**asked, "ledgerEndIndex": 2, "ledgerEndTerm": 1}
    assert fields(HEARTBEAT) == asked
    found = fields(push(PushType.APPEND, entries=ENTRIES[:1]))
    entry = {**ENTRY, "pos": 0, "size": 0}
    wanted = {**PUSH, **asked, "term": 4, "type": "APPEND", "entry": entry}
    ours = {"preLogIndex": 7, "preLogTerm": 3}
    absent = ("batchEntry", "totalSize")  # Java has them empty
    assert found == {key: wanted[key] for key in wanted if key not in absent} | ours


def test_what_an_original_must_not_take_for_its_own_it_refuses() -> None:
    pre = json.loads(OURS.encode_request("b", vote(pre=True)).body)
    assert "leaderId" not in pre  # an unknown member's, which changes nothing
    for kind in (PushType.COMPARE, PushType.TRUNCATE):
        body = json.loads(OURS.encode_request("b", push(kind)).body)
        assert "entry" not in body and "batchEntry" not in body


def said(**fields: object) -> Command:
    return response(200, body=json.dumps({"code": 200, "term": 4, **fields}).encode())


def test_an_originals_answers() -> None:
    heard = OURS.decode_answer(HEARTBEAT, said(term=-1))
    assert (heard.term, getattr(heard, "code", None), getattr(heard, "round", None)) == (2, 200, 9)
    append = push(PushType.APPEND, entries=ENTRIES)
    fields = {"beginIndex": 0, "count": 2, "group": "group", "index": 7}
    done = OURS.decode_answer(append, said(endIndex=8, **fields))
    assert isinstance(done, api.PushResponse)
    assert (done.code, done.match_index, done.end_index) == (200, 9, 9)
    wiped = OURS.decode_answer(push(PushType.COMMIT), said(beginIndex=-1, endIndex=-1))
    assert isinstance(wiped, api.PushResponse)
    assert (wiped.code, wiped.end_index, wiped.x_term) == (406, 0, -1)
    other = OURS.decode_answer(append, said(code=406, endIndex=20, **fields))
    assert isinstance(other, api.PushResponse)
    assert (other.match_index, other.x_term, other.x_index) == (0, 3, 7)
    with pytest.raises(Original):
        OURS.decode_answer(push(PushType.TRUNCATE), said(code=411))
    with pytest.raises(Original):
        OURS.decode_answer(vote(pre=True), said(voteResult="REJECT_UNKNOWN_LEADER"))


class OfOriginal:
    """A member of upstream's as far as it is asked here: whole entries, by their terms."""

    def __init__(self, *terms: int, leader: str | None = None) -> None:
        self.terms = list(terms)
        self.leader = leader
        self.heard: list[str] = []

    async def ask(self, to: str, command: Command) -> Command:
        asked = json.loads(command.body)
        if command.code == 50000:
            return said(**({} if self.leader is None else {"leaderId": self.leader}))
        index, term = asked["entry"]["index"], asked["entry"]["term"]
        has = self.terms[index : index + 1] == [term]
        self.heard.append(f"{asked['type']} {index}")
        code = 200
        if asked["type"] == "TRUNCATE":
            assert has or index == 0
            self.terms = [*self.terms[:index], term]
        elif not has:
            code = 406
        return said(code=code, index=index, beginIndex=0, endIndex=len(self.terms) - 1)


class OfOurs:
    """A leader's log, by the terms of its entries."""

    def __init__(self, *terms: int) -> None:
        self.terms = terms

    @property
    def last_index(self) -> int:
        return len(self.terms)

    def placed(self, entry: Entry) -> PlacedEntry:
        return PlacedEntry(body=entry.data, index=entry.index - 1, term=entry.term)

    def would_place(self, entries: Sequence[PlacedEntry]) -> bool:
        return True

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        return None

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        return [Entry(first, self.terms[first - 1], b"")]


def asked_of(
    member: OfOriginal, log: OfOurs, message: api.Request
) -> api.VoteResponse | api.PushResponse:
    originals = Originals(RaftFrames("group", "a", log), member.ask)
    answer = asyncio.run(originals.answer("b", message))
    assert isinstance(answer, api.VoteResponse | api.PushResponse)
    return answer


def test_an_original_is_compared_entry_by_entry() -> None:
    log = OfOurs(1, 1, 2, 2)
    found = asked_of(OfOriginal(1, 1, 1), log, push(PushType.COMPARE, prev_index=2, prev_term=1))
    assert isinstance(found, api.PushResponse)
    assert (found.code, found.match_index, found.end_index) == (200, 2, 3)
    found = asked_of(OfOriginal(1, 1, 1), log, push(PushType.COMPARE, prev_index=3, prev_term=2))
    assert isinstance(found, api.PushResponse)
    assert (found.code, found.end_index, found.x_term, found.x_index) == (406, 3, 2, 3)
    found = asked_of(OfOriginal(), log, push(PushType.COMPARE, prev_index=0, prev_term=0))
    assert isinstance(found, api.PushResponse)
    assert (found.code, found.match_index, found.end_index) == (200, 0, 0)


@pytest.mark.parametrize(
    ("terms", "prev_index", "agreed", "is_cut"),
    [
        ((1, 1, 2, 2, 2), 2, 4, True),  # what both have beyond the question stays
        ((1, 1, 2), 2, 3, False),
        ((1, 1, 1, 1), 2, 2, True),
        ((1, 1, 1, 1), 0, 2, True),
        ((0, 0), 0, 1, True),  # nothing agrees: the first entry is told
    ],
)
def test_an_original_keeps_all_that_agrees(
    terms: tuple[int, ...], prev_index: int, agreed: int, is_cut: bool
) -> None:
    member, log = OfOriginal(*terms), OfOurs(1, 1, 2, 2)
    found = asked_of(member, log, push(PushType.TRUNCATE, prev_index=prev_index, prev_term=1))
    assert isinstance(found, api.PushResponse)
    assert (found.code, found.match_index) == (200, agreed)
    assert member.terms == [1, 1, 2, 2][:agreed]
    assert [what for what in member.heard if "TRUNCATE" in what] == (
        [f"TRUNCATE {agreed - 1}"] if is_cut else []
    )


def test_an_original_says_by_its_leader_whether_it_would_vote() -> None:
    for leader, wanted in (("c", VoteResult.ALREADY_HAS_LEADER), (None, VoteResult.ACCEPT)):
        found = asked_of(OfOriginal(leader=leader), OfOurs(), vote(pre=True))
        assert isinstance(found, api.VoteResponse)
        assert (found.result, found.pre) == (wanted, True)


def test_a_place_that_is_not_the_leaders_is_refused_with_the_logs_end() -> None:
    class Elsewhere(OfOurs):
        def would_place(self, entries: Sequence[PlacedEntry]) -> bool:
            return False

    frames = RaftFrames("group", "b", Elsewhere(1, 1))
    command = original(**{**PUSH, "type": "APPEND"})
    with pytest.raises(WireError) as caught:
        frames.decode_request(command, 1)
    body = msgspec.json.decode(frames.refusal(command, caught.value).body)
    assert (body["code"], body["endIndex"], body["index"]) == (406, 1, 7)
