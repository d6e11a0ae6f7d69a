"""What a request leads to: an answer and the events that make it true, or a refusal.

Pure. The leader computes these against its state with all that it has proposed already, and answers
when the events are committed. The order of the checks and the codes are upstream's
(ReplicasInfoManager), and so is what follows from them; docs/protocols.md 3.1, 3.3.

Where upstream is followed in its source rather than in its words: an election that fails is 2004
with the event "no master" when the controllers themselves wanted it, and 2012 without an event when
a broker did. The event comes once, when a dead master is given up; upstream appends one, and a new
master epoch, at every attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shalott.broker.base.env import Env
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.elect_policy import Candidates, LiveInfo, elect
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response

SEPARATOR = ";"


@dataclass(frozen=True, slots=True)
class Decision:
    """``events`` make the answer true; without any, it is true already."""

    answer: Command
    events: tuple[cs.Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Liveness:
    """What the heartbeats say: of (cluster, group, broker id)."""

    is_alive: Callable[[str, str, int], bool]
    live_info: Callable[[str, str, int], LiveInfo | None] = field(default=lambda *_: None)


def refuse(code: ResponseCode, remark: str, ext: dict[str, str] | None = None) -> Decision:
    return Decision(response(code, remark, ext))


def accept(
    header: cm.Header | None = None, body: bytes = b"", *, events: tuple[cs.Event, ...] = ()
) -> Decision:
    ext = {} if header is None else cm.to_ext(header)
    return Decision(response(ResponseCode.SUCCESS, "", ext, body), events)


# -- identity --------------------------------------------------------------------------------------


def next_broker_id(state: cs.State, request: cm.GetNextBrokerId) -> Decision:
    """1012."""
    group = state.groups.get(request.broker_name)
    next_id = cm.FIRST_BROKER_ID if group is None else group.replicas.next_broker_id
    return accept(
        cm.NextBrokerId(
            cluster_name=request.cluster_name,
            broker_name=request.broker_name,
            next_broker_id=next_id,
        )
    )


def apply_broker_id(state: cs.State, request: cm.ApplyBrokerId) -> Decision:
    """1013: an id that is free, or that the same broker applied for already."""
    name, broker_id = request.broker_name, request.applied_broker_id
    group = state.groups.get(name)
    if group is None and broker_id != cm.FIRST_BROKER_ID:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"nobody of {name} is registered, and the first id is {cm.FIRST_BROKER_ID},"
            f" not {broker_id}",
        )
    known = None if group is None else group.replicas.replicas.get(broker_id)
    if known is not None and known.check_code != request.register_check_code:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"the id {broker_id} of {name} is another broker's",
        )
    event = cs.ApplyBrokerIdEvent(
        request.cluster_name,
        name,
        broker_id,
        request.register_check_code.partition(SEPARATOR)[0],
        request.register_check_code,
    )
    header = cm.AppliedBrokerId(cluster_name=request.cluster_name, broker_name=name)
    return accept(header, events=(event,) if known is None else ())


def register_broker(state: cs.State, request: cm.RegisterBroker, live: Liveness) -> Decision:
    """1003: who the master is, if it is alive; and the broker's address as it is now.

    A broker registers when it starts. The master then knows nothing of the reports of its former
    life, of which one may still be under way: acknowledgements would not wait for the member that
    it brings. The set gets a new epoch, so that such a report is refused. Upstream leaves it.
    """
    name, broker_id = request.broker_name, request.broker_id
    group = state.groups.get(name)
    if group is None or broker_id not in group.replicas.replicas:
        who = name if group is None else f"broker {broker_id} of {name}"
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, f"{who} is not registered"
        )
    events: list[cs.Event] = []
    if group.replicas.address(broker_id) != request.broker_address:
        events.append(cs.UpdateBrokerAddressEvent(name, broker_id, request.broker_address))
    if group.sync.master == broker_id:
        sync = group.sync
        events.append(cs.AlterSyncStateSetEvent(name, sync.members, sync.set_epoch + 1))
    state = state.copy()
    for event in events:
        cs.apply(state, event)
    group = state.groups[name]
    sync, info = group.sync, cm.MasterInfo()
    if sync.master is not None and live.is_alive(group.replicas.cluster_name, name, sync.master):
        info = master_info(group)
    return accept(info, sync_state_set(sync), events=tuple(events))


# -- the SyncStateSet ------------------------------------------------------------------------------


def alter_sync_state_set(
    state: cs.State, request: cm.AlterSyncStateSet, wanted: cm.SyncStateSet, live: Liveness
) -> Decision:
    """1001. A master that asks for the set that is there (its answer was lost, say) is told so with
    success; upstream says 2013, as we do to anybody else.
    """
    name = request.broker_name
    group = state.groups.get(name)
    if group is None:
        return refuse(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"nobody of {name} is registered",
        )
    sync = group.sync
    members = tuple(sorted(dict.fromkeys(wanted.sync_state_set)))
    is_master = (request.master_broker_id, request.master_epoch) == (sync.master, sync.master_epoch)
    if members == sync.members:
        if is_master:
            return _altered(members, sync.set_epoch)
        return refuse(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, f"the set is {members} already"
        )
    reason = _why_not(group, name, request, wanted, live)
    if reason is not None:
        return reason
    epoch = sync.set_epoch + 1
    return _altered(members, epoch, (cs.AlterSyncStateSetEvent(name, members, epoch),))


def _why_not(
    group: cs.Group,
    name: str,
    request: cm.AlterSyncStateSet,
    wanted: cm.SyncStateSet,
    live: Liveness,
) -> Decision | None:
    """The checks of 1001 between those of the whole set, in upstream's order."""
    sync = group.sync
    if request.master_broker_id != sync.master:
        return refuse(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"the master is {sync.master}, not {request.master_broker_id}",
        )
    if request.master_epoch != sync.master_epoch:
        return refuse(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"the master epoch is {sync.master_epoch}, not {request.master_epoch}",
        )
    if wanted.sync_state_set_epoch != sync.set_epoch:
        return refuse(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"the epoch of the set is {sync.set_epoch}, not {wanted.sync_state_set_epoch}",
        )
    for member in wanted.sync_state_set:
        if member not in group.replicas.replicas:
            return refuse(ResponseCode.CONTROLLER_INVALID_REPLICAS, f"there is no broker {member}")
        if not live.is_alive(group.replicas.cluster_name, name, member):
            return refuse(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"broker {member} is not alive")
    if sync.master not in wanted.sync_state_set:
        return refuse(
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"the set lacks the master {sync.master}",
        )
    return None


