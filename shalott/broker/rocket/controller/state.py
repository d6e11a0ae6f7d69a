"""The controllers' replicated state: who belongs to each broker group, and who rules it.

A pure state machine. ``apply`` takes committed events in the order of the log and does the same on
every controller; ``encode`` and ``decode`` are its snapshot. What an event must say is computed by
the leader (decisions.py). After ReplicasInfoManager, BrokerReplicaInfo and SyncStateInfo of
RocketMQ 5; docs/protocols.md 3.2.

Invariants, asserted on every event on every controller (I4, docs/protocols.md 2.9): both epochs of
a group grow by exactly one with each change, so an epoch has one master and one set; events carry
the epochs that they lead to. Upstream breaks the first when a group is cleaned: it begins again at
epoch 1, and brokers that were elected before refuse that. Here a cleaned group keeps its epochs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.rocket.controller.messages import FIRST_BROKER_ID

# -- state -----------------------------------------------------------------------------------------


class Replica(msgspec.Struct, frozen=True):
    """One broker of a group. ``check_code`` tells its own repeated application from another's."""

    address: str
    check_code: str


class BrokerReplicaInfo(msgspec.Struct, frozen=True):
    """Who registered in a group, by id; ids begin at 1 and are not given twice."""

    cluster_name: str
    next_broker_id: int = FIRST_BROKER_ID
    replicas: dict[int, Replica] = {}

    def address(self, broker_id: int | None) -> str | None:
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address


class SyncStateInfo(msgspec.Struct, frozen=True):
    """Who rules a group, and who keeps up with the master (sorted). A group with members in its set
    and no master waits for one of these; one without members takes the first that asks.
    """

    master: int | None = None
    master_epoch: int = 0
    members: tuple[int, ...] = ()
    set_epoch: int = 0

    @property
    def is_first_election(self) -> bool:
        """Whether there was never a master, or all that could be were cleaned away."""
        return self.master is None and not self.members


class Group(msgspec.Struct, frozen=True):
    replicas: BrokerReplicaInfo
    sync: SyncStateInfo


class State(msgspec.Struct):
    """All groups by broker name. ``cleaned``: the last word on groups that are no more."""

    groups: dict[str, Group] = {}
    cleaned: dict[str, SyncStateInfo] = {}

    def copy(self) -> State:
        """Its parts are never changed, only replaced."""
        return State(dict(self.groups), dict(self.cleaned))


def encode(state: State) -> bytes:
    return msgspec.msgpack.encode(state)


def decode(data: bytes) -> State:
    return msgspec.msgpack.decode(data, type=State)


# -- events ----------------------------------------------------------------------------------------


class ApplyBrokerIdEvent(msgspec.Struct, frozen=True, tag="APPLY_BROKER_ID"):
    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    check_code: str


class UpdateBrokerAddressEvent(msgspec.Struct, frozen=True, tag="UPDATE_BROKER_ADDRESS"):
    broker_name: str
    broker_id: int
    address: str


class AlterSyncStateSetEvent(msgspec.Struct, frozen=True, tag="ALTER_SYNC_STATE_SET"):
    broker_name: str
    members: tuple[int, ...]
    set_epoch: int


class ElectMasterEvent(msgspec.Struct, frozen=True, tag="ELECT_MASTER"):
    """``master`` None: the old one is gone and none could follow; the set is kept.
    ``unclean``: the new one was not in the set."""

    broker_name: str
    master: int | None
    master_epoch: int
    unclean: bool = False


class CleanBrokerDataEvent(msgspec.Struct, frozen=True, tag="CLEAN_BROKER_DATA"):
    """``broker_ids`` empty: the whole group."""

    broker_name: str
    broker_ids: tuple[int, ...]


Event = (
    ApplyBrokerIdEvent
    | UpdateBrokerAddressEvent
    | AlterSyncStateSetEvent
    | ElectMasterEvent
    | CleanBrokerDataEvent
)

_ENTRY = msgspec.msgpack.Decoder(tuple[Event, ...])


def encode_events(events: tuple[Event, ...]) -> bytes:
    """One entry of the log. Without events it is the empty entry of a new leader."""
    return msgspec.msgpack.encode(events)


def decode_events(data: bytes) -> tuple[Event, ...]:
    """What an entry holds; an entry without data is the consensus core's own."""
    return _ENTRY.decode(data) if data else ()


# -- transitions -----------------------------------------------------------------------------------


