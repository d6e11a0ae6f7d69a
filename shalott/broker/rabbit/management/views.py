"""/api/shalott/views: every node's own view of the cluster, side by side.

The node that is asked asks all others, also those that it does not count as running: nodes that ran
apart are linked again when the network is whole, and each still has a cluster of its own. One that
gives no answer is told as unreachable from here, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shalott.broker.base.errors import CallTimeout, ProcessError
from shalott.broker.base.http_api import Request, Response, json_response
from shalott.broker.rabbit.management.agent import NAME, TIMEOUT_MS, Look, LookTold
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    cluster_nodes,
    queue_rows,
)
from shalott.broker.rabbit.management.nodes import view_node
from shalott.broker.rabbit.management.queues import count_of, find_row, is_live
from shalott.broker.rabbit.metadata.records import GroupRow, MemberId, QueueRow
from shalott.broker.rabbit.mirrored.messages import Claim, Claimed, LookRing, PubLook, RingLook
from shalott.broker.rabbit.processes.messages import Name, Pid


async def look(backend: ManagementBackend, wanted: Look) -> dict[str, object]:
    """What this node, and it alone, has to say."""
    if wanted.queue:
        return await own_ring(backend, wanted.queue)
    counted = await asyncio.gather(
        *(count_of(backend, pid) for pid in backend.local_queues().values())
    )
    return {
        **await view_claims(backend),
        "linked": backend.runtime.nodes(),
        "message_bytes": sum(each.message_bytes for each in counted if each is not None),
        "self": await view_node(backend, backend.config.name),
    }


async def looks_of_all(backend: ManagementBackend, wanted: Look) -> list[dict[str, Any]]:
    """Of every node of the cluster, in their order: ``node``, ``reachable``, ``reason`` (why not),
    and what it says."""
    nodes = cluster_nodes(backend)
    return list(await asyncio.gather(*(_look_of(backend, node, wanted) for node in nodes)))


async def _look_of(backend: ManagementBackend, node: str, wanted: Look) -> dict[str, object]:
    if node == backend.config.name:
        return {"node": node, "reachable": True, "reason": "", **await look(backend, wanted)}
    try:
        answer = await backend.runtime.call(Name(node, NAME), wanted, timeout_ms=TIMEOUT_MS)
    except CallTimeout:
        return {"node": node, "reachable": False, "reason": f"no answer in {TIMEOUT_MS} ms"}
    except ProcessError as error:
        return {"node": node, "reachable": False, "reason": str(error)}
    if not isinstance(answer, LookTold):
        return {"node": node, "reachable": False, "reason": "it does not know what is asked"}
    told = msgspec.json.decode(answer.shown, type=dict[str, object])
    return {**told, "node": node, "reachable": True, "reason": ""}


async def list_views(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    shown = {"asked": backend.config.name, "views": await looks_of_all(backend, Look())}
    return json_response(shown)


# -- a queue's ring --------------------------------------------------------------------------------

# A queue's GM ring as one node has it: the group's row, this node's own member, and what that one
# remembers of every publisher (gm.erl's #gm_group, #view_member and #member).

RING_TIMEOUT_MS = 1000
GROUP = "gm_group"


async def own_ring(backend: ManagementBackend, key: str) -> dict[str, object]:
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


def view_group(row: GroupRow) -> dict[str, object]:
    members = [
        {"id": name_of(each.id), "node": each.id.pid.node, "alive": each.alive}
        for each in row.members
    ]
    return {"name": row.name, "version": row.version, "members": members}


def view_member(look: RingLook) -> dict[str, object]:
    """``id`` is null if the queue has no ring, for it has no mirrors."""
    shown: dict[str, object] = {"id": None, "role": look.role, "state": look.state}
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


def _pubs(looks: Sequence[PubLook]) -> list[dict[str, object]]:
    return [
        {"number": each.number, "kind": each.kind, "bytes": each.bytes, "text": each.text}
        for each in looks
    ]


def name_of(member: MemberId) -> str:
    """As Erlang writes the pair."""
    return f"{{{member.version},{member.pid}}}"


# -- claims ----------------------------------------------------------------------------------------

# /api/shalott/claims: what this node, and it alone, believes of its own role for each queue.
#
# Every other view of a queue is assembled from replicated rows; two masters of a split cluster may
# both be hidden by them. Here the queue processes of this node are asked themselves, and the rows
# only fill in what a node without such a process knows. It answers in every phase of the node, also
# paused or booting.

CLAIM_TIMEOUT_MS = 1000


async def own_claim(backend: ManagementBackend, key: str, pid: Pid) -> Claimed:
    """What the process says; if it is too busy to answer, what the row says of it."""
    try:
        answer = await backend.runtime.call(pid, Claim(), timeout_ms=CLAIM_TIMEOUT_MS)
    except ProcessError:
        answer = None
    if isinstance(answer, Claimed):
        return answer
    row = backend.metadata.read("queue", key)
    is_member = isinstance(row, QueueRow) and pid in (row.pid, *row.slave_pids)
    role = "none"
    if is_member and backend.runtime.is_alive(pid):
        role = "master" if isinstance(row, QueueRow) and row.pid == pid else "mirror"
    epoch = backend.metadata.version("queue", key)
    return Claimed(key, role, epoch, "unresponsive", 0, 0, False)


async def own_claims(backend: ManagementBackend) -> dict[str, Claimed]:
    processes = dict(backend.local_queues())  # queues come and go while these are asked
    answers = await asyncio.gather(*(own_claim(backend, *item) for item in processes.items()))
    return dict(zip(processes, answers, strict=True))


def view_claim(
    backend: ManagementBackend, key: str, row: QueueRow | None, own: Claimed | None
) -> dict[str, object]:
    name, _, vhost = key.rpartition("@")
    role = own.role if own is not None and own.role in ("master", "mirror") else "none"
    live = row is not None and backend.metadata.read("queue", key) is not None
    if role == "master":
        master = backend.config.name
    else:
        master = row.pid.node if live and row is not None and row.pid is not None else ""
    if own is not None:
        state = own.state
    else:
        state = "running" if row is not None and is_live(backend, row) else "down"
    return {
        "group": name if vhost == "/" else key,
        "role": role,
        "epoch": backend.metadata.version("queue", key) if own is None else own.epoch,
        "master": master,
        "mirrors": [pid.node for pid in row.slave_pids] if live and row is not None else [],
        "synchronised": [pid.node for pid in row.sync_slave_pids]
        if live and row is not None
        else [],
        "state": state,
        "messages": 0 if own is None else own.ready + own.unacknowledged,
    }


async def view_claims(backend: ManagementBackend) -> dict[str, object]:
    """The node's own view of the cluster, and of each queue."""
    own = await own_claims(backend)
    rows = {row.key: row for row in queue_rows(backend)}
    keys = sorted(dict.fromkeys([*rows, *own]))
    return {
        "node": backend.config.name,
        "status": backend.phase,
        "incarnation": backend.env.incarnation,
        "running_nodes": backend.metadata.running_nodes(),
        "partitions": list(backend.partitions().get(backend.config.name, ())),
        "claims": [view_claim(backend, key, rows.get(key), own.get(key)) for key in keys],
    }