def _altered(members: tuple[int, ...], epoch: int, events: tuple[cs.Event, ...] = ()) -> Decision:
    body = cm.SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch)
    header = cm.AlteredSyncStateSet(new_sync_state_set_epoch=epoch)
    return accept(header, cm.to_body(body), events=events)


# -- elections -------------------------------------------------------------------------------------


def elect_master(
    env: Env, state: cs.State, request: cm.ElectMaster, live: Liveness, *, unclean: bool
) -> Decision:
    """1002. ``unclean``: a broker outside the set may follow if no member of the set is alive."""
    name = request.broker_name
    group = state.groups.get(name)
    if group is None:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"nobody of {name} is registered",
        )
    asker = None if request.broker_id == cm.NO_BROKER_ID else request.broker_id
    if asker is not None and asker not in group.replicas.replicas:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"broker {asker} of {name} is not registered",
        )
    master = asker if group.sync.is_first_election else None
    if master is None:
        designated = asker if request.designate_elect else None
        master = elect(env, _candidates(group, name, live, unclean=unclean), designated)
    if master is None:
        return _failed(group, name, asker)
    if master == group.sync.master:
        answer = response(
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            f"the master {master} of {name} is alive",
            cm.to_ext(master_info(group)),
            cm.to_body(cm.ElectMasterBody(sync_state_set=group.sync.members)),
        )
        return Decision(answer)
    return _elected(group, name, master)


def _candidates(group: cs.Group, name: str, live: Liveness, *, unclean: bool) -> Candidates:
    cluster = group.replicas.cluster_name
    return Candidates(
        members=group.sync.members,
        all_replicas=tuple(group.replicas.replicas) if unclean else (),
        old_master=group.sync.master,
        is_alive=lambda broker: live.is_alive(cluster, name, broker),
        live_info=lambda broker: live.live_info(cluster, name, broker),
    )


