"""A controllers' state without controllers: requests are decided on and applied at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from shalott.broker.base.env import Env
from shalott.broker.rocket.controller import decisions
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision, Liveness
from shalott.broker.rocket.controller.elect_policy import LiveInfo
from shalott.broker.rocket.remoting.command import Command
from tests.world.disk.memory_disk import MemoryDisk
from tests.world.env import ManualClock, NoEvents

CLUSTER, NAME = "c", "g"


def env_with(*bugs: str, clock: ManualClock | None = None) -> Env:
    return Env(
        node_id="n1",
        incarnation=1,
        clock=clock or ManualClock(),
        rng=random.Random(1),
        disk=MemoryDisk(),
        events=NoEvents(),
        bugs=bugs,
    )


@dataclass
class Registry:
    """``alive``: what is known of the brokers that live."""

    env: Env = field(default_factory=env_with)
    unclean: bool = False
    state: cs.State = field(default_factory=cs.State)
    alive: dict[int, LiveInfo] = field(default_factory=dict)

    @classmethod
    def of_three(cls, **more: Any) -> Registry:
        """Brokers 1 to 3 are registered, all alive; 1 is the master, in epoch 1, and alone in its
        set."""
        made = cls(**more)
        for broker_id in (1, 2, 3):
            assert made.register(broker_id).code == 0
            made.alive[broker_id] = LiveInfo(epoch=1)
        assert made.elect(1).code == 0
        return made

    @property
    def live(self) -> Liveness:
        return Liveness(
            lambda cluster, group, broker: (
                (cluster, group) == (CLUSTER, NAME) and broker in self.alive
            ),
            lambda cluster, group, broker: self.alive.get(broker),
        )

    @property
    def sync(self) -> cs.SyncStateInfo:
        return self.state.groups[NAME].sync

    def settle(self, decision: Decision) -> Command:
        for event in decision.events:
            [same] = cs.decode_events(cs.encode_events((event,)))
            assert same == event
            cs.apply(self.state, same)
        return decision.answer

    def register(self, broker_id: int, address: str = "", check_code: str = "") -> Command:
        """Apply for an id."""
        address = address or f"h{broker_id}:1"
        request = cm.ApplyBrokerId(
            cluster_name=CLUSTER,
            broker_name=NAME,
            applied_broker_id=broker_id,
            register_check_code=check_code or f"{address};17",
        )
        return self.settle(decisions.apply_broker_id(self.state, request))

    def next_id(self) -> int:
        request = cm.GetNextBrokerId(cluster_name=CLUSTER, broker_name=NAME)
        answer = decisions.next_broker_id(self.state, request).answer
        return cm.from_ext(answer.ext, cm.NextBrokerId).next_broker_id

    def come_back(self, broker_id: int, address: str = "") -> Command:
        """Register (1003)."""
        request = cm.RegisterBroker(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_id=broker_id,
            broker_address=address or f"h{broker_id}:1",
        )
        return self.settle(decisions.register_broker(self.state, request, self.live))

    def decide_alter(
        self, members: tuple[int, ...], *, by: int = 1, epoch: int = 1, set_epoch: int = 1
    ) -> Decision:
        request = cm.AlterSyncStateSet(broker_name=NAME, master_broker_id=by, master_epoch=epoch)
        wanted = cm.SyncStateSet(sync_state_set=members, sync_state_set_epoch=set_epoch)
        return decisions.alter_sync_state_set(self.state, request, wanted, self.live)

    def alter(self, members: tuple[int, ...]) -> Command:
        """As the master, with what is current."""
        sync = self.sync
        assert sync.master is not None
        return self.settle(
            self.decide_alter(
                members, by=sync.master, epoch=sync.master_epoch, set_epoch=sync.set_epoch
            )
        )

    def decide_elect(self, broker_id: int = -1, *, designate: bool = False) -> Decision:
        request = cm.ElectMaster(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_id=broker_id,
            designate_elect=designate,
        )
        return decisions.elect_master(
            self.env, self.state, request, self.live, unclean=self.unclean
        )

    def elect(self, broker_id: int = -1, *, designate: bool = False) -> Command:
        return self.settle(self.decide_elect(broker_id, designate=designate))

    def clean(self, ids: str = "", *, living: bool = False) -> Command:
        request = cm.CleanBrokerData(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_controller_ids_to_clean=ids or None,
            is_clean_living_broker=living,
        )
        return self.settle(decisions.clean_broker_data(self.state, request, self.live))

    def look(self) -> Command:
        request = cm.GetReplicaInfo(broker_name=NAME)
        return decisions.replica_info(self.state, request).answer