async def claims(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    return json_response(await view_claims(backend))


# -- one ring of all nodes -------------------------------------------------------------------------

# /api/shalott/queues/:vhost/:name/ring: one queue's GM ring, put together of what every node's own
# member says, and what is on its way round it.
#
# A broadcast goes round twice. Its pub is kept by each member that it passes; when it is home, its
# publisher forgets it and sends the ack round, at which the others forget it too. So who still
# holds a message tells how far it has come.

Shown = Mapping[str, Any]


async def show_ring(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    row = find_row(backend, parameters)
    nodes = await looks_of_all(backend, Look(row.key))
    members = [each["member"] for each in nodes if each.get("member")]
    members = [each for each in members if each["id"] is not None]
    return json_response(
        {
            "queue": row.name,
            "vhost": row.vhost,
            "asked": backend.config.name,
            "rings": [
                {"members": ring, "in_flight": in_flight(ring, members)} for ring in rings(members)
            ],
            "nodes": nodes,
        }
    )


def rings(members: Sequence[Shown]) -> list[list[str]]:
    """Ids, each ring's from its master (or the first) to the right, as its newest view has them.
    There is one, unless nodes run apart: a member that no newer view of another knows is in a ring
    of its own."""
    found: list[list[str]] = []
    for member in sorted(members, key=lambda each: (-each["version"], each["id"])):
        if not any(member["id"] in ring for ring in found):
            order = [each["id"] for each in member["view"]]
            masters = [each["id"] for each in members if each["role"] == "master"]
            start = next((order.index(each) for each in masters if each in order), 0)
            found.append(order[start:] + order[:start])
    return found


def in_flight(order: Sequence[str], all_members: Sequence[Shown]) -> list[dict[str, object]]:
    """In one ring. ``phase``: pub or ack. ``passed``: the members that it has passed, in ring
    order from the publisher, or from who stands in for it. Who gave no answer is left out: whether
    it has a message is not known, though its right neighbour may show that it had.
    """
    members = [each for each in all_members if each["id"] in order]
    by_id = {each["id"]: each for each in members}
    found: dict[tuple[str, int], dict[str, object]] = {}
    holders: dict[tuple[str, int], list[str]] = {}
    for member in members:
        for publisher in member["publishers"]:
            for pub in publisher["pending_ack"]:
                key = publisher["id"], pub["number"]
                found.setdefault(key, pub)
                holders.setdefault(key, []).append(member["id"])
    return [
        {
            "publisher": publisher,
            **found[publisher, number],
            **_progress(_from(order, publisher, by_id), holders[publisher, number], by_id),
        }
        for publisher, number in sorted(found)
    ]


def _from(order: Sequence[str], publisher: str, by_id: Mapping[str, Shown]) -> list[str]:
    """The ring from the publisher on. A dead one's alias begins it."""
    first = publisher
    if publisher not in order:
        owners = [each["id"] for each in by_id.values() if publisher in each.get("aliases", ())]
        first = owners[0] if owners else order[0]
    at = order.index(first) if first in order else 0
    return [*order[at:], *order[:at]]


def _progress(
    ring: Sequence[str], holders: Sequence[str], by_id: Mapping[str, Shown]
) -> dict[str, object]:
    told = [each for each in ring if each in by_id]
    is_pub = bool(told) and told[0] in holders
    passed = [each for each in told if (each in holders) == is_pub]
    return {"phase": "pub" if is_pub else "ack", "held_by": sorted(holders), "passed": passed}


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/shalott/views", list_views),
    Route("GET", "/api/shalott/claims", claims),
    Route("GET", "/api/shalott/queues/:vhost/:name/ring", show_ring),
)