def _elected(group: cs.Group, name: str, master: int) -> Decision:
    sync = group.sync
    is_unclean = not sync.is_first_election and master not in sync.members
    event = cs.ElectMasterEvent(name, master, sync.master_epoch + 1, is_unclean)
    header = cm.MasterInfo(
        master_broker_id=master,
        master_address=group.replicas.address(master),
        master_epoch=sync.master_epoch + 1,
        sync_state_set_epoch=sync.set_epoch + 1,
    )
    addresses = {i: replica.address for i, replica in group.replicas.replicas.items()}
    members = cm.BrokerMemberGroup(
        cluster=group.replicas.cluster_name, broker_name=name, broker_addrs=addresses
    )
    body = cm.ElectMasterBody(broker_member_group=members, sync_state_set=(master,))
    return accept(header, cm.to_body(body), events=(event,))


def _failed(group: cs.Group, name: str, asker: int | None) -> Decision:
    sync = group.sync
    if asker is not None:
        return refuse(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            f"no master could be elected for {name}, whose set is {sync.members}",
        )
    events: tuple[cs.Event, ...] = ()
    if sync.master is not None:  # it is dead, or it would have stayed
        events = (cs.ElectMasterEvent(name, None, sync.master_epoch + 1),)
    remark = f"the master of {name} is gone, and nobody of {sync.members} can follow"
    return Decision(response(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, remark), events)


# -- looking ---------------------------------------------------------------------------------------


def master_info(group: cs.Group) -> cm.MasterInfo:
    sync = group.sync
    return cm.MasterInfo(
        master_broker_id=sync.master,
        master_address=group.replicas.address(sync.master),
        master_epoch=sync.master_epoch,
        sync_state_set_epoch=sync.set_epoch,
    )


def sync_state_set(sync: cs.SyncStateInfo) -> bytes:
    return cm.to_body(
        cm.SyncStateSet(sync_state_set=sync.members, sync_state_set_epoch=sync.set_epoch)
    )


def replica_info(state: cs.State, request: cm.GetReplicaInfo) -> Decision:
    """1004."""
    group = state.groups.get(request.broker_name)
    if group is None:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            f"nobody of {request.broker_name} is registered",
        )
    header = cm.ReplicaInfo(
        master_broker_id=group.sync.master,
        master_address=group.replicas.address(group.sync.master),
        master_epoch=group.sync.master_epoch,
    )
    return accept(header, sync_state_set(group.sync))


def sync_state_data(state: cs.State, names: Sequence[str], live: Liveness) -> Decision:
    """1006."""
    table = {
        name: _replicas_info(state.groups[name], name, live)
        for name in names
        if name in state.groups
    }
    return accept(body=cm.to_body(cm.BrokerReplicasInfo(replicas_info_table=table)))


def _replicas_info(group: cs.Group, name: str, live: Liveness) -> cm.ReplicasInfo:
    cluster, sync = group.replicas.cluster_name, group.sync
    identities = [
        cm.ReplicaIdentity(
            broker_name=name,
            broker_id=broker_id,
            broker_address=replica.address,
            alive=live.is_alive(cluster, name, broker_id),
        )
        for broker_id, replica in group.replicas.replicas.items()
    ]
    return cm.ReplicasInfo(
        master_broker_id=sync.master,
        master_address=group.replicas.address(sync.master),
        master_epoch=sync.master_epoch,
        sync_state_set_epoch=sync.set_epoch,
        in_sync_replicas=tuple(i for i in identities if i.broker_id in sync.members),
        not_in_sync_replicas=tuple(i for i in identities if i.broker_id not in sync.members),
    )


# -- cleaning --------------------------------------------------------------------------------------


def clean_broker_data(state: cs.State, request: cm.CleanBrokerData, live: Liveness) -> Decision:
    """1011. Upstream forgets which ids were meant when living brokers may be cleaned, and cleans
    the whole group; here the ids are always heeded.
    """
    name = request.broker_name
    group = state.groups.get(name)
    words = (request.broker_controller_ids_to_clean or "").split(SEPARATOR)
    try:
        ids = tuple(sorted({int(word): None for word in words if word.strip()}))
    except ValueError:
        return _not_cleaned(f"{request.broker_controller_ids_to_clean!r} are no ids, as in 1;2")
    if not request.is_clean_living_broker and group is not None:
        cluster = group.replicas.cluster_name
        if not ids and group.sync.master is not None:
            return _not_cleaned(f"{name} has a master: it is alive")
        for broker_id in ids:
            if live.is_alive(cluster, name, broker_id):
                return _not_cleaned(f"broker {broker_id} of {name} is alive")
    if group is None:
        return _not_cleaned(f"nobody of {name} is registered")
    return accept(events=(cs.CleanBrokerDataEvent(name, ids),))


def _not_cleaned(remark: str) -> Decision:
    return refuse(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
