"""What an operator may see of a queue process: its part in the ring, as gm.erl's records have it,
and what it has done. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from shalott.broker.rabbit.gm.activity import Pub
from shalott.broker.rabbit.mirrored.messages import (
    Operations,
    PlaceLook,
    PublisherLook,
    PubLook,
    RingLook,
)
from shalott.broker.rabbit.queue_process.state import QueueState
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.master import Master

PENDING_MAX = 50  # shown of one publisher
TEXT_MAX = 40  # bytes of a message's body


def look_ring(state: QueueState) -> RingLook:
    """The process's member, and what it remembers of every publisher."""
    shell = state.ring.gm
    if shell is None:
        return RingLook(state.role_name, state.activity)
    member = shell.member
    places = {} if member.view is None else member.view.members
    return RingLook(
        state.role_name,
        state.activity,
        member=member.id,
        version=0 if member.view is None else member.view.version,
        is_ready=shell.is_ready,
        places=tuple(
            PlaceLook(each.id, each.left, each.right, each.aliases) for each in places.values()
        ),
        publishers=tuple(
            PublisherLook(
                publisher, each.last_pub, each.last_ack, len(each.pending), _looks(each.pending)
            )
            for publisher, each in sorted((member.states or {}).items())
        ),
        buffered=_looks(member.outgoing.pubs),
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
        message_bytes=0 if role is None else role.queue.bytes,
        sync_messages=None if sync is None else sync.sent,
        sync_total=None if sync is None else sync.total,
    )
