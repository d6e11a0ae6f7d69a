"""What every broker's log holds, byte for byte, and the consume queues on it.

A broker has two replicas to compare: its log, from its first byte to where its readers may read,
and what its consume queues say: for each queue the offsets and the messages behind them. They are
digested apart, since queues may differ on equal logs. A synchronised slave holds what its master
holds; how far readers may read reaches it a heartbeat later, which cluster/sim/replicas.py waits
for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from broker.commitlog.api import GetStatus, Store
from broker.errors import StorageError
from broker.rocketmq.node import RocketNode
from cluster.sim.replica import Replica

QUEUES = "queues"  # appended to the group's name
CHUNK_BYTES = 1 << 20
READ_MESSAGES = 1000


def synchronised_nodes(nodes: Iterable[RocketNode]) -> Sequence[str]:
    """Who the master of the highest epoch says is synchronised, itself first."""
    masters = [
        (node.replica.epoch, node.config.name, node.replica.claim())
        for node in nodes
        if node.replica is not None and node.replica.role == "master"
    ]
    if not masters:
        return ()
    _, master, claim = max(masters, key=lambda one: one[:2])
    return (master, *(str(name) for name in claim.get("synchronised") or ()))


async def look_at_log(node: RocketNode, *, is_synchronised: bool) -> list[Replica]:
    """The log and the queues of one broker; none while it has no store."""
    replica, store = node.replica, node.store
    if replica is None or store is None:
        return []
    group = node.config.broker.broker_name
    start, end = store.log.min_offset, store.dispatched_offset
    try:
        log_digest = await digest_log(store, start, end)
        count, queue_digest = await digest_queues(store)
    except StorageError as error:
        log_digest = queue_digest = f"unreadable on {node.config.name}: {error}"
        count = 0
    return [
        Replica(
            node=node.config.name,
            queue=queue,
            role=replica.role,
            epoch=replica.epoch,
            depth=depth,
            digest=digest,
            synchronised=is_synchronised or replica.role == "master",
            unit=unit,
        )
        for queue, depth, digest, unit in (
            (group, end - start, log_digest, "bytes"),
            (f"{group} {QUEUES}", count, queue_digest, "messages"),
        )
    ]


async def digest_log(store: Store, start: int, end: int) -> str:
    """Of [start, end), and of where it begins."""
    contents = hashlib.blake2b(str(start).encode(), digest_size=8)
    while start < end:
        piece = await store.log.read(start, min(CHUNK_BYTES, end - start))
        if not piece:
            contents.update(b"nothing")  # it should be there
            break
        contents.update(piece)
        start += len(piece)
    return contents.hexdigest()


async def digest_queues(store: Store) -> tuple[int, str]:
    """How many messages the queues have, and a digest of them in order."""
    contents, count = hashlib.blake2b(digest_size=8), 0
    for topic, queue_id in sorted(store.queues()):
        offset, end = store.queue_range(topic, queue_id)
        contents.update(f"{topic}/{queue_id} {offset}-{end}".encode())
        while offset < end:
            got = await store.get(
                topic, queue_id, offset, max_messages=READ_MESSAGES, max_bytes=CHUNK_BYTES
            )
            if got.status is not GetStatus.FOUND or not got.messages:
                contents.update(got.status.value.encode())
                break
            for message in got.messages:
                contents.update(message)
            count += len(got.messages)
            offset = got.next_offset
    return count, contents.hexdigest()
