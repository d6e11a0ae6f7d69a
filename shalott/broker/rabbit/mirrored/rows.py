"""What queue processes change in the queue's row: bodies of metadata transactions.

Each reads the row afresh and decides on what it finds there, inside the transaction; none stores a
row that was read before. (RabbitMQ's restarted master did: its stale snapshot erased the row of a
mirror that had been promoted meanwhile, and there were two masters. rabbitmq-server#2009.) After
rabbit/rabbit_mirror_queue_misc.erl and rabbit_mirror_queue_slave.erl (init_it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from shalott.broker.rabbit.amqp.exchanges import drop_unused
from shalott.broker.rabbit.gm.group import GroupChange, ReadGroup, apply_change
from shalott.broker.rabbit.metadata.api import Metadata, Transaction
from shalott.broker.rabbit.metadata.policies import in_force
from shalott.broker.rabbit.metadata.records import BindingRow, GroupRow, QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.processes.messages import Pid

QUEUE = "queue"
DURABLE = "durable_queue"
GROUP = "gm_group"
BINDING = "binding"

IsAlive = Callable[[Pid], bool]


def read(tx: Transaction | Metadata, key: str) -> QueueRow | None:
    row = tx.read(QUEUE, key)
    assert row is None or isinstance(row, QueueRow)
    return row


def read_durable(tx: Transaction | Metadata, key: str) -> QueueRow | None:
    row = tx.read(DURABLE, key)
    assert row is None or isinstance(row, QueueRow)
    return row


def read_any(tx: Transaction | Metadata, key: str) -> QueueRow | None:
    """The live row, or that of a durable queue that waits for its node."""
    return read(tx, key) or read_durable(tx, key)


def store(tx: Transaction, row: QueueRow) -> QueueRow:
    """Write the live row and, for a durable queue, what a restarted cluster recovers from."""
    tx.write(QUEUE, row.key, row)
    if row.durable:
        durable = msgspec.structs.replace(
            row, slave_pids=(), sync_slave_pids=(), gm_pids=(), slave_pids_pending_shutdown=()
        )
        if tx.read(DURABLE, row.key) != durable:
            tx.write(DURABLE, row.key, durable)
    return row


def with_policy(tx: Transaction, row: QueueRow) -> QueueRow:
    """``row`` under the policy that is in force now."""
    found = in_force(tx, row.vhost, row.name)
    name, definition = found.policy, policy.normalise(found.effective)
    if (name, definition) == (row.policy, row.definition):
        return row
    return msgspec.structs.replace(
        row, policy=name, definition=definition, policy_version=row.policy_version + 1
    )


# -- masters ---------------------------------------------------------------------------------------


def declare(tx: Transaction, wanted: QueueRow) -> tuple[QueueRow, bool]:
    """The row that exists, live or waiting for its node; else ``wanted``, stored. True if it is
    new.
    """
    existing = read_any(tx, wanted.key)
    if existing is not None:
        return existing, False
    return store(tx, with_policy(tx, wanted)), True


def take_over(tx: Transaction, key: str, me: Pid, seen: Pid | None) -> QueueRow | None:
    """Become master in place of ``seen``, which is dead. None if the row has changed in the
    meantime.
    """
    live, durable = read(tx, key), read_durable(tx, key)
    row = live if live is not None else durable
    if row is None or row.pid != seen:
        return None
    fresh = msgspec.structs.replace(
        with_policy(tx, row), pid=me, slave_pids=(), sync_slave_pids=(), gm_pids=(), state="live"
    )
    return store(tx, fresh)


def store_snapshot(tx: Transaction, snapshot: QueueRow, me: Pid) -> QueueRow:
    """KB-RMQ-02: internal_declare(Q, true) stores what it was given over the row of now: the
    promotion that came in between is undone, and its ring member is gone from the row.
    """
    stale = msgspec.structs.replace(
        snapshot, pid=me, slave_pids=(), sync_slave_pids=(), state="live"
    )
    return store(tx, stale)


def update_policy(tx: Transaction, key: str, me: Pid) -> QueueRow | None:
    """The row under the policy in force; None if ``me`` is not its master."""
    row = read(tx, key)
    if row is None or row.pid != me:
        return None
    updated = with_policy(tx, row)
    return row if updated is row else store(tx, updated)


def add_gm(tx: Transaction, key: str, me: Pid) -> QueueRow | None:
    """The master's ring membership is told to all; None if ``me`` is not the master any more."""
    row = read(tx, key)
    if row is None or row.pid != me:
        return None
    if me in row.gm_pids:
        return row
    return store(tx, msgspec.structs.replace(row, gm_pids=(me, *row.gm_pids)))


