"""Messages of members as frames of the remoting protocol: DLedger's codes and field names
(reference section 2.3.2), numbers as text in the header, entries and snapshots as bytes in the
body: index 8, term 8, length 4, data, one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from shalott.broker.base.errors import BrokerError
from shalott.broker.raft import api
from shalott.broker.raft.api import Entry, PushType, RaftCode, Snapshot, VoteResult
from shalott.broker.rocket.remoting.command import Command, RequestCode, response

ENTRY_HEADER = struct.Struct(">qqI")
UNKNOWN_GROUP = 400


class WireError(BrokerError):
    """A frame that no member of this group sends."""


def encode_request(group: str, message: api.Request) -> Command:
    match message:
        case api.VoteRequest():
            ext = {
                "leaderId": message.candidate,
                "ledgerEndIndex": str(message.last_index),
                "ledgerEndTerm": str(message.last_term),
                "preVote": _flag(message.pre),
                "transfer": _flag(message.transfer),
            }
            return _request(RequestCode.DLEDGER_VOTE, group, message, ext)
        case api.HeartbeatRequest():
            ext = {"leaderId": message.leader, "round": str(message.round)}
            return _request(RequestCode.DLEDGER_HEART_BEAT, group, message, ext)
        case api.PushRequest():
            return _encode_push(group, message)
        case api.TakeLeadership():
            ext = {"leaderId": message.leader}
            return _request(RequestCode.DLEDGER_LEADERSHIP_TRANSFER, group, message, ext)


def _request(
    code: RequestCode, group: str, message: api.Request, ext: dict[str, str], body: bytes = b""
) -> Command:
    ext |= {"group": group, "term": str(message.term), "serial": str(message.serial)}
    return Command(code=code, ext=ext, body=body)


def _encode_push(group: str, message: api.PushRequest) -> Command:
    ext = {
        "leaderId": message.leader,
        "type": message.type,
        "preLogIndex": str(message.prev_index),
        "preLogTerm": str(message.prev_term),
        "commitIndex": str(message.commit_index),
        "nextTerm": str(message.next_term),
    }
    if message.snapshot is not None:
        ext |= {
            "lastIncludedIndex": str(message.snapshot.index),
            "lastIncludedTerm": str(message.snapshot.term),
        }
        code = RequestCode.DLEDGER_INSTALL_SNAPSHOT
        return _request(code, group, message, ext, message.snapshot.data)
    body = b"".join(
        ENTRY_HEADER.pack(entry.index, entry.term, len(entry.data)) + entry.data
        for entry in message.entries
    )
    return _request(RequestCode.DLEDGER_PUSH, group, message, ext, body)


def decode_request(group: str, command: Command) -> api.Request:
    """Raises WireError."""
    ext = command.ext
    try:
        if ext["group"] != group:
            raise WireError(f"unknown group {ext['group']!r}")
        serial, term, leader = int(ext["serial"]), int(ext["term"]), ext["leaderId"]
        match command.code:
            case RequestCode.DLEDGER_VOTE:
                return api.VoteRequest(
                    serial=serial,
                    term=term,
                    candidate=leader,
                    last_index=int(ext["ledgerEndIndex"]),
                    last_term=int(ext["ledgerEndTerm"]),
                    pre=ext["preVote"] == "true",
                    transfer=ext["transfer"] == "true",
                )
            case RequestCode.DLEDGER_HEART_BEAT:
                return api.HeartbeatRequest(
                    serial=serial, term=term, leader=leader, round=int(ext["round"])
                )
            case RequestCode.DLEDGER_PUSH | RequestCode.DLEDGER_INSTALL_SNAPSHOT:
                return _decode_push(serial, term, leader, command)
            case RequestCode.DLEDGER_LEADERSHIP_TRANSFER:
                return api.TakeLeadership(serial=serial, term=term, leader=leader)
    except (KeyError, ValueError, struct.error) as error:
        raise WireError(f"code {command.code}: {error!r}") from error
    raise WireError(f"code {command.code} is not of Raft")


def _decode_push(serial: int, term: int, leader: str, command: Command) -> api.PushRequest:
    ext = command.ext
    snapshot = None
    entries: tuple[Entry, ...] = ()
    if command.code == RequestCode.DLEDGER_INSTALL_SNAPSHOT:
        snapshot = Snapshot(
            int(ext["lastIncludedIndex"]), int(ext["lastIncludedTerm"]), command.body
        )
    else:
        entries = decode_entries(command.body)
    request = api.PushRequest(
        serial=serial,
        term=term,
        leader=leader,
        type=PushType(ext["type"]),
        prev_index=int(ext["preLogIndex"]),
        prev_term=int(ext["preLogTerm"]),
        commit_index=int(ext["commitIndex"]),
        next_term=int(ext["nextTerm"]),
        entries=entries,
        snapshot=snapshot,
    )
    follows = [request.prev_index + 1 + position for position in range(len(entries))]
    if [entry.index for entry in entries] != follows:
        raise WireError("entries that do not follow one another")
    if (snapshot is None) == (request.type == PushType.INSTALL_SNAPSHOT):
        raise WireError("a snapshot is missing, or is not wanted")
    return request


def decode_entries(body: bytes) -> tuple[Entry, ...]:
    entries = []
    position = 0
    while position < len(body):
        index, term, size = ENTRY_HEADER.unpack_from(body, position)
        position += ENTRY_HEADER.size
        if position + size > len(body):
            raise WireError("an entry is cut off")
        entries.append(Entry(index, term, body[position : position + size]))
        position += size
    return tuple(entries)


def encode_response(message: api.Response) -> Command:
    ext = {"term": str(message.term), "serial": str(message.serial)}
    match message:
        case api.VoteResponse():
            ext |= {
                "remoteId": message.voter,
                "voteResult": message.result,
                "preVote": _flag(message.pre),
            }
            return response(RaftCode.SUCCESS, ext=ext)
        case api.HeartbeatResponse():
            ext |= {"remoteId": message.node, "round": str(message.round)}
            return response(message.code, ext=ext)
        case api.PushResponse():
            ext |= {
                "remoteId": message.node,
                "type": message.type,
                "preLogIndex": str(message.prev_index),
                "index": str(message.match_index),
                "endIndex": str(message.end_index),
                "xTerm": str(message.x_term),
                "xIndex": str(message.x_index),
            }
            return response(message.code, ext=ext)


def decode_response(request: api.Request, command: Command) -> api.Response:
    """Raises WireError, also for the answer of a member that could not answer."""
    try:
        return _decode_response(request, command, command.ext)
    except (KeyError, ValueError) as error:
        raise WireError(f"code {command.code}: {command.remark or repr(error)}") from error


def _decode_response(
    request: api.Request, command: Command, ext: Mapping[str, str]
) -> api.Response:
    serial, term, node = int(ext["serial"]), int(ext["term"]), ext["remoteId"]
    match request:
        case api.VoteRequest():
            return api.VoteResponse(
                serial=serial,
                term=term,
                voter=node,
                result=VoteResult(ext["voteResult"]),
                pre=ext["preVote"] == "true",
            )
        case api.HeartbeatRequest():
            return api.HeartbeatResponse(
                serial=serial,
                term=term,
                node=node,
                code=RaftCode(command.code),
                round=int(ext["round"]),
            )
        case api.PushRequest():
            return api.PushResponse(
                serial=serial,
                term=term,
                node=node,
                type=PushType(ext["type"]),
                code=RaftCode(command.code),
                prev_index=int(ext["preLogIndex"]),
                match_index=int(ext["index"]),
                end_index=int(ext["endIndex"]),
                x_term=int(ext["xTerm"]),
                x_index=int(ext["xIndex"]),
            )
        case api.TakeLeadership():
            raise WireError("that has no answer")


def _flag(value: bool) -> str:
    return "true" if value else "false"
