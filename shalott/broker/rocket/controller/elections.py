"""When and how a leader of the controllers gives a broker group a master.

Elections are set off by the end of a master's heartbeats or connection, by a look at all groups now
and then, and by requests. A new master is told to all brokers of the group that are alive (1008).
Followers watch too, but do nothing about what they see. After
controller/ControllerManager.java; docs/protocols.md 3.4.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.controller import decisions
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision, Liveness
from shalott.broker.rocket.controller.heartbeats import MS, TICK_MS, HeartbeatManager, Identity
from shalott.broker.rocket.controller.live_settings import LiveSettings
from shalott.broker.rocket.controller.replicated_state import ReplicatedState
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.server import Caller

log = logging.getLogger("shalott.broker.controller")

FIRST_SCAN_MS = 2000
CLOSE_GRACE_MS = 100
Spawn = Callable[[str, Callable[[], Coroutine[object, object, None]]], asyncio.Task[None]]


class Elections:
    """One controller's."""

    def __init__(
        self,
        env: Env,
        replicated: ReplicatedState,
        remoting: RemotingClient,
        *,
        settings: LiveSettings,
        spawn: Spawn,
    ) -> None:
        self._env = env
        self._replicated = replicated
        self._remoting = remoting
        self._settings = settings
        self._spawn = spawn
        self._listening_ns = env.clock.monotonic_ns()
        self.heartbeats = HeartbeatManager(env)
        self.live = Liveness(self.heartbeats.is_alive, self.heartbeats.live_info)

    async def elect(self, request: cm.ElectMaster) -> Command:
        """Elect, and tell the brokers of the group if that made a master."""

        def compute(state: cs.State) -> Decision:
            unclean = self._settings.now.enable_elect_unclean_master
            return decisions.elect_master(self._env, state, request, self.live, unclean=unclean)

        answer = await self._replicated.decide(compute)
        if answer.code == ResponseCode.SUCCESS and self._settings.now.notify_broker_role_changed:
            self._notify(answer)
        return answer

    async def _elect_by_itself(self, name: str, reason: str) -> None:
        """Again if the outcome is unknown: a further election finds the master there."""
        log.info("%s: %s", name, reason)
        for _ in range(1 + self._settings.now.elect_master_max_retry_count):
            answer = await self.elect(cm.ElectMaster(broker_name=name))
            if answer.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY):
                log.info("%s: election: %d %s", name, answer.code, answer.remark)
                return

    def _notify(self, elected: Command) -> None:
        """Tell all brokers of the group that are alive who rules now (1008)."""
        body = cm.from_body(elected.body, cm.ElectMasterBody)
        info = cm.from_ext(elected.ext, cm.MasterInfo)
        group = body.broker_member_group
        assert group is not None and info.sync_state_set_epoch is not None
        members = cm.SyncStateSet(
            sync_state_set=body.sync_state_set, sync_state_set_epoch=info.sync_state_set_epoch
        )
        for broker_id, address in group.broker_addrs.items():
            if self.heartbeats.is_alive(group.cluster, group.broker_name, broker_id):
                notice = Command(
                    code=RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
                    ext=dict(elected.ext),
                    body=cm.to_body(members),
                )
                self._spawn("notify a broker", functools.partial(self._send, address, notice))

    async def _send(self, address: str, notice: Command) -> None:
        try:
            await self._remoting.oneway(address, notice)
        except BrokerError as error:
            log.warning("%s was not told of its new master: %s", address, error)

    # -- who is alive ------------------------------------------------------------------------------

    def closed(self, caller: Caller) -> None:
        for who in self.heartbeats.over(caller):
            self._spawn("miss a broker", functools.partial(self._miss, who, caller))

    async def _miss(self, who: Identity, caller: Caller) -> None:
        """Its connection ended. If this controller was paused, it finds that out in the grace, and
        that the broker may have made another connection meanwhile."""
        await pause_ms(CLOSE_GRACE_MS)
        await pause_ms(self.heartbeats.settling_ms())
        if self.heartbeats.drop(who, caller):
            self.inactive(who, "its connection ended")

    def inactive(self, who: Identity, reason: str) -> None:
        ahead = self._replicated.ahead
        group = None if ahead is None else ahead.groups.get(who.group)
        log.info("broker %d of %s is not alive: %s", who.broker_id, who.group, reason)
        if group is None or group.replicas.cluster_name != who.cluster:
            return
        is_master = group.sync.master == who.broker_id
        if is_master != self._env.has_bug("KB-RKT-29"):  # inverted_predicate
            why = f"the master, broker {who.broker_id}, is gone: {reason}"
            self._spawn("elect", functools.partial(self._elect_by_itself, who.group, why))

    async def watch_heartbeats(self) -> None:
        """Miss those who fell silent (scanNotActiveBroker)."""
        self._listening_ns = self._env.clock.monotonic_ns()
        wait_ms = min(FIRST_SCAN_MS, self._settings.now.scan_not_active_broker_interval_ms)
        while True:
            for _ in range(max(1, wait_ms // TICK_MS)):
                await pause_ms(TICK_MS)
                self.heartbeats.tick()
            wait_ms = self._settings.now.scan_not_active_broker_interval_ms
            if not self._env.has_bug("KB-RKT-28"):  # scan_never_runs
                for who in self.heartbeats.expired():
                    self.inactive(who, "it fell silent")

    async def watch_masters(self) -> None:
        """Elect where no master rules though a broker is alive (scanInactiveMaster): the master may
        have died before this leader's tenure, and an election may have failed.

        A controller that was started a moment ago waits until all that live had the time to say
        so. One that heard the heartbeats as a follower knows already, and looks at once; upstream
        waits for a whole interval first, with the group without a master.
        """
        heard_ms = (self._env.clock.monotonic_ns() - self._listening_ns) // MS
        await pause_ms(max(0, self._settings.now.scan_inactive_master_interval_ms - heard_ms))
        while True:
            # no_inactive_master_rescan, scan_never_runs
            if not (self._env.has_bug("KB-RKT-27") or self._env.has_bug("KB-RKT-28")):
                await self._look_for_masters()
            await pause_ms(self._settings.now.scan_inactive_master_interval_ms)

    async def _look_for_masters(self) -> None:
        ahead = self._replicated.ahead
        for name, group in () if ahead is None else tuple(ahead.groups.items()):
            if self._needs_master(name, group):
                await self._elect_by_itself(name, "no master is alive")

    def _needs_master(self, name: str, group: cs.Group) -> bool:
        """Whether an election is due. A group that never had a master waits for the first broker
        that wants to be it."""
        cluster, master = group.replicas.cluster_name, group.sync.master
        alive = [i for i in group.replicas.replicas if self.live.is_alive(cluster, name, i)]
        if group.sync.is_first_election or not alive:
            return False
        if master is None:
            return True
        if self._env.has_bug("KB-RKT-26") and not self.heartbeats.is_recorded(
            cluster, name, master
        ):
            return False  # a broker that was never heard of can't fall silent
        return (master not in alive) != self._env.has_bug("KB-RKT-29")  # inverted_predicate