def clear_mirrors(
    tx: Transaction, key: str, me: Pid, survivors: tuple[Pid, ...], *, anybodys: bool = False
) -> None:
    """After stop_all_slaves: ``survivors`` didn't die in time and must be stopped before they come
    back. The queue is stopped until its master's node is back.

    ``anybodys``: even in the row of another master (KB-RMQ-02).
    """
    row = read(tx, key)
    if row is None or (row.pid != me and not anybodys):
        return
    store(
        tx,
        msgspec.structs.replace(
            row,
            slave_pids=(),
            sync_slave_pids=(),
            gm_pids=(),
            slave_pids_pending_shutdown=survivors,
            state="stopped" if row.pid == me else row.state,
        ),
    )
    tx.delete(GROUP, key)


def mark_ended(
    tx: Transaction, key: str, me: Pid, how: Literal["crashed", "stopped"]
) -> QueueRow | None:
    """``me`` has ended as the queue's master and no mirror takes its place. None if it is not the
    master, or the row says so already.
    """
    row = read(tx, key)
    if row is None or row.pid != me or row.state == how:
        return None
    return store(tx, msgspec.structs.replace(row, state=how))


def mark_current_row(tx: Transaction, key: str, crashed: QueueRow | None) -> None:
    """KB-RMQ-38: terminate(shutdown) writes "stopped" into the row that is there, also another
    master's; any other end but an orderly one stores the row that this process has known:
    ``crashed``.
    """
    row = read(tx, key)
    if row is None:
        return
    if crashed is None:
        store(tx, msgspec.structs.replace(row, state="stopped"))
    else:
        store(tx, msgspec.structs.replace(crashed, state="crashed"))


def delete(tx: Transaction, row: QueueRow) -> bool:
    """Rows and bindings of the queue, and auto-delete exchanges that had no other binding.

    False if there was no row. The ring still needs its group's row.
    """
    key = row.key
    found = read(tx, key) is not None or read_durable(tx, key) is not None
    for table in (QUEUE, DURABLE):
        if tx.read(table, key) is not None:
            tx.delete(table, key)
    sources = []
    for binding, record in tx.rows(BINDING):
        if isinstance(record, BindingRow) and _leads_to(record, row):
            tx.delete(BINDING, binding)
            sources.append(record.source)
    drop_unused(tx, row.vhost, sources)
    return found


def delete_owned(tx: Transaction, key: str, me: Pid) -> bool:
    """The same by the master, if it still is."""
    row = read(tx, key)
    return row is not None and row.pid == me and delete(tx, row)


def forget_group(tx: Transaction, key: str) -> None:
    """The ring is over; unless the queue was declared again meanwhile."""
    if read(tx, key) is None and tx.read(GROUP, key) is not None:
        tx.delete(GROUP, key)


def _leads_to(binding: BindingRow, row: QueueRow) -> bool:
    return (
        not binding.to_exchange and binding.destination == row.name and binding.vhost == row.vhost
    )


def forget_live(tx: Transaction, key: str, dead: Pid) -> bool:
    """The master's node is down and there are no mirrors: the queue waits for it, or is gone for
    good.

    An exclusive queue is gone even if it is durable: its connection was on that node.
    """
    row = read(tx, key)
    if row is None or row.pid != dead:
        return False
    if row.durable and row.exclusive_owner is None:
        tx.delete(QUEUE, key)
    else:
        delete(tx, row)
    return True


