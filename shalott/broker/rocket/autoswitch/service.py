"""AutoSwitchHAService: one broker's part in replication, which changes with every election.

After store/ha/autoswitch/AutoSwitchHAService.java; docs/protocols.md 2.7. It listens for slaves all
the time and serves them while it is the master; as a slave it runs a client. Who calls it
(broker/rocket/replicas) makes one change of role at a time.

Becoming the master:
1. what ran in the former role ends; who waits for copies is told that the outcome is unknown;
2. an incomplete last message is cut, and with it epochs of which nothing is left;
3. the log is flushed, so that no power loss moves the beginning of the epoch;
4. <epoch, end of the log> is recorded, durably, before the first slave is let in. A master that was
   restarted within its epoch keeps the entry. Upstream writes it again, at another offset, so that
   its slaves find nothing of that epoch in common and cut what was acknowledged (KB-RKT-C);
5. the set is the controllers' (KB-RKT-19: what this broker last knew);
6. dispatch catches up and the next queue offsets are found, for slaves do not keep them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, cannot_listen
from shalott.broker.base.listener import listen
from shalott.broker.rocket.autoswitch import packets
from shalott.broker.rocket.autoswitch.client import AutoSwitchHAClient, Following, Slave
from shalott.broker.rocket.autoswitch.connection import AutoSwitchHAConnection
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.packets import EpochStart
from shalott.broker.rocket.autoswitch.sync_state_set import SyncStateSet
from shalott.broker.rocket.autoswitch.tenure import Tenure
from shalott.broker.rocket.autoswitch.truncation import (
    end_of_whole_messages,
    search_start,
    uninterrupted,
)
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import RocketConfig

log = logging.getLogger("shalott.broker.ha")

Role = Literal["master", "slave", "none"]
EPOCHS_TOLD = 16  # of a new master's: enough to tell what its log has of its predecessors'


def unknown_address(address: str) -> int:
    """No slave is known by its address."""
    return -1


class AutoSwitchHAService:
    """Made by ``open``. ``broker_id`` must be set before the first change of role.

    ``set_is_wrong``: the master may have a change of the SyncStateSet to report. ``failed``: the
    disk is lost. ``broker_id_of``: whose address it is, negative if it is unknown; needed where
    slaves introduce themselves as in 5.0.0.
    """

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        store: MessageStore,
        cache: EpochFileCache,
        *,
        dial: Callable[[str], tuple[str, int]],
        failed: Callable[[BrokerError], None],
    ) -> None:
        self.broker_id = -1
        self.role: Role = "none"
        self.epoch = 0
        self.tenure: Tenure | None = None
        self.client: AutoSwitchHAClient | None = None
        self.cache = cache
        self.store = store
        self.set_is_wrong: Callable[[], None] = lambda: None
        self.role_changed: Callable[[], None] = lambda: None
        self.broker_id_of: Callable[[str], int] = unknown_address
        self._env = env
        self._config = config
        self._dial = dial
        self._failed = failed
        self._by_address = config.ha.handshake_by_address
        self._group = config.broker.broker_name
        self._acks_flushed = config.store.flush == "sync"
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], None] = {}
        self._client_task: asyncio.Task[None] | None = None
        self._last_set: tuple[int, ...] | None = None  # of the last tenure: KB-RKT-19

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port is taken."""
        host, port = self._config.bind_host, self._config.ports["ha"]
        try:
            self._server = await listen(self._accept, host, port)
        except OSError as error:
            raise cannot_listen("HA", host, port, "ports.ha", error) from error

    async def stop(self) -> None:
        self.step_down()
        await self._stop_client()
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tenure = self.tenure
        if tenure is None:
            writer.transport.abort()  # no master, or not yet: the slave tries again
            return
        connection = AutoSwitchHAConnection(tenure, reader, writer)
        task = asyncio.create_task(connection.run(), name="ha connection")
        self._serving[task] = None
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an HA connection crashed", exc_info=error)
            detail: dict[str, object] = {"process": "ha connection", "reason": repr(error)}
            self._env.events.emit(self._group, "crashed", detail=detail)

    # -- what it is worth --------------------------------------------------------------------------

    @property
    def data_epoch(self) -> int:
        """Of the last byte here: how new this log is. An entry without bytes says nothing."""
        entry = self.cache.at_offset(self.store.log.max_offset - 1)
        return 0 if entry is None else entry.epoch

    # -- master ------------------------------------------------------------------------------------

    async def change_to_master(self, epoch: int, members: Iterable[int], set_epoch: int) -> bool:
        """False if ``epoch`` is older than what is known. Raises DiskFull: later, perhaps."""
        if epoch < max(self.epoch, self.cache.last_epoch):
            return False
        tenure = self.tenure
        if tenure is not None and not self._env.has_bug("KB-RKT-20"):
            await self._go_on_as_master(tenure, epoch, members, set_epoch)
            return True
        if tenure is not None:
            tenure.close()  # KB-RKT-20: all as if it were new, while producers go on
        await self._stop_client()
        await self._cut_tail()
        start = await self._begin_epoch(epoch)
        self._env.witness("reigns", *self._place(), epoch, start)
        if self._last_set and self._env.has_bug("KB-RKT-19"):
            members = self._last_set  # of the last time that this broker was the master
        known = SyncStateSet(
            self.broker_id,
            members,
            set_epoch,
            ignores_proposals=self._env.has_bug("KB-RKT-10"),
            forgets_all=self._env.has_bug("KB-RKT-11"),
        )
        again, tenure = tenure is not None, self._make_tenure(epoch, known)
        await self._catch_up(tenure, again=again)
        self.store.reader.tell_next_offsets()
        self.epoch, self.tenure, self._last_set = epoch, tenure, known.members
        self._enter("master", start=start, members=known.members, set_epoch=set_epoch)
        return True

    def _make_tenure(self, epoch: int, known: SyncStateSet) -> Tenure:
        return Tenure(
            self._env,
            self._config,
            self.store,
            self.cache,
            known,
            epoch=epoch,
            broker_id_of=self.broker_id_of,
            set_is_wrong=self.set_is_wrong,
        )

    async def _cut_tail(self) -> None:
        store = self.store
        end = await end_of_whole_messages(store.log, search_start(self._env, store))
        if end < store.log.max_offset:
            await self.truncate(end)
            await uninterrupted(self.cache.truncate_suffix(end))

    async def _begin_epoch(self, epoch: int) -> int:
        """Where it begins; durable, and so is all before it."""
        replicated, cache = self.store.log, self.cache
        last = cache.last
        end = replicated.max_offset
        await replicated.flushed(end)
        if last is not None and last.epoch == epoch and last.start_offset <= end:
            if not self._env.has_bug("KB-RKT-C"):
                return last.start_offset
            await uninterrupted(cache.truncate_epochs(epoch))  # KB-RKT-C: it begins here, now
        if not self._env.has_bug("KB-RKT-A"):
            await uninterrupted(cache.truncate_suffix(end))
        self._env.witness("begins", *self._place(), epoch, end)
        await uninterrupted(cache.append(EpochStart(epoch, end)))
        return end

    async def _catch_up(self, tenure: Tenure, *, again: bool) -> None:
        """Before the first message: what is confirmed is in the queues, and the next queue offsets
        are known. ``again``: KB-RKT-20, messages come meanwhile."""
        store = self.store
        # Explicit from here on: while another broker must have a message, nothing new is confirmed.
        store.set_confirm_offset(store.confirm_offset)
        tenure.follow_up()
        await store.log.written(store.log.max_offset)
        # Whole messages only are dispatched, and confirm offsets of slaves may lie within one.
        confirmed = await end_of_whole_messages(
            store.log, store.dispatched_offset, until=store.confirm_offset
        )
        await store.dispatched(confirmed)
        await store.recover_queue_offsets(from_queues_only=again)

    async def _go_on_as_master(
        self, tenure: Tenure, epoch: int, members: Iterable[int], set_epoch: int
    ) -> None:
        """changeToMasterWhenLastRoleIsMaster: elected again, with its slaves and queues as they
        are. Messages may come meanwhile: none is sent as long as it isn't sure of which epoch.
        """
        if epoch > self.epoch:
            start = tenure.send_limit = self.store.log.max_offset
            await self.store.log.flushed(start)
            self._env.witness("begins", *self._place(), epoch, start)
            await uninterrupted(self.cache.append(EpochStart(epoch, start)))
            self._env.witness("reigns", *self._place(), epoch, start)
            self.epoch = epoch
            tenure.begin_epoch(epoch, members, set_epoch)
            self._last_set = tenure.set.members
            self._enter("master", start=start, members=tenure.set.members, set_epoch=set_epoch)

    # -- slave -------------------------------------------------------------------------------------

    async def change_to_slave(self, address: str, epoch: int) -> bool:
        """Follow the master of ``epoch``, whose HA port is advertised as ``address``. False if the
        epoch is older than what is known.
        """
        if epoch < max(self.epoch, self.cache.last_epoch):
            return False
        following = Following(address=address, epoch=epoch)
        client = self.client
        if client is not None and client.following.address == address:
            client.following = following  # changeToSlaveWhenMasterNotChange
            if epoch > self.epoch:
                self.epoch = epoch
                self._enter("slave", master=address)
            return True
        self.step_down()
        await self._stop_client()
        self.epoch = epoch
        self.client = client = AutoSwitchHAClient(self._slave(), following)
        self._client_task = asyncio.create_task(client.run(), name="ha client")
        self._client_task.add_done_callback(self._client_ended)
        self._enter("slave", master=address)
        return True

    def _slave(self) -> Slave:
        address = self._config.advertised["remoting"] if self._by_address else ""
        handshake = packets.SlaveHandshake(
            broker_id=self.broker_id,
            address=address,
            sync_from_last_file=self._config.ha.sync_from_last_file,
            async_learner=self._config.ha.async_learner,
        )
        return Slave(
            env=self._env,
            group=self._group,
            config=self._config.ha,
            store=self.store,
            cache=self.cache,
            handshake=handshake,
            acks_flushed=self._acks_flushed,
            dial=self._dial,
            truncate=self.truncate,
            failed=self._failed,
        )

    async def _stop_client(self) -> None:
        task, self._client_task, self.client = self._client_task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _client_ended(self, task: asyncio.Task[None]) -> None:
        if task is self._client_task:  # it was not asked to end
            reason = "cancelled" if task.cancelled() else repr(task.exception())
            self._failed(BrokerError(f"the HA client crashed: {reason}"))

    # -- neither -----------------------------------------------------------------------------------

    def step_down(self) -> None:
        """At once: nothing counts any more, no slave is served."""
        tenure, self.tenure = self.tenure, None
        if tenure is not None:
            tenure.close()
            self._last_set = tenure.set.members
            # Where dispatch was stays where it ends, until the next master says more.
            self.store.set_confirm_offset(self.store.confirm_offset)
            self._enter("none")

    async def truncate(self, offset: int) -> None:
        """The store, durably."""
        before, confirmed = self.store.log.max_offset, self.store.confirm_offset
        await uninterrupted(self.store.truncate(offset))
        detail = {"from": before, "to": self.store.log.max_offset, "confirmed": confirmed}
        cut = before - self.store.log.max_offset
        log.warning("%d bytes are cut off behind %d: the master's log parts there", cut, offset)
        self._emit("truncated", detail)

    # -- telling -----------------------------------------------------------------------------------

    def _enter(
        self,
        role: Role,
        *,
        start: int | None = None,
        master: str = "",
        members: tuple[int, ...] = (),
        set_epoch: int = 0,
    ) -> None:
        changed, self.role = self.role != role, role
        self._env.witness("role", self._group, role, self.epoch)
        if changed:
            self._emit("role", {"master": master} if master else {})
        if start is not None:
            known = self.cache.entries[-EPOCHS_TOLD:]
            epochs = [[entry.epoch, entry.start_offset] for entry in known]
            end = self.store.log.max_offset
            self._emit("epoch", {"start": start, "end": end, "epochs": epochs})
            self.tell_set(members, set_epoch)
        self.role_changed()

    def _place(self) -> tuple[str, int]:
        """Where the log is, to witnesses."""
        return self.store.log.directory, self._config.store.segment_bytes

    def tell_set(self, members: tuple[int, ...], set_epoch: int) -> None:
        """A set that the controllers know."""
        self._env.witness("learnt", self._group, set_epoch, members)
        self._emit("set_changed", {"set": list(members), "epoch": set_epoch})

    def _emit(self, kind: str, detail: Mapping[str, object]) -> None:
        events = self._env.events
        events.emit(self._group, kind, role=self.role, epoch=self.epoch, detail=dict(detail))
