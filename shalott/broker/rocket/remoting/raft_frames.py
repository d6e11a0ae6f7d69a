"""Messages of members as frames of the remoting protocol, as DLedger 0.3.1.2 writes them.

A frame's body is JSON with upstream's field names and entries in base64; its header has no fields,
and how a request ended is in the answer's body. Indexes count from 0 there, and from 1 in Raft.

Ours say more to each other, in fields that an original passes over (``Request`` and ``Answer`` have
them last). Where it may not pass over them it refuses, and changes nothing: a pre-vote names no
leader, and COMPARE and TRUNCATE of ours bear no entry. The refusal is how a member learns that it
speaks to an original (``Original``); raft_originals.py has what it says then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.raft import api
from shalott.broker.raft.api import Entry, PushType, RaftCode, Snapshot, VoteResult
from shalott.broker.rocket.remoting.command import Command, RequestCode, response

MAGIC = 1
T = TypeVar("T")


class WireError(BrokerError):
    """A frame that no member of this group sends. ``code`` is the answer to it."""

    def __init__(self, reason: str, code: RaftCode = RaftCode.UNEXPECTED_ARGUMENT) -> None:
        super().__init__(reason)
        self.code = code


class Original(BrokerError):
    """A member of upstream's answered, to what only ours understand."""


class PlacedEntry(msgspec.Struct, kw_only=True, rename="camel"):
    """DLedgerEntry. The CRCs are Java's ints: signed, and 0 where they were not computed."""

    body: bytes = b""
    body_crc: int = 0
    chain_crc: int = 0
    channel: int = 0
    index: int
    magic: int = MAGIC
    pos: int = 0
    size: int = 0
    term: int

    @property
    def entry(self) -> Entry:
        return Entry(self.index + 1, self.term, self.body)