def apply(state: State, event: Event) -> None:
    """Everything that changes a State is here."""
    match event:
        case ApplyBrokerIdEvent():
            _apply_broker_id(state, event)
        case UpdateBrokerAddressEvent(name, broker_id, address):
            info = state.groups[name].replicas
            known = info.replicas[broker_id]
            changed = msgspec.structs.replace(known, address=address)
            _store_replicas(state, name, {**info.replicas, broker_id: changed})
        case AlterSyncStateSetEvent(name, members, set_epoch):
            sync = state.groups[name].sync
            assert sync.master in members, f"{event} without the master {sync.master}"
            assert set_epoch == sync.set_epoch + 1, f"{event} after {sync}"
            new = msgspec.structs.replace(sync, members=members, set_epoch=set_epoch)
            _store_sync(state, name, new)
        case ElectMasterEvent(name, None, epoch):
            sync = state.groups[name].sync
            assert epoch == sync.master_epoch + 1, f"{event} after {sync}"
            new = msgspec.structs.replace(sync, master=None, master_epoch=epoch)
            _store_sync(state, name, new)
        case ElectMasterEvent(name, master, epoch, unclean):
            group = state.groups[name]
            assert master is not None and master in group.replicas.replicas, event
            assert epoch == group.sync.master_epoch + 1, f"{event} after {group.sync}"
            is_clean = group.sync.is_first_election or master in group.sync.members
            assert is_clean or unclean, f"{event}: the set is {group.sync.members}"
            new = SyncStateInfo(master, epoch, (master,), group.sync.set_epoch + 1)
            _store_sync(state, name, new)
        case CleanBrokerDataEvent():
            _clean(state, event)


def _apply_broker_id(state: State, event: ApplyBrokerIdEvent) -> None:
    """Once only: a repetition finds its id taken, by itself."""
    name, broker_id = event.broker_name, event.broker_id
    if name not in state.groups:
        # A group that was cleaned goes on with the epochs that it had.
        last = state.cleaned.pop(name, SyncStateInfo())
        state.groups[name] = Group(BrokerReplicaInfo(event.cluster_name), last)
    info = state.groups[name].replicas
    known = info.replicas.get(broker_id)
    if known is not None:
        assert known.check_code == event.check_code, f"{event}: {broker_id} is another's"
        return
    replicas = {**info.replicas, broker_id: Replica(event.address, event.check_code)}
    _store_replicas(state, name, replicas, max(info.next_broker_id, broker_id + 1))


def _clean(state: State, event: CleanBrokerDataEvent) -> None:
    """Who is cleaned away is no member and no master any more, which fences it."""
    name = event.broker_name
    group = state.groups[name]
    ids = event.broker_ids or tuple(group.replicas.replicas)
    left = {i: replica for i, replica in group.replicas.replicas.items() if i not in ids}
    new = group.sync
    members = tuple(i for i in group.sync.members if i not in ids)
    if members != group.sync.members:
        new = msgspec.structs.replace(new, members=members, set_epoch=new.set_epoch + 1)
    if group.sync.master in ids:
        new = msgspec.structs.replace(new, master=None, master_epoch=new.master_epoch + 1)
    if new != group.sync:
        _store_sync(state, name, new)
    _store_replicas(state, name, left)
    if not left:
        state.cleaned[name] = state.groups.pop(name).sync


def _store_replicas(
    state: State, name: str, replicas: Mapping[int, Replica], next_broker_id: int = 0
) -> None:
    group = state.groups[name]
    info = msgspec.structs.replace(
        group.replicas,
        replicas=dict(sorted(replicas.items())),
        next_broker_id=max(next_broker_id, group.replicas.next_broker_id),
    )
    state.groups[name] = msgspec.structs.replace(group, replicas=info)


def _store_sync(state: State, name: str, new: SyncStateInfo) -> None:
    """The one place where a master or a set changes: each change has an epoch of its own, and no
    epoch is used twice or left out."""
    group = state.groups[name]
    old = group.sync
    is_new_tenure = new.master_epoch != old.master_epoch
    is_new_set = new.set_epoch != old.set_epoch
    assert new.master_epoch == old.master_epoch + is_new_tenure, f"{name}: master {old} to {new}"
    assert new.set_epoch == old.set_epoch + is_new_set, f"{name}: set {old} to {new}"
    assert is_new_tenure or new.master == old.master, f"{name}: master {old} to {new}"
    assert is_new_set or new.members == old.members, f"{name}: set {old} to {new}"
    assert is_new_tenure or is_new_set, f"{name}: {old} is there already"
    assert new.master is None or new.master in new.members, f"{name}: {new}"
    assert new.members == tuple(sorted(new.members)), f"{name}: {new}"
    state.groups[name] = msgspec.structs.replace(group, sync=new)
