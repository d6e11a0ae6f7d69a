"""Leadership: what the oldest member does for the others, where tables need no majority: it takes
writes, and when it takes over it first makes sure that all have what any of them has.
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.messages import (
    Apply,
    Commit,
    Committed,
    Conflicted,
    Dump,
    Dumped,
    SettleTables,
)
from shalott.broker.rabbit.metadata.participant import MnesiaParticipant
from shalott.broker.rabbit.metadata.serving import (
    COMMIT_LATE_MS,
    RETRY_MS,
    MemberServer,
    server_name,
)
from shalott.broker.rabbit.metadata.tables import StoredRow
from shalott.broker.rabbit.processes.messages import Failed, Message
from shalott.broker.rabbit.processes.runtime import Caller


@dataclass(slots=True)
class Pending:
    """A write that is not everywhere yet: who waits for it, and where it is not."""

    caller: Caller
    waiting: dict[str, None]


class Leadership:
    """A server's; it does nothing while another member leads."""

    def __init__(
        self, server: MemberServer, participant: MnesiaParticipant, env: Env, config: NodeConfig
    ) -> None:
        self.is_reconciling = False
        self._server = server
        self._participant = participant
        self._env = env
        self._config = config
        self._pending: dict[int, Pending] = {}
        self._held: list[tuple[Commit, Caller]] = []  # commits that came while reconciling

    def begin(self) -> None:
        """Take no writes until all that other leaders wrote is known."""
        self.is_reconciling = True
        self._server.deliver(SettleTables())

    def member_gone(self, node: str) -> None:
        for version in list(self._pending):
            self.settle(version, node)

    async def commit(self, request: Commit, caller: Caller) -> Message | None:
        """The answer to ``request``; None if ``caller`` is answered later."""
        server, participant = self._server, self._participant
        if self._env.buggify("metadata.commit_late"):  # the leader may be busy, or fail meanwhile
            await pause_ms(self._env.rng.random() * COMMIT_LATE_MS)
        if participant.phase != "running" or not participant.leads:
            return Failed("not_leader", str(participant.leader))
        if participant.members.get(request.member.node) != request.member:
            return Failed("not_member", request.member.node)
        if self.is_reconciling:
            self._held.append((request, caller))
            return None
        # OUR-04: written blindly, as rabbit_amqqueue:internal_declare does to this day.
        is_blind = self._env.has_bug("OUR-04")
        if not is_blind and server.tables.conflicts(request.changes):
            return Conflicted(server.tables.version)
        version = server.tables.version + 1
        rows = tuple(server.tables.apply(version, request.changes))
        server.tables.version = version
        others = dict.fromkeys(participant.others())
        for node in others:
            participant.tell(node, Apply(participant.me, version, rows))
        self._pending[version] = Pending(caller, others)
        await server.written(version, rows)
        self.settle(version, self._config.name)
        return None

    def settle(self, version: int, node: str) -> None:
        """``node`` needs no more waiting for; answer the writer if it was the last."""
        entry = self._pending.get(version)
        if entry is None:
            return
        entry.waiting.pop(node, None)
        if not entry.waiting:
            del self._pending[version]
            entry.caller.reply(Committed(version))

    def end(self) -> None:
        """This node leaves: answer those that wait."""
        for entry in self._pending.values():
            entry.caller.reply(Failed("not_running"))
        self._pending.clear()
        for _, caller in self._held:
            caller.reply(Failed("not_running"))
        self._held.clear()
        self.is_reconciling = False

    async def reconcile(self) -> None:
        """Collect every member's rows, keep the newest, hand them out; then take the commits that
        waited.
        """
        server, participant = self._server, self._participant
        leads = participant.phase == "running" and participant.leads
        if not self.is_reconciling or not leads:
            self.is_reconciling = False
            return
        newest: list[StoredRow] = []
        for node in participant.others():
            try:
                answer = await server.runtime.call(
                    server_name(node),
                    Dump(participant.me),
                    timeout_ms=self._config.net_tick_ms * 1.5,
                )
            except ProcessError:
                continue  # its NodeDownEvent is in the mailbox already, or will be
            if not isinstance(answer, Dumped):
                server.after(RETRY_MS, SettleTables())  # it has not seen the old leader go down yet
                return
            newest.extend(answer.rows)
            server.tables.version = max(server.tables.version, answer.version)
        taken = server.tables.store(newest)
        version = server.tables.version = server.tables.version + 1
        for node in participant.others():
            rows = tuple(server.tables.snapshot())
            participant.tell(node, Apply(participant.me, version, rows))
        await server.written(version, taken)
        self.is_reconciling = False
        await self._take_held()

    async def _take_held(self) -> None:
        """The commits that came before this node led."""
        held, self._held = self._held, []
        for request, caller in held:
            answer_now = await self.commit(request, caller)
            if answer_now is not None:
                caller.reply(answer_now)