class Request(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """All requests between members. What is None, or as Java's defaults have it, is not there."""

    code: int
    group: str = ""
    leader_id: str | None = None
    local_id: str | None = None
    remote_id: str | None = None
    term: int = -1
    ledger_end_index: int | None = None
    ledger_end_term: int | None = None
    type: str | None = None
    commit_index: int = -1
    entry: PlacedEntry | None = None
    batch_entry: list[PlacedEntry] = []
    batch: bool | None = None
    count: int | None = None
    first_entry_index: int | None = None
    last_entry_index: int | None = None
    total_size: int | None = None
    transfer_id: str | None = None
    transferee_id: str | None = None
    # Between ours. Indexes are Raft's.
    pre_vote_id: str | None = None  # who asks whether it would get the vote
    transfer: bool = False
    pre_log_index: int | None = None
    pre_log_term: int = 0
    next_term: int = 0
    snapshot: bytes | None = None
    read_index: bool = False


class Answer(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """All answers."""

    code: int
    group: str | None = None
    leader_id: str | None = None
    local_id: str | None = None
    remote_id: str | None = None
    term: int = -1
    vote_result: str | None = None
    index: int | None = None
    begin_index: int | None = None
    end_index: int | None = None
    count: int | None = None
    peers: dict[str, str] | None = None
    # Between ours. Indexes are Raft's.
    pre_vote: bool = False
    x_term: int | None = None
    x_index: int = -1
    read_index: int | None = None


class PlacingLog(Protocol):
    """A log whose entries have places that all members must agree on: DLedger's ledger."""

    @property
    def last_index(self) -> int: ...

    def placed(self, entry: Entry) -> PlacedEntry:
        """As it lies here."""
        ...

    def would_place(self, entries: Sequence[PlacedEntry]) -> bool:
        """Whether these, which follow one another, lie here where they say, or would. What they
        say of CRCs is remembered for when they are appended."""
        ...

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry] | None:
        """As broker.raft.storage.LogView."""
        ...

    async def load(self, first: int, max_bytes: int) -> Sequence[Entry]:
        """As broker.raft.storage.RaftStorage."""
        ...


class RaftFrames:
    """Of the member ``name`` of ``group``. Without a ``log`` entries have no places."""

    def __init__(self, group: str, name: str, log: PlacingLog | None = None) -> None:
        self.group = group
        self.name = name
        self.log = log

    # -- requests ----------------------------------------------------------------------------------

    def encode_request(self, to: str, message: api.Request) -> Command:
        request = self._request(to, message.term, self.name)
        match message:
            case api.VoteRequest():
                if message.pre:
                    request.leader_id, request.pre_vote_id = None, message.candidate
                request.ledger_end_index = message.last_index - 1
                request.ledger_end_term = message.last_term if message.last_index else -1
                request.transfer = message.transfer
                return _command(RequestCode.DLEDGER_VOTE, request)
            case api.HeartbeatRequest():
                return _command(RequestCode.DLEDGER_HEART_BEAT, request)
            case api.PushRequest():
                return self._encode_push(request, message)
            case api.TakeLeadership():
                request.transfer_id, request.transferee_id = self.name, to
                return _command(RequestCode.DLEDGER_LEADERSHIP_TRANSFER, request)

    def _request(self, to: str, term: int, leader: str | None) -> Request:
        return Request(
            code=RaftCode.SUCCESS,
            group=self.group,
            leader_id=leader,
            local_id=self.name,
            remote_id=to,
            term=term,
        )

    def _encode_push(self, request: Request, message: api.PushRequest) -> Command:
        request.pre_log_index, request.pre_log_term = message.prev_index, message.prev_term
        request.next_term = message.next_term
        if message.snapshot is not None:
            request.type, request.snapshot = message.type, message.snapshot.data
            request.commit_index = message.commit_index - 1
            return _command(RequestCode.DLEDGER_INSTALL_SNAPSHOT, request)
        return self._push(request, message, [self._placed(each) for each in message.entries])

    def _push(
        self, request: Request, message: api.PushRequest, entries: list[PlacedEntry]
    ) -> Command:
        request.type, request.commit_index = message.type, message.commit_index - 1
        request.batch, request.count = len(entries) > 1, len(entries)
        if request.batch:
            request.batch_entry = entries
            request.total_size = sum(each.size for each in entries)
        elif entries:
            request.entry = entries[0]
        request.first_entry_index = entries[0].index if entries else -1
        request.last_entry_index = entries[-1].index if entries else -1
        return _command(RequestCode.DLEDGER_PUSH, request)

    def _placed(self, entry: Entry) -> PlacedEntry:
        if self.log is not None:
            return self.log.placed(entry)
        return PlacedEntry(body=entry.data, index=entry.index - 1, term=entry.term)

    def encode_as_upstream(self, to: str, message: api.PushRequest, entry: Entry) -> Command:
        """COMPARE or TRUNCATE with the entry that it is about, as an original wants it."""
        request = self._request(to, message.term, self.name)
        return self._push(request, message, [self._placed(entry)])

    def metadata(self, to: str, *, read_index: bool = False) -> Command:
        request = self._request(to, -1, None)
        request.read_index = read_index
        return _command(RequestCode.DLEDGER_METADATA, request)

    def decode_request(self, command: Command, serial: int) -> tuple[str, api.Request]:
        """Who asks, and what. Raises WireError."""
        request = self.checked_request(command)
        sender = request.local_id or request.leader_id or ""
        match command.code:
            case RequestCode.DLEDGER_VOTE:
                return sender, _decode_vote(request, serial)
            case RequestCode.DLEDGER_HEART_BEAT:
                term, leader = request.term, request.leader_id or ""
                return sender, api.HeartbeatRequest(
                    serial=serial, term=term, leader=leader, round=0
                )
            case RequestCode.DLEDGER_PUSH | RequestCode.DLEDGER_INSTALL_SNAPSHOT:
                return sender, self._decode_push(request, serial)
            case RequestCode.DLEDGER_LEADERSHIP_TRANSFER:
                if request.transferee_id != self.name:
                    raise WireError(f"leadership for {request.transferee_id}")
                term, leader = request.term, request.transfer_id or ""
                return sender, api.TakeLeadership(serial=serial, term=term, leader=leader)
        raise WireError(f"code {command.code} is not of Raft")

    def checked_request(self, command: Command) -> Request:
        """A request of this group to this member. Raises WireError."""
        request = _decoded(command, Request)
        if request.group != self.group:
            raise WireError(f"unknown group {request.group!r}", RaftCode.UNKNOWN_GROUP)
        if request.remote_id != self.name:
            raise WireError(f"{request.remote_id!r} is another", RaftCode.UNKNOWN_MEMBER)
        return request

    def _decode_push(self, request: Request, serial: int) -> api.PushRequest:
        try:
            kind = PushType(request.type or "")
        except ValueError as error:
            raise WireError(str(error)) from error
        if (request.snapshot is None) == (kind == PushType.INSTALL_SNAPSHOT):
            raise WireError("a snapshot is missing, or is not wanted")
        placed = request.batch_entry or ([] if request.entry is None else [request.entry])
        if [each.index for each in placed] != [placed[0].index + n for n in range(len(placed))]:
            raise WireError("entries that do not follow one another")
        if placed and self.log is not None and not self.log.would_place(placed):
            reason = f"entry {placed[0].index} lies at {placed[0].pos}, and not so here"
            raise WireError(reason, RaftCode.INCONSISTENT_STATE)
        entries = tuple(each.entry for each in placed)
        snapshot = None
        prev_index, prev_term = request.pre_log_index, request.pre_log_term
        if prev_index is None:
            prev_index, prev_term, entries = _before(kind, entries)
        elif request.snapshot is not None:
            snapshot = Snapshot(prev_index, prev_term, request.snapshot)
        if kind == PushType.APPEND and entries[:1] and entries[0].index != prev_index + 1:
            raise WireError(f"entry {entries[0].index} does not follow {prev_index}")
        return api.PushRequest(
            serial=serial,
            term=request.term,
            leader=request.leader_id or "",
            type=kind,
            prev_index=prev_index,
            prev_term=prev_term,
            commit_index=request.commit_index + 1,
            next_term=request.next_term,
            entries=entries,
            snapshot=snapshot,
        )

    # -- answers -----------------------------------------------------------------------------------

    def encode_answer(self, request: api.Request, message: api.Response) -> Command:
        answer = Answer(
            code=RaftCode.SUCCESS, group=self.group, remote_id=self.name, term=message.term
        )
        match message:
            case api.VoteResponse():
                answer.vote_result, answer.pre_vote = message.result, message.pre
            case api.HeartbeatResponse():
                answer.code = message.code
            case api.PushResponse():
                assert isinstance(request, api.PushRequest)
                answer.code = message.code
                self._tell_place(answer, request.type, request.entries, message.end_index)
                answer.x_term, answer.x_index = message.x_term, message.x_index
        return _answer(answer)

    def refusal(self, request: Command, error: WireError) -> Command:
        """The answer to what could not be understood, or lies in another place."""
        answer = Answer(code=error.code, group=self.group, remote_id=self.name)
        try:
            asked = _decoded(request, Request)
        except WireError:
            return _answer(answer)
        answer.term = asked.term
        if asked.type is not None and self.log is not None:
            placed = asked.batch_entry or ([] if asked.entry is None else [asked.entry])
            entries = [each.entry for each in placed]
            self._tell_place(answer, asked.type, entries, self.log.last_index)
            answer.x_term = -1
        elif request.code == RequestCode.DLEDGER_VOTE:
            answer.vote_result = VoteResult.UNKNOWN_LEADER
        return _answer(answer)

    def metadata_answer(
        self,
        code: RaftCode,
        leader: str | None = None,
        peers: Mapping[str, str] | None = None,
        read_index: int | None = None,
    ) -> Command:
        """``peers``: the members' addresses."""
        answer = Answer(code=code, group=self.group, leader_id=leader, read_index=read_index)
        answer.peers = None if peers is None else dict(peers)
        return _answer(answer)

    @staticmethod
    def _tell_place(answer: Answer, kind: str, entries: Sequence[Entry], end_index: int) -> None:
        if kind != PushType.COMMIT and entries:
            answer.index, answer.count = entries[0].index - 1, len(entries)
        answer.begin_index = 0 if end_index else -1
        answer.end_index = end_index - 1

    def decode_answer(self, request: api.Request, command: Command) -> api.Response:
        """Raises WireError, also for the answer of a member that could not answer; Original."""
        answer = decoded_answer(command)
        node = answer.remote_id or ""
        # Where upstream's don't care for the term they say -1: then it is the request's.
        term = answer.term if answer.term >= 0 else request.term
        try:
            match request:
                case api.VoteRequest():
                    return _decode_vote_answer(request, answer, node, term)
                case api.HeartbeatRequest():
                    return api.HeartbeatResponse(
                        serial=request.serial,
                        term=term,
                        node=node,
                        code=RaftCode(answer.code),
                        round=request.round,
                    )
                case api.PushRequest():
                    return decode_push_answer(request, answer, node, term)
                case api.TakeLeadership():
                    raise WireError("that has no answer")
        except ValueError as error:
            raise WireError(f"an answer of {answer.code}: {error}") from error


def decoded_answer(command: Command) -> Answer:
    """Raises WireError."""
    if command.code != RaftCode.SUCCESS:
        raise WireError(f"code {command.code}: {command.remark}")
    return _decoded(command, Answer)


def _decoded(command: Command, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(command.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"code {command.code}: {error}") from error


def _command(code: RequestCode, request: Request) -> Command:
    return Command(code=code, body=msgspec.json.encode(request))


def _answer(answer: Answer) -> Command:
    return response(RaftCode.SUCCESS, body=msgspec.json.encode(answer))


def _decode_vote(request: Request, serial: int) -> api.VoteRequest:
    last_index = (request.ledger_end_index if request.ledger_end_index is not None else -1) + 1
    return api.VoteRequest(
        serial=serial,
        term=request.term,
        candidate=request.pre_vote_id or request.leader_id or "",
        last_index=last_index,
        last_term=max(0, request.ledger_end_term or 0),
        pre=request.pre_vote_id is not None,
        transfer=request.transfer,
    )


def _before(kind: PushType, entries: tuple[Entry, ...]) -> tuple[int, int, tuple[Entry, ...]]:
    """What an original's push is about, which says nothing of the entry before: (prev_index,
    prev_term, entries) of api.PushRequest. Raises WireError."""
    if kind == PushType.COMMIT:
        return 0, api.UNTOLD, ()
    if not entries:
        raise WireError(f"{kind} without an entry")
    first = entries[0]
    if kind == PushType.APPEND:
        return first.index - 1, api.UNTOLD, entries
    return first.index, first.term, entries if kind == PushType.TRUNCATE else ()


def _decode_vote_answer(
    request: api.VoteRequest, answer: Answer, node: str, term: int
) -> api.VoteResponse:
    if request.pre and not answer.pre_vote:
        raise Original(f"{node} knows no pre-votes")
    return api.VoteResponse(
        serial=request.serial,
        term=term,
        voter=node,
        result=VoteResult(answer.vote_result or ""),
        pre=request.pre,
    )


def decode_push_answer(
    request: api.PushRequest, answer: Answer, node: str, term: int
) -> api.PushResponse:
    code, prev_index = RaftCode(answer.code), request.prev_index
    end_index = (-1 if answer.end_index is None else answer.end_index) + 1
    x_term, x_index = answer.x_term, answer.x_index
    if x_term is None:  # an original's
        if code == RaftCode.UNEXPECTED_ARGUMENT and not request.entries:
            raise Original(f"{node} wants entries to compare")
        if code == RaftCode.SUCCESS and end_index < prev_index:
            code = RaftCode.INCONSISTENT_STATE  # it looks at no entry when it hears a COMMIT
        # Somewhere it has other entries: one step back is all that is known.
        x_term, x_index = (-1, -1) if end_index < prev_index else (request.prev_term, prev_index)
    is_agreed = code == RaftCode.SUCCESS
    return api.PushResponse(
        serial=request.serial,
        term=term,
        node=node,
        type=request.type,
        code=code,
        prev_index=prev_index,
        match_index=prev_index + len(request.entries) if is_agreed else 0,
        end_index=end_index,
        x_term=x_term,
        x_index=x_index,
    )
