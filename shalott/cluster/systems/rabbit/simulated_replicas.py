"""What every replica of every queue holds: a look into the nodes that only a simulation allows.

Taken when the cluster has settled and before it is drained, and written down as node events of kind
``replica``; checkers/runs/convergence.py judges them. Detail: ``depth``, ``digest`` of the ordered
contents, ``synchronised`` (as the node's own row says; a master always is), ``unit`` of the depth.
Replicated logs are asked for, as in every world (cluster/systems/rocket/replicas.py).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shalott.broker.base.batches import Scanner
from shalott.broker.base.errors import StorageError
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.node.node import Node
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.memory import UNLIMITED
from shalott.broker.rabbit.storage.recovery import Replay, journal_of
from shalott.broker.rabbit.storage.snapshot import Held
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.machine import Machine, SimEventLog
from shalott.cluster.sim.rest import record_waits, until
from shalott.cluster.systems.rabbit.simulated_rest import waits

log = logging.getLogger("shalott.cluster.systems")

STEP_TIMEOUT_S = 5.0  # for what is still under way in the ring


@dataclass(frozen=True, slots=True)
class Replica:
    """``queue`` is the group that is replicated; ``depth`` counts ``unit``s."""

    node: str
    queue: str
    role: str
    epoch: int
    depth: int
    digest: str
    synchronised: bool
    unit: str


def look(machine: Machine) -> Iterator[Replica]:
    """The replicas of one node that runs; none while its broker does not."""
    node = machine.node
    if not machine.is_alive or not isinstance(node, Node) or node.broker is None:
        return
    for key in sorted(node.broker.supervisor.children.by_key):
        process = node.broker.supervisor.children.process_of(key)
        row = node.metadata.read("queue", key)
        if process is None or process.role is None or not isinstance(row, QueueRow):
            continue
        contents = hashlib.blake2b(digest_size=8)
        for message in _held_by(process.role.queue, machine.disk):
            contents.update(message.content.id.to_bytes(8, "big"))
            contents.update(message.content.body)
        yield Replica(
            node=machine.name,
            queue=row.name,
            role=process.role.role,
            epoch=node.metadata.version("queue", key),
            depth=process.role.queue.messages.depth,
            unit="messages",
            digest=contents.hexdigest(),
            synchronised=row.pid == process.pid or process.pid in row.sync_slave_pids,
        )


def _ask_journals(machine: Machine) -> None:
    """Of the queues of a node that runs, whether their journals have what they hold."""
    node, process = machine.node, machine.process
    if process is None or not machine.is_alive or not isinstance(node, Node) or node.broker is None:
        return
    for key in sorted(node.broker.supervisor.children.by_key):
        own = node.broker.supervisor.children.process_of(key)
        queue = None if own is None or own.role is None else own.role.queue
        if queue is not None and queue.index.is_durable:
            lasting = [m.content.id for m in _held_by(queue, machine.disk) if m.content.persistent]
            told = key, queue.directory, lasting, _next_life(queue, machine.disk)
            machine.witness(machine.name, process.incarnation, "rests", *told)


def _next_life(queue: BackingQueue, disk: SimDisk) -> int:
    """The last number that its next life would take for given."""
    replay = Replay()
    scanner = Scanner(replay.take)
    with suppress(FileNotFoundError):
        scanner.feed(disk.read_all(journal_of(queue.directory)))
    return replay.last_serial


def _held_by(queue: BackingQueue, disk: SimDisk) -> Sequence[Held]:
    """All of it, now: also what is on its pages, which takes the node time and this look none."""
    snapshot = queue.snapshot(_Still(disk))
    taking = snapshot.take(queue.messages.depth + 1, UNLIMITED)
    try:
        taking.send(None)
    except StopIteration as end:
        found: Sequence[Held] = end.value
        return found
    except StorageError as error:  # it rots, or a failed disk cut it off
        log.warning("a replica can't be read: %s", error)
        return ()
    finally:
        snapshot.unpin()
    raise AssertionError("a look at a disk that stands still takes no time")


class _Still:
    """A simulated disk's files, to be read at once: of Disk and File what a PageReader needs."""

    def __init__(self, disk: SimDisk, path: str = "") -> None:
        self._disk = disk
        self._path = path

    async def open(self, path: str, *, create: bool) -> _Still:
        return _Still(self._disk, path)

    async def pread(self, size: int, offset: int) -> bytes:
        return self._disk.read_all(self._path)[offset : offset + size]

    async def close(self) -> None:
        pass


def in_step(replicas: list[Replica]) -> bool:
    """Whether every synchronised replica of a queue holds the same."""
    digests: dict[str, str] = {}
    return all(
        digests.setdefault(replica.queue, replica.digest) == replica.digest
        for replica in replicas
        if replica.synchronised
    )


async def record_replicas(machines: Mapping[str, Machine]) -> None:
    """Write down what they hold, as soon as they are in step, or after a while as it is; and what
    is not at rest."""
    await until(lambda: in_step(_all(machines)), STEP_TIMEOUT_S)
    await record_waits(machines, waits)
    for machine in machines.values():
        _ask_journals(machine)
    replicas = _all(machines)
    for replica in replicas:
        machine = machines[replica.node]
        log = SimEventLog(machine, 0, None)
        detail = {
            "depth": replica.depth,
            "digest": replica.digest,
            "synchronised": replica.synchronised,
            "unit": replica.unit,
        }
        log.emit(replica.queue, "replica", role=replica.role, epoch=replica.epoch, detail=detail)


def _all(machines: Mapping[str, Machine]) -> list[Replica]:
    return [replica for machine in machines.values() for replica in look(machine)]