def forget_orphan(tx: Transaction, key: str, owner: Pid) -> bool:
    """The exclusive queue of a connection that is no more."""
    row = read_any(tx, key)
    return row is not None and row.exclusive_owner == owner and delete(tx, row)


def forget_master(
    tx: Transaction, key: str, node: str, running: Sequence[str]
) -> Literal["kept", "promoted", "deleted"]:
    """The cluster forgets ``node``, which had the last master of a durable queue and is down.

    A mirror whose node is down too takes its place, the oldest first, and recovers the queue when
    it is back; without one the queue is gone (rabbit_amqqueue:forget_all_durable). Stricter than
    there: a queue that has a process on a running node is kept, for that one decides.
    """
    live, durable = read(tx, key), read_durable(tx, key)
    if durable is None or durable.pid is None or durable.pid.node != node:
        return "kept"
    pids = () if live is None else (live.pid, *live.slave_pids)
    if any(pid is not None and pid.node in running for pid in pids):
        return "kept"
    heirs = [heir for heir in durable.recoverable_slaves if heir not in (node, *running)]
    if not heirs:
        delete(tx, durable)
        return "deleted"
    fake = Pid(heirs[0], 0, 0)  # a process that never was (node_to_fake_pid)
    if live is not None:
        tx.delete(QUEUE, key)
    tx.write(DURABLE, key, msgspec.structs.replace(durable, pid=fake))
    return "promoted"


# -- mirrors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MirrorStart:
    """What a starting mirror found. ``stop_first``: old processes of this node that must end
    before.
    """

    outcome: Literal["new", "no_row", "duplicate_live_master", "stale_master", "existing"]
    row: QueueRow | None = None
    stop_first: tuple[Pid, ...] = ()


def init_mirror(tx: Transaction, key: str, me: Pid, is_alive: IsAlive) -> MirrorStart:
    """Put ``me`` at the end of the mirrors, unless this node has a process of the queue already."""
    row = read(tx, key)
    if row is None or row.pid is None:
        return MirrorStart("no_row")
    if me in row.slave_pids:
        return MirrorStart("new", row)  # this body's own earlier run
    if row.pid.node == me.node:
        return MirrorStart("duplicate_live_master" if is_alive(row.pid) else "stale_master", row)
    mine = tuple(pid for pid in row.slave_pids if pid.node == me.node)
    if any(is_alive(pid) for pid in mine):
        return MirrorStart("existing", row)
    pending = tuple(p for p in row.slave_pids_pending_shutdown if p.node == me.node)
    cleaned = _without(row, mine)
    stored = msgspec.structs.replace(
        cleaned,
        slave_pids=(*cleaned.slave_pids, me),
        gm_pids=(me, *cleaned.gm_pids),
        slave_pids_pending_shutdown=tuple(
            p for p in row.slave_pids_pending_shutdown if p not in pending
        ),
        recoverable_slaves=tuple(dict.fromkeys((*row.recoverable_slaves, me.node))),
    )
    return MirrorStart("new", store(tx, stored), tuple(p for p in pending if is_alive(p)))


def _without(row: QueueRow, gone: tuple[Pid, ...]) -> QueueRow:
    return msgspec.structs.replace(
        row,
        slave_pids=tuple(p for p in row.slave_pids if p not in gone),
        sync_slave_pids=tuple(p for p in row.sync_slave_pids if p not in gone),
        gm_pids=tuple(p for p in row.gm_pids if p not in gone),
    )


def record_synchronised(tx: Transaction, key: str, me: Pid) -> QueueRow | None:
    """``me`` holds all that the master holds. None if it is no mirror any more."""
    row = read(tx, key)
    if row is None or me not in row.slave_pids:
        return None
    if me in row.sync_slave_pids:
        return row
    return store(tx, msgspec.structs.replace(row, sync_slave_pids=(*row.sync_slave_pids, me)))


