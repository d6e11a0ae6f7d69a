"""RaftTransport: messages between members, over the remoting protocol on a port of their own.

A request of the core is a request on the wire; the core's answer, which may come much later, when
a disk has written something, is the answer on the wire. What is lost is lost: the core asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from broker.errors import BrokerError
from broker.raft import api, wire
from broker.raft.api import Code, RaftSettings
from broker.remoting.client import RemotingClient, Unanswered, Unreachable
from broker.remoting.codes import RequestCode
from broker.remoting.command import Command, response
from broker.remoting.server import Caller, Handler, RemotingServer

log = logging.getLogger("broker.raft")

CODES = (
    RequestCode.DLEDGER_VOTE,
    RequestCode.DLEDGER_HEART_BEAT,
    RequestCode.DLEDGER_PUSH,
    RequestCode.DLEDGER_LEADERSHIP_TRANSFER,
    RequestCode.DLEDGER_INSTALL_SNAPSHOT,
)
SNAPSHOT_PATIENCE = 10  # as the core has it


class Transport(Protocol):
    """What the runner needs of a network."""

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        """``receive(sender, message)`` is called for all that comes."""
        ...

    async def stop(self) -> None: ...

    def send(self, to: str, message: api.Message) -> None:
        """Now or never: nobody hears whether it arrived."""
        ...


class RaftTransport:
    """``addresses``: of all members by name, as they advertise them; ``dial`` says where to connect
    for one. ``handlers``: other requests that this port answers."""

    def __init__(
        self,
        group: str,
        addresses: Mapping[str, str],
        *,
        host: str,
        port: int,
        dial: Callable[[str], tuple[str, int]],
        settings: RaftSettings,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        self._group = group
        self._addresses = dict(addresses)
        self._settings = settings
        self._client = RemotingClient(dial)
        served: dict[int, Handler] = {**(handlers or {})}
        served.update(dict.fromkeys(CODES, self._handle))
        self._server = RemotingServer(served, host=host, port=port)
        self._receive: Callable[[str, api.Message], None] | None = None
        self._asked: dict[tuple[str, int], asyncio.Future[Command]] = {}
        self._sending: dict[asyncio.Task[None], None] = {}

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        """Raises ConfigError if the port is taken."""
        self._receive = receive
        await self._server.start()

    async def stop(self) -> None:
        self._receive = None
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await self._client.close()
        await self._server.stop()

    def send(self, to: str, message: api.Message) -> None:
        if isinstance(message, api.VoteResponse | api.HeartbeatResponse | api.PushResponse):
            asked = self._asked.get((to, message.serial))
            if asked is not None and not asked.done():
                asked.set_result(wire.encode_response(message))
            return
        task = asyncio.create_task(self._ask(to, message), name=f"raft to {to}")
        self._sending[task] = None
        task.add_done_callback(lambda done: self._sending.pop(done, None))

    async def _ask(self, to: str, message: api.Request) -> None:
        command = wire.encode_request(self._group, message)
        address = self._addresses[to]
        try:
            if isinstance(message, api.TakeLeadership):
                await self._client.oneway(address, command)
                return
            answer = await self._client.invoke(address, command, self._timeout_ms(message))
            decoded = wire.decode_response(message, answer)
        except (Unreachable, Unanswered) as error:
            log.debug("%s: %s", to, error)
            return
        except BrokerError as error:
            log.warning("%s: %s", to, error)
            return
        if self._receive is not None and decoded.serial == message.serial:
            self._receive(to, decoded)

    def _timeout_ms(self, message: api.Request) -> int:
        """Longer than the core waits: a late answer still says what its sender has."""
        settings = self._settings
        if isinstance(message, api.PushRequest):
            longer = SNAPSHOT_PATIENCE if message.snapshot is not None else 2
            return longer * settings.push_timeout_ms
        return max(settings.heartbeat_interval_ms, settings.vote_max_ms)

    async def _handle(self, command: Command, caller: Caller) -> Command | None:
        try:
            message = wire.decode_request(self._group, command)
        except wire.WireError as error:
            log.warning("%s: %s", caller.address, error)
            return response(wire.UNKNOWN_GROUP, str(error))
        sender = message.candidate if isinstance(message, api.VoteRequest) else message.leader
        if self._receive is None or sender not in self._addresses:
            return response(Code.UNKNOWN_MEMBER, f"{sender} is no member, or this is none yet")
        if isinstance(message, api.TakeLeadership):
            self._receive(sender, message)
            return response(Code.SUCCESS)
        return await self._answer(sender, message)

    async def _answer(self, sender: str, message: api.Request) -> Command:
        """Hand ``message`` to the core and wait for what it says."""
        assert self._receive is not None
        key = (sender, message.serial)
        asked: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._asked[key] = asked
        try:
            self._receive(sender, message)
            async with asyncio.timeout(self._timeout_ms(message) / 1000):
                return await asked
        except TimeoutError:
            return response(Code.INTERNAL_ERROR, "no answer in time")
        finally:
            if self._asked.get(key) is asked:
                del self._asked[key]
