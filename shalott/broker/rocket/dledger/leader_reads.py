"""LeaderReads: how a member that does not lead learns what it must have before it answers a read.

ReadIndex for followers: the leader confirms with a majority that it still leads, and says how much
is committed; a follower whose queues have that much shows nothing older than was acknowledged when
it was asked. Asked with METADATA (50000), which every member serves on its Raft port.
"""

from __future__ import annotations

from collections.abc import Mapping

from shalott.broker.base.errors import BrokerError
from shalott.broker.raft.group import NotLeader, ProposalTimeout, RaftGroup
from shalott.broker.rocket.config import AddressBook
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

READ_INDEX = "readIndex"


class LeaderReads:
    """``addresses``: of the members' Raft ports, by name."""

    def __init__(self, book: AddressBook, addresses: Mapping[str, str], timeout_ms: int) -> None:
        self._client = RemotingClient(book.dial)
        self._addresses = dict(addresses)
        self._timeout_ms = timeout_ms
        self._group: RaftGroup | None = None

    def serve(self, group: RaftGroup) -> None:
        """Answer for this member from now on."""
        self._group = group

    async def close(self) -> None:
        await self._client.close()

    async def index_of(self, leader: str) -> int:
        """Up to where the leader's group is committed. Raises BrokerError if it does not say."""
        request = Command(code=RequestCode.DLEDGER_METADATA)
        answer = await self._client.invoke(self._addresses[leader], request, self._timeout_ms)
        index = answer.ext.get(READ_INDEX, "")
        if answer.code != ResponseCode.SUCCESS or not index.isdigit():
            raise BrokerError(f"{leader} does not lead, or not for sure: {answer.remark}")
        return int(index)

    async def handle(self, request: Command, caller: Caller) -> Command:
        """METADATA, at the leader."""
        if self._group is None:
            return response(ResponseCode.SYSTEM_ERROR, "the member is not there yet")
        try:
            index = await self._group.read_index(self._timeout_ms)
        except (NotLeader, ProposalTimeout) as error:
            return response(ResponseCode.SYSTEM_ERROR, str(error))
        return response(ResponseCode.SUCCESS, ext={READ_INDEX: str(index)})
