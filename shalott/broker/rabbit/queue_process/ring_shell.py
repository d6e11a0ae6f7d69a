"""The GM machine's hands: sends, monitors, transacts and asks for it, and keeps what it tells the
queue process.

Transactions and the call that joins the ring run beside the process's mailbox and answer through
it. So a queue process never waits for another one, and two that join each other's ring can't block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import MetadataUnavailable, ProcessError
from shalott.broker.base.tasks import Tasks
from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.activity import RingMessage
from shalott.broker.rabbit.gm.bugs import gm_bugs
from shalott.broker.rabbit.gm.group import GroupChange, GroupGone, LostMembership, RecordDead
from shalott.broker.rabbit.metadata.api import Metadata
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.mirrored.messages import (
    FlushTimer,
    GmTransacted,
    JoinRing,
    NeighbourDownTimer,
    RingJoined,
)
from shalott.broker.rabbit.processes.messages import Down, Failed, Message, Pid
from shalott.broker.rabbit.processes.runtime import Caller, Runtime

RETRY_MS = 10

Event = gm.Joined | gm.Deliver | gm.MembersChanged | gm.Confirmed | gm.Stopped


class Owner(Protocol):
    """What the hands need of the queue process."""

    @property
    def pid(self) -> Pid: ...

    @property
    def runtime(self) -> Runtime: ...

    def after(self, delay_ms: float, message: Message) -> asyncio.TimerHandle: ...

    def deliver(self, item: Message) -> None: ...

    @property
    def tasks(self) -> Tasks:
        """No longer than the process, which ends if one fails."""
        ...


class GmShell:
    """One member, attached to ``owner``. ``events`` is what the owner has to look at, in order."""

    def __init__(self, owner: Owner, env: Env, metadata: Metadata, key: str) -> None:
        self._owner = owner
        self._env = env
        self._metadata = metadata
        self._key = key
        row = metadata.read(rows.GROUP, key)
        assert row is None or isinstance(row, GroupRow)
        self.member = gm.Member(key, owner.pid, row, gm_bugs(env.has_bug))
        self.events: deque[Event] = deque()
        self._refs: dict[int, tuple[gm.Side, MemberId]] = {}
        self._callers: dict[int, Caller] = {}
        self._token = 0
        self._answer: gm.Input | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- what the owner does with it ---------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether a broadcast would reach the others."""
        return self.member.publishers.states is not None and not self.member.is_stopped

    def feed(self, given: gm.Input) -> None:
        row = self._metadata.read(rows.GROUP, self._key)
        assert row is None or isinstance(row, GroupRow)
        for output in self.member.step(given, row):
            # First, as most outputs are either of these.
            if type(output) is gm.Send:
                self._owner.runtime.send(output.to.pid, output.message)
            elif type(output) is gm.Deliver:
                self.events.append(output)
            else:
                self._perform(output)

    def idle(self) -> None:
        if self.member.broadcasts.pubs and self.member.has_unsent:
            self.feed(gm.Idle())

    def handle(self, message: Message) -> bool:
        """Whether ``message`` was for the ring."""
        match message:
            case RingMessage():
                if message.to == self.member.id:
                    self.feed(gm.Received(message))
            case GmTransacted():
                answer, self._answer = self._answer, None
                assert answer is not None
                self.feed(answer)
            case FlushTimer():
                self.feed(gm.FlushTimerFired())
            case NeighbourDownTimer(side, member):
                self.feed(
                    gm.NeighbourDownDelayPassed("left" if side == "left" else "right", member)
                )
            case Down(ref=ref) if ref in self._refs:
                neighbour_side, neighbour = self._refs.pop(ref)
                self.feed(gm.NeighbourDown(neighbour_side, neighbour, message.reason))
            case _:
                return False
        return True

    def handle_join(self, request: JoinRing, caller: Caller) -> None:
        if request.left != self.member.id or self.member.is_stopped:
            caller.reply(Failed("noproc"))
            return
        if self._env.buggify("gm.join_not_ready"):  # it asks again
            caller.reply(Failed("not_ready"))
            return
        self._token += 1
        self._callers[self._token] = caller
        self.feed(gm.AddOnRight(request.newcomer, self._token))

    # -- what the machine wants --------------------------------------------------------------------

    def _perform(self, output: gm.Output) -> None:
        match output:
            case gm.Send(to, message):
                self._owner.runtime.send(to.pid, message)
            case gm.Deliver() | gm.Joined() | gm.MembersChanged() | gm.Confirmed():
                self.events.append(output)
            case gm.Stopped():
                self._stopped(output)
            case gm.Monitor(side, member):
                self._refs[self._owner.runtime.monitor(member.pid, self._owner.pid)] = (
                    side,
                    member,
                )
            case gm.Demonitor(side, member):
                self._demonitor(side, member)
            case gm.Transact(change):
                self._owner.tasks.start(self._transact(change))
            case gm.AskToJoin(candidates):
                self._owner.tasks.start(self._ask_to_join(candidates))
            case gm.AnswerAddOnRight(token, row):
                answer = Failed("not_ready") if row is None else RingJoined(row)
                self._callers.pop(token).reply(answer)
            case gm.StartFlushTimer(delay_ms):
                self._timer = self._owner.after(delay_ms, FlushTimer())
            case gm.CancelFlushTimer():
                if self._timer is not None:
                    self._timer.cancel()
            case gm.StartNeighbourDownTimer(side, member, delay_ms):
                self._owner.after(delay_ms, NeighbourDownTimer(side, member))

    def _demonitor(self, side: gm.Side, member: MemberId) -> None:
        for ref in [ref for ref, known in self._refs.items() if known == (side, member)]:
            del self._refs[ref]
            self._owner.runtime.demonitor(ref)

    def _stopped(self, output: gm.Stopped) -> None:
        for ref in self._refs:
            self._owner.runtime.demonitor(ref)
        self._refs.clear()
        for caller in self._callers.values():
            caller.reply(Failed("noproc"))
        self._callers.clear()
        self.events.append(output)

    def _answered(self, answer: gm.Input) -> None:
        self._answer = answer
        self._owner.deliver(GmTransacted(0))

    async def _transact(self, change: GroupChange) -> None:
        while True:
            try:
                row = await self._metadata.transact(
                    lambda tx: rows.change_group(tx, self._key, change)
                )
            except LostMembership as error:
                if self.member.bugs.missing_group_crash and isinstance(change, RecordDead):
                    # KB-RMQ-10: {error,not_found} matched nothing in record_dead_member_in_group,
                    # and the queue process ended with its ring's.
                    assert not isinstance(error, GroupGone), "badmatch: {error,not_found}"
                return self._answered(gm.MembershipLost())
            except MetadataUnavailable:
                await pause_ms(RETRY_MS)  # a ring can't go on without its row
                continue
            return self._answered(gm.Transacted(row))

    async def _ask_to_join(self, candidates: tuple[MemberId, ...]) -> None:
        left = candidates[self._env.choose_index(len(candidates))]
        request = JoinRing(self.member.id, left)
        try:
            answer = await self._owner.runtime.call(
                left.pid, request, timeout_ms=None, caller=self._owner.pid
            )
        except ProcessError:
            return self._answered(gm.JoinAnswered(left, "dead"))
        if isinstance(answer, RingJoined):
            return self._answered(gm.JoinAnswered(left, "joined", answer.group))
        if isinstance(answer, Failed) and answer.kind == "not_ready":
            await pause_ms(RETRY_MS)
            return self._answered(gm.JoinAnswered(left, "not_ready"))
        return self._answered(gm.JoinAnswered(left, "dead"))
