"""Controller: one of the nodes that decide who is master of each broker group.

The controllers replicate their decisions by Raft (replicated_state.py). The leader of that answers
requests (requests.py) and acts on what it sees (elections.py); what the others are for is to hear
the brokers' heartbeats too, and to take over. After
controller/ControllerManager.java; docs/protocols.md 3.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.raft.api import Role
from shalott.broker.raft.group import NotLeader, ProposalTimeout, RaftGroup
from shalott.broker.raft.journal_log import JournalLog
from shalott.broker.raft.runner import RaftRunner
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.elections import Elections
from shalott.broker.rocket.controller.live_settings import LiveSettings
from shalott.broker.rocket.controller.replicated_state import ReplicatedState
from shalott.broker.rocket.controller.requests import RAFT_GROUP, Requests
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.raft_frames import RaftFrames
from shalott.broker.rocket.remoting.raft_transport import RaftTransport, settings_of
from shalott.broker.rocket.remoting.server import RemotingServer

log = logging.getLogger("shalott.broker.controller")

GROUP = "controller"  # in events, of the controllers themselves
LOG_PATH = "controller/raft"
READY_TIMEOUT_MS = 1000


class Controller:
    """``fail`` is told when the node must give itself up: the disk failed, or an invariant."""

    def __init__(
        self, env: Env, config: RocketConfig, book: AddressBook, *, fail: Callable[[str], None]
    ) -> None:
        self._env = env
        self._book = book
        self._config = config
        self._log: JournalLog | None = None
        self._fail = fail
        self._remoting = RemotingClient(book.dial)
        self._role = ("", 0)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._tenure: asyncio.Task[None] | None = None  # looks for inactive masters
        self.replicated = ReplicatedState(
            config.name, self._applied, lambda node: book.advertised(node, "controller")
        )
        settings = LiveSettings(config.controller)
        self.elections = Elections(
            env, self.replicated, self._remoting, settings=settings, spawn=self._spawn
        )
        requests = Requests(env, config, book, self.replicated, self.elections, settings)
        self.server = RemotingServer(
            requests.handlers(),
            host=config.bind_host,
            port=config.ports["controller"],
            on_close=self.elections.closed,
            setting="ports.controller",
        )

    async def start(self) -> None:
        """Raises ConfigError if a port can't be had, and StorageError; then it is stopped again."""
        try:
            self._log = await JournalLog.open(self._env.disk, LOG_PATH, bugs=self._env.bugs)
            self.replicated.attach(self._member(self._log))
            await self.server.start()
            await self.group.start()
        except BaseException:
            await self.stop()
            raise
        self._spawn("watch heartbeats", self.elections.watch_heartbeats)

    async def stop(self) -> None:
        self.replicated.end()
        if self._log is not None:
            await self.group.stop()
        await self.server.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._remoting.close()
        if self._log is not None:
            await self._log.close()

    def _member(self, log: JournalLog) -> RaftRunner:
        """Of the controllers' Raft group. A new leader must not serve before it has committed an
        entry of its own, so there is always one."""
        config = self._config
        settings = msgspec.structs.replace(settings_of(config.raft), no_op_on_election=True)
        members = config.nodes_with("controller")
        transport = RaftTransport(
            RaftFrames(RAFT_GROUP, config.name),
            {member: self._book.advertised(member, "raft") for member in members},
            host=config.bind_host,
            port=config.ports["raft"],
            dial=self._book.dial,
            settings=settings,
        )
        return RaftRunner(
            self._env,
            members,
            settings=settings,
            storage=log,
            transport=transport,
            machine=self.replicated,
            watcher=self,
            snapshot_threshold=config.raft.snapshot_threshold,
        )

    @property
    def group(self) -> RaftGroup:
        """Its member of the controllers' Raft group; once it was started."""
        return self.replicated.group

    @property
    def is_serving(self) -> bool:
        """Whether this controller leads, and has applied all that its predecessors committed."""
        return self.replicated.ahead is not None

    # -- raft.group.Watcher ------------------------------------------------------------------------

    def role_changed(self, role: Role, term: int, leader: str) -> None:
        if role != "leader":
            self.replicated.end()
            self._end_tenure()
        known = ("leader" if role == "leader" else "follower", term)
        if known != self._role:
            self._role = known
            self._env.events.emit(
                GROUP, "role", role=known[0], epoch=term, detail={"leader": leader}
            )

    def leader_ready(self, term: int) -> None:
        self._spawn("begin a tenure", functools.partial(self._begin_tenure, term))

    async def _begin_tenure(self, term: int) -> None:
        """Serve, once a quorum has confirmed that this is the leader and its empty entry is
        committed; what others committed is applied then."""
        while True:
            try:
                await self.group.read_index(READY_TIMEOUT_MS)
            except NotLeader:
                return
            except ProposalTimeout:
                continue
            break
        if self.group.role != "leader" or self.group.term != term:
            return
        log.info("this controller serves, in term %d", term)
        self.replicated.begin()
        for name, group in self.replicated.applied.groups.items():
            # Its predecessor may have died before it could say whom it elected last.
            if group.sync.master_epoch:
                self._emit(name, "elected", group)
        self._end_tenure()
        self._tenure = self._spawn("watch masters", self.elections.watch_masters)

    def committed(self, index: int) -> None:
        """The state machine hears of what is committed."""

    def truncated(self, from_index: int, last_index: int) -> None:
        """What was never committed was never applied here."""

    def failed(self, reason: str) -> None:
        self.replicated.end()
        self._end_tenure()
        self._fail(reason)

    def _end_tenure(self) -> None:
        # controller_double_schedule: what the last tenure began goes on.
        if self._tenure is not None and not self._env.has_bug("KB-RKT-39"):
            self._tenure.cancel()
            self._tenure = None

    # -- telling -----------------------------------------------------------------------------------

    def _applied(self, event: cs.Event, state: cs.State, term: int) -> None:
        """Say what this leader's own entries brought; others' were said by others."""
        self._witness(event.broker_name, state)
        if self.group.role != "leader" or term != self.group.term:
            return
        match event:
            case cs.ElectMasterEvent(name):
                self._emit(name, "elected", state.groups[name], unclean=event.unclean)
            case cs.AlterSyncStateSetEvent(name):
                self._emit(name, "set_changed", state.groups[name])

    def _witness(self, name: str, state: cs.State) -> None:
        if (group := state.groups.get(name)) is not None:
            sync, replicas = group.sync, group.replicas.replicas
            hosts = {one: replica.address.partition(":")[0] for one, replica in replicas.items()}
            ruling = (sync.master_epoch, sync.master, sync.set_epoch, sync.members)
            self._env.witness("set", name, *ruling, hosts)

    def _emit(self, name: str, kind: str, group: cs.Group, **more: object) -> None:
        """Nodes by name; brokers by id too."""
        sync = group.sync
        epoch = sync.master_epoch if kind == "elected" else sync.set_epoch
        detail: dict[str, object] = {
            "master": self._node(group, sync.master),
            "master_id": sync.master,
            "epoch": epoch,
            "set": [self._node(group, member) for member in sync.members],
            "set_ids": list(sync.members),
            "set_epoch": sync.set_epoch,
            **more,
        }
        self._env.events.emit(name, kind, epoch=epoch, detail=detail)

    def _node(self, group: cs.Group, broker_id: int | None) -> str:
        address = group.replicas.address(broker_id) or ""
        return self._book.node_of(address) or address

    def claim(self) -> dict[str, object]:
        """What this controller believes, for observations."""
        return {
            "group": GROUP,
            "role": self._role[0],
            "epoch": self.group.term,
            "leader": self.group.leader,
            "is_serving": self.is_serving,
            "alive": self.elections.heartbeats.active(),
            "groups": {
                name: msgspec.to_builtins(group.sync)
                for name, group in self.replicated.applied.groups.items()
            },
        }

    def _spawn(
        self, name: str, job: Callable[[], Coroutine[object, object, None]]
    ) -> asyncio.Task[None]:
        # A connection may be found to have ended after the loop did: then there is no job.
        task = asyncio.get_running_loop().create_task(job(), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Nothing but a broken invariant comes here, and a controller that goes on without
            # looking for masters would be worse than none.
            log.error("%s ended", task.get_name(), exc_info=error)
            self.failed(f"{task.get_name()}: {error!r}")
