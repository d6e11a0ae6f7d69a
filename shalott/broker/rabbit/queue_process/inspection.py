"""A master's state as an operator may look at it: the fields of RabbitMQ's #q{} under their names
(rabbit/rabbit_amqqueue_process.erl), and what the management API shows beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from shalott.broker.rabbit.amqp.properties import split_properties
from shalott.broker.rabbit.gm.activity import Pub
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.mirrored.messages import (
    Operations,
    PlaceLook,
    PublisherLook,
    PubLook,
    RingLook,
)
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.master import Master
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.entries import Place


def inspect(
    master: Master, row: QueueRow, status: str, senders: Sequence[Pid]
) -> dict[str, object]:
    """``row`` is the queue's as it is now, ``status`` what the process is doing, ``senders`` whom
    it watches.
    """
    queue, consumers, limits = master.queue, master.consumers, master.limits
    exclusive = next((c.request for c in consumers if c.request.exclusive), None)
    capacity = 1.0 if consumers.has_ready() else 0.0  # as it is now, no average
    active = consumers.single_active
    ready_bytes, all_bytes = queue.messages.ready_bytes, queue.messages.bytes
    return {
        **_held(queue),
        "exclusive_consumer_tag": None if exclusive is None else exclusive.tag,
        "exclusive_consumer_pid": None if exclusive is None else str(exclusive.channel),
        "owner_pid": None if row.exclusive_owner is None else str(row.exclusive_owner),
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "single_active_consumer_tag": None if active is None else active[1],
        "message_bytes": all_bytes,
        "message_bytes_ready": ready_bytes,
        "message_bytes_unacknowledged": all_bytes - ready_bytes,
        "backing_queue_status": {
            "mode": "lazy" if policy.is_lazy(row) else "default",
            **queue.messages.parts(),
            "len": queue.messages.ready,
            "pending_acks": queue.messages.unacked,
            "target_ram_count": queue.pager.target,
            "next_seq_id": queue.index.mark,
            **({"priority_lengths": _by_priority(queue)} if queue.messages.has_priorities else {}),
        },
        "q": {
            "q": row.name,
            "exclusive_consumer": "none" if exclusive is None else exclusive.tag,
            "has_had_consumers": consumers.had_any,
            "backing_queue": _backing_queue(row),
            "backing_queue_state": {
                "len": queue.messages.ready,
                "durable_mark": queue.index.durable_mark,
            },
            "consumers": [
                {
                    "consumer_tag": consumer.request.tag,
                    "priority": consumer.request.priority,
                    "prefetch_count": consumer.request.prefetch,
                    "unsettled": consumer.unsettled,
                }
                for consumer in sorted(consumers, key=lambda c: -c.request.priority)
            ],
            "expires": policy.setting(row, "expires"),
            "sync_timer_ref": queue.index.sync_timer_runs,
            "rate_timer_ref": queue.ram.is_measured,
            "expiry_timer_ref": limits.waits_for_use,
            "stats_timer": None,
            "msg_id_to_channel": master.confirms.owed_count,
            "ttl": policy.setting(row, "message-ttl"),
            "ttl_timer_ref": limits.next_expiry_ns is not None,
            "ttl_timer_expiry": limits.next_expiry_ns,
            "senders": sorted(map(str, senders)),
            "dlx": policy.setting(row, "dead-letter-exchange"),
            "dlx_routing_key": policy.setting(row, "dead-letter-routing-key"),
            "max_length": policy.setting(row, "max-length"),
            "max_bytes": policy.setting(row, "max-length-bytes"),
            "overflow": policy.setting(row, "overflow") or "drop-head",
            "args_policy_version": row.policy_version,
            "status": status,
        },
    }


def _held(queue: BackingQueue) -> dict[str, object]:
    """Where its messages are, and what was read and written of them."""
    messages, index = queue.messages, queue.index
    ready, unacked, size = messages.ready, messages.unacked, messages.bytes
    if messages.has_paged:
        inside = [entry for entry in messages.entries.values() if entry.content is not None]
        ready = sum(entry.place is Place.READY for entry in inside)
        unacked, size = len(inside) - ready, sum(entry.size for entry in inside)
    return {
        "memory": queue.ram.bytes,
        "messages_ram": ready + unacked,
        "messages_ready_ram": ready,
        "messages_unacknowledged_ram": unacked,
        "messages_paged_out": messages.depth - ready - unacked,
        "messages_persistent": index.live,
        "message_bytes_ram": size,
        "message_bytes_paged_out": messages.bytes - size,
        "message_bytes_persistent": index.live_body_bytes,
        "disk_reads": queue.ahead.count,
        "disk_writes": index.written + queue.pager.written,
        "head_message_timestamp": _head_timestamp(queue),
    }


def _head_timestamp(queue: BackingQueue) -> int | None:
    """That the publisher gave the next message, if there is one and it is in memory."""
    head = queue.messages.peek()
    if head is None or head.content is None:
        return None
    encoded = split_properties(head.content.properties).get("timestamp")
    return None if encoded is None else int.from_bytes(encoded, "big")


def _by_priority(queue: BackingQueue) -> dict[str, int]:
    """How many ready messages there are of each priority that has some."""
    return {
        str(priority): count for priority, count in enumerate(queue.messages.lengths()) if count
    }


def _backing_queue(row: QueueRow) -> str:
    if policy.is_mirrored(row):
        return "rabbit_mirror_queue_master"
    has_priorities = "x-max-priority" in row.arguments
    return "rabbit_priority_queue" if has_priorities else "rabbit_variable_queue"


# -- the process in its ring -----------------------------------------------------------------------

# What an operator may see of a queue process: its part in the ring, as gm.erl's records have it,
# and what it has done. Nothing here changes anything.

PENDING_MAX = 50  # shown of one publisher
TEXT_MAX = 40  # bytes of a message's body


def look_ring(state: QueueState) -> RingLook:
    """The process's member, and what it remembers of every publisher."""
    shell = state.ring.gm
    if shell is None:
        return RingLook(state.role_name, state.activity)
    member = shell.member
    places = {} if member.ring.view is None else member.ring.view.members
    return RingLook(
        state.role_name,
        state.activity,
        member=member.id,
        version=0 if member.ring.view is None else member.ring.view.version,
        is_ready=shell.is_ready,
        places=tuple(
            PlaceLook(each.id, each.left, each.right, each.aliases) for each in places.values()
        ),
        publishers=tuple(
            PublisherLook(
                publisher, each.last_pub, each.last_ack, len(each.pending), _looks(each.pending)
            )
            for publisher, each in sorted((member.publishers.states or {}).items())
        ),
        buffered=_looks(member.broadcasts.pubs),
    )


def _looks(pubs: Iterable[Pub]) -> tuple[PubLook, ...]:
    return tuple(_look(number, payload) for number, payload in islice(pubs, PENDING_MAX))


def _look(number: int, payload: bytes) -> PubLook:
    instruction = ins.CODEC.decode(payload)
    kind = type(instruction).__name__
    if not isinstance(instruction, ins.Published):
        return PubLook(number, kind, None, "")
    body = instruction.content.body
    return PubLook(number, kind, len(body), body[:TEXT_MAX].decode("utf-8", "replace"))


def count_operations(state: QueueState) -> Operations:
    """Counts are a master's: clients work with no other."""
    role, sync = state.role, state.sync.as_master
    return Operations(
        counts=role.counts.told() if isinstance(role, Master) else {},
        message_bytes=0 if role is None else role.queue.messages.bytes,
        sync_messages=None if sync is None else sync.sent,
        sync_total=None if sync is None else sync.total,
    )
