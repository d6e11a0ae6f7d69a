"""What a member says to a member of upstream's DLedger where that one does not know our words.

Would it vote? METADATA says whether it has a leader, and changes nothing: who has one gives no
vote, as with ours. What of the leader's log has it? An original compares whole entries, one at a
time, and its TRUNCATE removes all that follows, also what the leader has itself and may have
counted. So it is asked for the last entry on which both agree before anything is cut, and is told
to keep that: what a quorum has is never taken from it. It can't be told to forget all: then the
first entry goes along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from shalott.broker.raft import api
from shalott.broker.raft.api import PushType, RaftCode, VoteResult
from shalott.broker.rocket.remoting.command import Command
from shalott.broker.rocket.remoting.raft_frames import (
    Answer,
    Original,
    RaftFrames,
    WireError,
    decoded_answer,
)


class Refused(Exception):
    """The original is not in the state to say anything; ``code`` is its."""

    def __init__(self, code: RaftCode) -> None:
        super().__init__(code.name)
        self.code = code


class Originals:
    """``ask`` sends a request to a member and gives its answer; it raises BrokerError."""

    def __init__(
        self, frames: RaftFrames, ask: Callable[[str, Command], Awaitable[Command]]
    ) -> None:
        self._frames = frames
        self._ask = ask
        self._busy: dict[str, None] = {}

    async def answer(self, to: str, message: api.Request) -> api.Response | None:
        """What one of ours would answer; None if a former question to it is under way. Raises
        BrokerError."""
        if isinstance(message, api.VoteRequest):
            return await self._would_vote(to, message)
        if not isinstance(message, api.PushRequest) or self._frames.log is None:
            raise Original(f"{to} does not know {type(message).__name__}")
        if to in self._busy:
            return None
        self._busy[to] = None
        try:
            if message.type == PushType.TRUNCATE:
                return await self._truncate(to, message)
            return await self._compare(to, message)
        except Refused as refused:
            return _answer(to, message, 0, code=refused.code)
        finally:
            del self._busy[to]

    async def _would_vote(self, to: str, request: api.VoteRequest) -> api.VoteResponse:
        answer = decoded_answer(await self._ask(to, self._frames.metadata(to)))
        has_leader = answer.leader_id is not None
        return api.VoteResponse(
            serial=request.serial,
            term=0 if has_leader else request.term,
            voter=to,
            result=VoteResult.ALREADY_HAS_LEADER if has_leader else VoteResult.ACCEPT,
            pre=True,
        )

    async def _compare(self, to: str, request: api.PushRequest) -> api.PushResponse | None:
        index = request.prev_index
        agrees, end_index = await self._has(to, request, max(index, 1))
        if agrees or index == 0:
            return _answer(to, request, index, end_index=end_index)
        x_index = -1 if end_index < index else index
        return msgspec.structs.replace(
            _answer(to, request, 0, code=RaftCode.INCONSISTENT_STATE, end_index=end_index),
            x_term=-1 if x_index < 0 else request.prev_term,
            x_index=x_index,
        )

    async def _truncate(self, to: str, request: api.PushRequest) -> api.PushResponse:
        assert self._frames.log is not None
        agreed, end_index = await self._has(to, request, max(request.prev_index, 1))
        low = max(request.prev_index, 1) if agreed else 0
        high = min(end_index, self._frames.log.last_index) if agreed else 0
        while low < high:
            middle = (low + high + 1) // 2
            if (await self._has(to, request, middle))[0]:
                low = middle
            else:
                high = middle - 1
        if low == 0 or end_index > low:
            low = max(low, 1)
            answer = await self._tell(to, request, low)
            if answer.code != RaftCode.SUCCESS:
                raise Refused(RaftCode(answer.code))
        return _answer(to, request, low, end_index=low)

    async def _has(self, to: str, request: api.PushRequest, index: int) -> tuple[bool, int]:
        """Whether it has our entry ``index``, and where its log ends."""
        asked = msgspec.structs.replace(request, type=PushType.COMPARE)
        answer = await self._tell(to, asked, index)
        if answer.code not in (RaftCode.SUCCESS, RaftCode.INCONSISTENT_STATE):
            raise Refused(RaftCode(answer.code))
        end_index = (-1 if answer.end_index is None else answer.end_index) + 1
        return answer.code == RaftCode.SUCCESS, end_index

    async def _tell(self, to: str, request: api.PushRequest, index: int) -> Answer:
        log = self._frames.log
        assert log is not None
        entries = log.entries(index, 0)
        if entries is None:
            entries = await log.load(index, 0)
        if not entries:
            raise WireError(f"entry {index} is not there any more, or not yet")
        command = self._frames.encode_as_upstream(to, request, entries[0])
        answer = decoded_answer(await self._ask(to, command))
        if answer.x_term is not None:
            raise WireError(f"{to} is one of ours now")
        return answer


def _answer(
    to: str,
    request: api.PushRequest,
    match_index: int,
    *,
    code: RaftCode = RaftCode.SUCCESS,
    end_index: int = 0,
) -> api.PushResponse:
    return api.PushResponse(
        serial=request.serial,
        term=request.term,
        node=to,
        type=request.type,
        code=code,
        prev_index=request.prev_index,
        match_index=match_index,
        end_index=end_index,
    )
