"""What every replica of every queue holds: a look into the nodes that only a simulation allows.

Taken when the cluster has settled and before it is drained, and written down as node events of kind
``replica``; checkers/runs/convergence.py judges them. Detail: ``depth``, ``digest`` of the ordered
contents, ``synchronised`` (as the node's own row says; a master always is), ``unit`` of the depth.
Replicated logs are asked for, as in every world (cluster/systems/rocket/replicas.py).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.node.node import Node
from shalott.cluster.sim.machine import Machine, SimEventLog

STEP_TIMEOUT_S = 5.0  # for what is still under way in the ring
FIRST_POLL_S, LAST_POLL_S = 0.05, 1.0  # each look reads every message of every replica


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
    for key in sorted(node.broker.supervisor.children()):
        process = node.broker.supervisor.process_of(key)
        row = node.metadata.read("queue", key)
        if process is None or process.role is None or not isinstance(row, QueueRow):
            continue
        contents = hashlib.blake2b(digest_size=8)
        held = process.role.queue.contents()
        for message in held:
            contents.update(message.content.id.to_bytes(8, "big"))
            contents.update(message.content.body)
        yield Replica(
            node=machine.name,
            queue=row.name,
            role=process.role.role,
            epoch=node.metadata.version("queue", key),
            depth=len(held),
            unit="messages",
            digest=contents.hexdigest(),
            synchronised=row.pid == process.pid or process.pid in row.sync_slave_pids,
        )


def in_step(replicas: list[Replica]) -> bool:
    """Whether every synchronised replica of a queue holds the same."""
    digests: dict[str, str] = {}
    return all(
        digests.setdefault(replica.queue, replica.digest) == replica.digest
        for replica in replicas
        if replica.synchronised
    )


async def record_replicas(machines: Mapping[str, Machine]) -> None:
    """Write down what they hold, as soon as they are in step, or after a while as it is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STEP_TIMEOUT_S
    poll_s = FIRST_POLL_S
    while True:
        replicas = [replica for machine in machines.values() for replica in look(machine)]
        if in_step(replicas) or loop.time() > deadline:
            break
        await asyncio.sleep(poll_s)
        poll_s = min(2 * poll_s, LAST_POLL_S)
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
