"""RaftTransport: messages between members, over the remoting protocol on a port of their own.

A request of the core is a request on the wire; the core's answer, which may come much later, when
a disk has written something, is the answer on the wire. What is lost is lost: the core asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shalott.broker.base.errors import BrokerError
from shalott.broker.base.tasks import Tasks
from shalott.broker.raft import api
from shalott.broker.raft.api import PushType, RaftCode, RaftSettings
from shalott.broker.rocket.config import RaftConfig
from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.raft_frames import Original, RaftFrames, WireError
from shalott.broker.rocket.remoting.raft_originals import Originals
from shalott.broker.rocket.remoting.server import Caller, Handler, RemotingServer

log = logging.getLogger("shalott.broker.raft")

CODES = (
    RequestCode.DLEDGER_VOTE,
    RequestCode.DLEDGER_HEART_BEAT,
    RequestCode.DLEDGER_PUSH,
    RequestCode.DLEDGER_LEADERSHIP_TRANSFER,
    RequestCode.DLEDGER_INSTALL_SNAPSHOT,
)
SNAPSHOT_PATIENCE = 10  # as the core has it
ASKED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """A member's request that the core has not answered yet."""

    command: Command
    request: api.Request
    caller: Caller


class RaftTransport:
    """``addresses``: of all members by name, as they advertise them; ``dial`` says where to connect
    for one. ``handlers``: other requests that this port answers."""

    def __init__(
        self,
        frames: RaftFrames,
        addresses: Mapping[str, str],
        *,
        host: str,
        port: int,
        dial: Callable[[str], tuple[str, int]],
        settings: RaftSettings,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        self._frames = frames
        self._addresses = dict(addresses)
        self._settings = settings
        self._client = RemotingClient(dial)
        served: dict[int, Handler] = {**(handlers or {})}
        served.update(dict.fromkeys(CODES, self._handle))
        self._server = RemotingServer(served, host=host, port=port)
        self._receive: Callable[[str, api.Message], None] | None = None
        self._asked: dict[tuple[str, int], _Asked] = {}  # in the order in which they came
        self._heard = 0  # requests: none says which of its sender's it is
        self._sending = Tasks()
        self._originals = Originals(frames, self._invoke)
        self._are_original: dict[str, None] = {}  # as far as their last answers say

    async def start(self, receive: Callable[[str, api.Message], None]) -> None:
        """Raises ConfigError if the port is taken."""
        self._receive = receive
        await self._server.start()

    async def stop(self) -> None:
        self._receive = None
        await self._sending.end()
        await self._client.close()
        await self._server.stop()

    def send(self, to: str, message: api.Message) -> None:
        if isinstance(message, api.VoteResponse | api.HeartbeatResponse | api.PushResponse):
            asked = self._asked.pop((to, message.serial), None)
            if asked is not None:
                answer = self._frames.encode_answer(asked.request, message)
                asked.caller.answer_now(asked.command, answer)
            return
        if to in self._are_original and _needs_words(message):
            self._sending.start(self._ask_original(to, message), f"raft to {to}")
            return
        command = self._frames.encode_request(to, message)
        try:
            if not isinstance(message, api.TakeLeadership) and self._client.try_ask(
                self._addresses[to],
                command,
                self._timeout_ms(message),
                lambda outcome: self._answered(to, message, outcome),
            ):
                return
        except BrokerError as error:
            log.debug("%s: %s", to, error)
            return
        self._sending.start(self._ask(to, message, command), f"raft to {to}")

    async def _ask(self, to: str, message: api.Request, command: Command) -> None:
        """Where a connection must be made first."""
        address = self._addresses[to]
        answer: Command | BrokerError
        try:
            if isinstance(message, api.TakeLeadership):
                await self._client.oneway(address, command)
                return
            answer = await self._client.invoke(address, command, self._timeout_ms(message))
        except BrokerError as error:
            answer = error
        self._answered(to, message, answer)

    async def _invoke(self, to: str, command: Command) -> Command:
        timeout_ms = 2 * self._settings.push_timeout_ms
        return await self._client.invoke(self._addresses[to], command, timeout_ms)

    async def _ask_original(self, to: str, message: api.Request) -> None:
        answer: api.Response | BrokerError | None
        try:
            answer = await self._originals.answer(to, message)
        except BrokerError as error:
            self._are_original.pop(to, None)
            answer = error
        if answer is not None:
            self._answered(to, message, answer)

    def _answered(
        self, to: str, message: api.Request, answer: Command | api.Response | BrokerError
    ) -> None:
        try:
            if isinstance(answer, BrokerError):
                raise answer
            if isinstance(answer, Command):
                answer = self._frames.decode_answer(message, answer)
        except Original:
            if self._receive is not None and to not in self._are_original:
                self._are_original[to] = None
                self._sending.start(self._ask_original(to, message), f"raft to {to}")
            return
        except (Unreachable, Unanswered) as error:
            log.debug("%s: %s", to, error)
            return
        except BrokerError as error:
            log.warning("%s: %s", to, error)
            return
        if self._receive is not None:
            self._receive(to, answer)

    def _timeout_ms(self, message: api.Request) -> int:
        """Longer than the core waits: a late answer still says what its sender has."""
        settings = self._settings
        if isinstance(message, api.PushRequest):
            longer = SNAPSHOT_PATIENCE if message.snapshot is not None else 2
            return longer * settings.push_timeout_ms
        return max(settings.heartbeat_interval_ms, settings.vote_max_ms)

    def _handle(self, command: Command, caller: Caller) -> Command | None:
        """The core may answer at once or when a disk has written something, by ``send``."""
        self._heard += 1
        try:
            sender, message = self._frames.decode_request(command, self._heard)
            if self._receive is None or sender not in self._addresses:
                reason = f"{sender!r} is no member, or this is none yet"
                raise WireError(reason, RaftCode.UNKNOWN_MEMBER)
        except WireError as error:
            log.warning("%s: %s", caller.address, error)
            return self._frames.refusal(command, error)
        if isinstance(message, api.TakeLeadership):
            self._receive(sender, message)
            return self._frames.refusal(command, WireError("", RaftCode.SUCCESS))
        self._asked[sender, message.serial] = _Asked(command, message, caller)
        if len(self._asked) > ASKED_MAX:  # the oldest is not waited for any more
            del self._asked[next(iter(self._asked))]
        self._receive(sender, message)
        return None


def _needs_words(message: api.Request) -> bool:
    """Whether an original understands only something else."""
    if isinstance(message, api.PushRequest):
        return message.type in (PushType.COMPARE, PushType.TRUNCATE)
    return isinstance(message, api.VoteRequest) and message.pre


# -- settings --------------------------------------------------------------------------------------


def settings_of(config: RaftConfig) -> RaftSettings:
    """ReadIndex needs an entry of the leader's own term, so a new leader appends one."""
    return RaftSettings(
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_heartbeat_leak=config.max_heartbeat_leak,
        vote_min_ms=config.vote_min_ms,
        vote_max_ms=config.vote_max_ms,
        push_timeout_ms=config.push_timeout_ms,
        max_push_bytes=config.max_push_bytes,
        max_inflight_pushes=config.max_inflight_pushes,
        commit_push_interval_ms=config.commit_push_interval_ms,
        max_pending_entries=config.max_pending_requests,
        no_op_on_election=config.fast_advance_commit or config.read_index,
    )
