"""Booting: how a server becomes a member, where tables need no majority: it copies the tables from
those that run, or loads its own when no other node can have fresher ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.metadata.journal import TableJournal
from shalott.broker.rabbit.metadata.membership import INCONSISTENT, is_majority
from shalott.broker.rabbit.metadata.messages import Join, Joined, Reconsider, Status
from shalott.broker.rabbit.metadata.participant import MnesiaParticipant
from shalott.broker.rabbit.metadata.serving import RETRY_MS, MemberServer, server_name
from shalott.broker.rabbit.metadata.tables import Tables
from shalott.broker.rabbit.processes.mesh import linked_within_ms
from shalott.broker.rabbit.processes.messages import Failed

log = logging.getLogger("shalott.broker.metadata")


class Booting:
    """A server's, each time that it boots."""

    def __init__(
        self,
        server: MemberServer,
        participant: MnesiaParticipant,
        config: NodeConfig,
        journal: TableJournal,
    ) -> None:
        self._server = server
        self._participant = participant
        self._config = config
        self._journal = journal
        self._began_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._began_at = asyncio.get_running_loop().time()

    def _boot_states(self) -> dict[str, BootState]:
        states = {
            node: BootState(status.saw_down)
            for node, status in self._participant.peers.items()
            if status.phase == "booting"
        }
        states[self._config.name] = BootState(tuple(self._journal.saw_down))
        return states

    async def reconsider(self) -> None:
        """While booting: join a running node, load, or wait for something to change."""
        if self._participant.phase != "booting":
            return
        await self._load_or_join()
        if self._participant.phase == "booting":
            self._look_again()

    def _look_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.after(RETRY_MS * 4, Reconsider())

    async def _load_or_join(self) -> None:
        participant = self._participant
        running = [
            status for _, status in sorted(participant.peers.items()) if status.phase == "running"
        ]
        if running:
            await self._join_through(running[0])
        elif self._server.is_forced or self._may_load():
            log.info("loading the tables from this node's disk")
            participant.run({self._config.name: participant.me})

    def _may_load(self) -> bool:
        if not self._may_load_alone():
            return False
        loader = choose_loader(self._server.belonging(), self._boot_states())
        return loader == self._config.name

    def _may_load_alone(self) -> bool:
        """Give absent nodes the time to link: one that runs has fresher tables than we do, and
        those that resume with us must agree with us on who loads.
        """
        peers = self._participant.peers
        present = sum(1 for status in peers.values() if status.phase != "down") + 1
        if present >= len(self._server.belonging()):
            return True
        linked = len(peers) + 1
        pauses = self._config.partition_mode == "pause_minority"
        if pauses and not is_majority(linked, len(self._config.node_names)):
            return False  # OUR-08
        waited_s = asyncio.get_running_loop().time() - self._began_at
        return waited_s * 1000 >= linked_within_ms(self._config.net_tick_ms)

    async def _join_through(self, status: Status) -> None:
        server, participant = self._server, self._participant
        if not status.members or any(m.node not in participant.peers for m in status.members):
            return  # not linked to all of them yet
        try:
            answer = await server.runtime.call(
                server_name(status.members[0].node),
                Join(participant.me, tuple(participant.peers)),
                timeout_ms=self._config.net_tick_ms,
            )
        except ProcessError as error:
            log.info("could not join through %s: %s", status.members[0].node, error)
            return
        if isinstance(answer, Failed) and answer.kind == INCONSISTENT:
            server.on_refused(answer.text)
            return
        if not isinstance(answer, Joined):
            log.info("not joined yet: %s", answer)
            return
        server.tables = Tables()
        server.tables.store(answer.rows)
        server.tables.version = max(server.tables.version, answer.version)
        await self._journal.replace(server.tables)
        server.changed.set()
        participant.run({member.node: member for member in answer.members})


# -- which node loads ------------------------------------------------------------------------------

# Which node loads its tables from its own disk when a cluster starts. Pure.
#
# Mnesia's rule: a node may load its own copy only if no other node can have a fresher one. A node
# knows that another went down before it (it *saw* it down, and wrote that to disk) and need not
# wait for that one; every other node may have gone on after it, and must be there before anybody
# loads. Among the nodes that are there, one that another saw down while it did not see that other
# down is *superseded*. The first of the rest, by name, loads; all the others copy from it.


class BootState(msgspec.Struct, frozen=True, array_like=True):
    """What a booting node tells the others: which nodes it saw go down before itself."""

    saw_down: tuple[str, ...]


def must_wait_for(node: str, listed: Sequence[str], states: Mapping[str, BootState]) -> list[str]:
    """The nodes that may have fresher tables than ``node`` and aren't booting beside it."""
    saw_down = states[node].saw_down
    return [name for name in listed if name != node and name not in saw_down and name not in states]


def choose_loader(listed: Sequence[str], states: Mapping[str, BootState]) -> str | None:
    """The node that loads from its own disk, or None if everybody must still wait.

    ``states`` are the booting nodes that see each other; none of the cluster is running.
    """
    candidates = [
        name
        for name in sorted(states)
        if not must_wait_for(name, listed, states) and not _superseded(name, states)
    ]
    return candidates[0] if candidates else None


def _superseded(node: str, states: Mapping[str, BootState]) -> bool:
    return any(
        node in other.saw_down and name not in states[node].saw_down
        for name, other in states.items()
        if name != node
    )