def forget_mirror(tx: Transaction, key: str, gone: Pid) -> bool:
    """A mirror that stopped on purpose takes itself out."""
    row = read(tx, key)
    if row is None or gone not in row.slave_pids:
        return False
    store(tx, _without(row, (gone,)))
    return True


# -- deaths ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of the queue when members of its group died.

    same: nothing changed for me. promoted: I am the new master. other: another mirror shall be
    master. not_synced: I would be, but hold too little. not_member: I am not in the row. gone:
    there is no row.
    """

    outcome: Literal["same", "promoted", "other", "not_synced", "not_member", "gone"]
    row: QueueRow | None = None
    master: Pid | None = None
    was_synchronised: bool = False
    master_was: Pid | None = None


def remove_dead(
    tx: Transaction, key: str, me: Pid, dead: tuple[Pid, ...], *, promotes_unsynced: bool = False
) -> Removal:
    """Take the dead out of the row; if the master is among them, the oldest mirror that may is
    promoted: any of them with ``promotes_unsynced``, even against the policy.
    """
    row = read(tx, key)
    if row is None:
        return Removal("gone")
    members = tuple(pid for pid in (row.pid, *row.slave_pids) if pid is not None)
    if me not in members:
        return Removal("not_member", row)
    alive_gm = tuple(pid for pid in row.gm_pids if pid not in dead)
    # A master that isn't in the ring yet counts as alive: its mirrors monitor it as well.
    alive = tuple(p for p in members if p in alive_gm or (p == row.pid and p not in dead))
    if me not in alive:
        return Removal("not_member", row)
    if row.pid in alive:
        mirrors = tuple(pid for pid in alive if pid != row.pid)
        return Removal("same", _settle(tx, row, row.pid, mirrors, alive_gm), row.pid)
    successor = alive[0] if promotes_unsynced else _successor(row, alive)
    if successor is None:
        if alive[0] == me:
            # This mirror is about to stop. The master's node must not wait for it when it is back.
            store(tx, _without(row, (me,)))
            return Removal("not_synced", row, master_was=row.pid)
        successor = alive[0]
    if successor != me:
        # Not ours to decide: the successor will do it. Only the mirrors are settled.
        return Removal("other", _settle(tx, row, row.pid, alive, alive_gm), successor)
    mirrors = tuple(pid for pid in alive if pid != me)
    return Removal(
        "promoted",
        _settle(tx, row, me, mirrors, alive_gm),
        me,
        was_synchronised=me in row.sync_slave_pids,
        master_was=row.pid,
    )


def _successor(row: QueueRow, alive: tuple[Pid, ...]) -> Pid | None:
    """The oldest; under ha-promote-on-failure=when-synced the oldest that is synchronised."""
    if policy.promotes_unsynced_on_failure(row):
        return alive[0]
    return next((pid for pid in alive if pid in row.sync_slave_pids), None)


def _settle(
    tx: Transaction,
    row: QueueRow,
    master: Pid | None,
    mirrors: tuple[Pid, ...],
    gm_pids: tuple[Pid, ...],
) -> QueueRow:
    settled = msgspec.structs.replace(
        row,
        pid=master,
        slave_pids=mirrors,
        sync_slave_pids=tuple(pid for pid in row.sync_slave_pids if pid in mirrors),
        gm_pids=gm_pids,
        state="live",
    )
    return row if settled == row else store(tx, settled)


# -- the group -------------------------------------------------------------------------------------


def change_group(tx: Transaction, key: str, change: GroupChange) -> GroupRow:
    """Apply a change that the GM machine asked for. Raises LostMembership."""
    row = tx.read(GROUP, key)
    assert row is None or isinstance(row, GroupRow)
    changed = apply_change(change, row, floor_version=tx.version(GROUP, key))
    # A read that must be fresh is written back: only a write is compared with the leader's tables.
    if changed is not row or isinstance(change, ReadGroup):
        tx.write(GROUP, key, changed)
    return changed
