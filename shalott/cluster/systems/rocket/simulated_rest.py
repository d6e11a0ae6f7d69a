"""What the nodes of a RocketMQ group wait for: see cluster/sim/rest.py. And what they remember of
themselves, which is on their disks when nothing happens, and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shalott.broker.rocket.autoswitch import epochs
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.dledger.replica import DLedgerReplica
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from shalott.broker.rocket.node.node import RocketNode
from shalott.broker.rocket.processor.table_files import DELAYS, GROUPS, OFFSETS, TOPICS
from shalott.broker.rocket.processor.topics import HALF_TOPIC, OP_TOPIC
from shalott.broker.rocket.processor.transactions import GROUP, QUEUE
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.replicas.replica import AutoSwitchReplica
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.machine import Machine
from shalott.cluster.sim.oracles.messages import messages_in


class _Offsets(msgspec.Struct, rename={"offset_table": "offsetTable"}):
    """What tables of offsets have in common."""

    offset_table: dict[str, object]


Said = Iterator[tuple[str, str]]  # (node, what it waits for)


def waits(machines: Mapping[str, Machine]) -> Iterator[tuple[str, str, str]]:
    """What is not at rest: (node, "", for what)."""
    nodes = {
        name: machine.node
        for name, machine in machines.items()
        if machine.is_alive and isinstance(machine.node, RocketNode)
    }
    disks = {name: machines[name].disk for name in nodes}
    for name, what in (*_of_files(nodes, disks), *_of_masters(nodes), *_of_raft(nodes)):
        yield name, "", what
    more = (*_of_epochs(nodes, disks), *_of_states(nodes), *_of_transactions(nodes, disks))
    yield from ((name, "", what) for name, what in more)


def _of_files(nodes: Mapping[str, RocketNode], disks: Mapping[str, SimDisk]) -> Said:
    for name, node in nodes.items():
        if node.tables is None:
            continue
        files, disk = node.tables.files, disks[name]
        there = dict.fromkeys(disk.files())
        for path in (TOPICS, GROUPS):
            if path in files.unwritten:
                yield name, f"it has not written {path}"
            elif path in there and disk.read_all(path) != files.contents[path]():
                yield name, f"it has another {path} in memory than on its disk"
        # These get new versions as long as there are slaves.
        for path in (OFFSETS, DELAYS):
            if path in there and _offsets(disk.read_all(path)) != _offsets(files.contents[path]()):
                yield name, f"it has another {path} in memory than on its disk"


def _offsets(table: bytes) -> object:
    return decode_java_json(table, _Offsets).offset_table


def _of_masters(nodes: Mapping[str, RocketNode]) -> Said:
    for name, node in nodes.items():
        replica = node.replica
        if isinstance(replica, MasterSlaveReplica) and replica.transfers.waiting:
            yield name, f"{replica.transfers.waiting} producers wait for slaves"


def _of_raft(nodes: Mapping[str, RocketNode]) -> Said:
    ledgers = {
        n: x.replica.group for n, x in nodes.items() if isinstance(x.replica, DLedgerReplica)
    }
    controllers = {n: x.controller.group for n, x in nodes.items() if x.controller is not None}
    for group in (ledgers, controllers):
        ahead = max((one.committed_index for one in group.values()), default=0)
        for name, one in group.items():
            if one.waiting:
                yield name, f"{one.waiting} proposals and reads have no answer"
            if one.applied_index < ahead:
                yield name, f"it has applied {one.applied_index} of {ahead} committed entries"


def _of_epochs(nodes: Mapping[str, RocketNode], disks: Mapping[str, SimDisk]) -> Said:
    """Every byte of a log lies under the epoch of the master that wrote it."""
    replicas = {n: x.replica for n, x in nodes.items() if isinstance(x.replica, AutoSwitchReplica)}
    masters = [one for one in replicas.values() if one.role == "master"]
    for name, replica in replicas.items():
        known = replica.service.cache.entries
        there = dict.fromkeys(disks[name].files())
        if epochs.PATH in there and epochs.decode(disks[name].read_all(epochs.PATH)) != known:
            yield name, "it has other epochs in memory than on its disk"
        for master in masters:
            end = replica.store.log.max_offset
            theirs = epochs.without_suffix(master.service.cache.entries, end)
            if epochs.without_suffix(known, end) != theirs[-len(known) :]:
                yield name, f"its epochs are {known}, its master's {theirs}"


def _of_transactions(nodes: Mapping[str, RocketNode], disks: Mapping[str, SimDisk]) -> Said:
    """What a master knows of transactions is what its log says of them."""
    for name, node in nodes.items():
        replica, service = node.replica, node.broker
        if replica is None or service is None or replica.role != "master":
            continue
        broker, directory = service.broker, replica.store.log.directory
        found = [
            one
            for path in disks[name].files()
            if path.startswith(f"{directory}/")
            for one in messages_in(disks[name].read_all(path))
        ]
        done = broker.tables.offset(GROUP, HALF_TOPIC, QUEUE) or 0
        halves = {one.queue_offset: None for one in found if one.topic == HALF_TOPIC}
        notes = [one.body for one in found if one.topic == OP_TOPIC]
        noted = {int(number): None for body in notes for number in body.split(b",")}
        known = broker.halves
        for number in halves:
            is_noted, counts = number in noted, number < done or number in known.decided
            if counts and not is_noted:
                yield name, f"transaction {number} counts as ended, and its log has no note of it"
            elif is_noted and not counts:
                yield name, f"it does not know that transaction {number} has ended"
            elif not is_noted and number not in known.waiting:
                yield name, f"it does not know of transaction {number}, which is open"


def _of_states(nodes: Mapping[str, RocketNode]) -> Said:
    """What controllers have applied up to the same entry is the same."""
    seen: dict[int, bytes] = {}
    for name, node in nodes.items():
        if node.controller is not None:
            replicated = node.controller.replicated
            state = cs.encode(replicated.applied)
            if seen.setdefault(replicated.group.applied_index, state) != state:
                yield name, "it has made something else of the same decisions"
