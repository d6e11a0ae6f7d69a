"""A queue's GM ring as one node has it: the group's row, this node's own member, and what that one
remembers of every publisher (gm.erl's #gm_group, #view_member and #member).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId
from shalott.broker.rabbit.mirrored.messages import LookRing, PubLook, RingLook

RING_TIMEOUT_MS = 1000
GROUP = "gm_group"


async def own_ring(backend: ManagementBackend, key: str) -> dict[str, Any]:
    """``group`` is null if this node has no such row; ``member``, if it has no process of the
    queue, or one that does not answer (``silent``)."""
    row = backend.metadata.read(GROUP, key)
    pid = backend.local_queues().get(key)
    answer = None
    if pid is not None:
        try:
            answer = await backend.runtime.call(pid, LookRing(), timeout_ms=RING_TIMEOUT_MS)
        except ProcessError:
            pass
    return {
        "group": view_group(row) if isinstance(row, GroupRow) else None,
        "member": view_member(answer) if isinstance(answer, RingLook) else None,
        "silent": pid is not None and not isinstance(answer, RingLook),
    }


def view_group(row: GroupRow) -> dict[str, Any]:
    members = [
        {"id": name_of(each.id), "node": each.id.pid.node, "alive": each.alive}
        for each in row.members
    ]
    return {"name": row.name, "version": row.version, "members": members}


def view_member(look: RingLook) -> dict[str, Any]:
    """``id`` is null if the queue has no ring, for it has no mirrors."""
    shown: dict[str, Any] = {"id": None, "role": look.role, "state": look.state}
    if look.member is None:
        return shown
    places = {each.id: each for each in look.places}
    own = places.get(look.member)
    return {
        **shown,
        "id": name_of(look.member),
        "pid": str(look.member.pid),
        "version": look.version,
        "ready": look.is_ready,
        "left": None if own is None else name_of(own.left),
        "right": None if own is None else name_of(own.right),
        "aliases": [] if own is None else [name_of(each) for each in own.aliases],
        "view": [
            {
                "id": name_of(each.id),
                "node": each.id.pid.node,
                "left": name_of(each.left),
                "right": name_of(each.right),
                "aliases": [name_of(dead) for dead in each.aliases],
            }
            for each in look.places
        ],
        "publishers": [
            {
                "id": name_of(each.id),
                "node": each.id.pid.node,
                "last_pub": each.last_pub,
                "last_ack": each.last_ack,
                "pending_count": each.pending_count,
                "pending_ack": _pubs(each.pending),
            }
            for each in look.publishers
        ],
        "buffer": _pubs(look.buffered),
    }


def _pubs(looks: Sequence[PubLook]) -> list[dict[str, Any]]:
    return [
        {"number": each.number, "kind": each.kind, "bytes": each.bytes, "text": each.text}
        for each in looks
    ]


def name_of(member: MemberId) -> str:
    """As Erlang writes the pair."""
    return f"{{{member.version},{member.pid}}}"
