"""/api/shalott/queues/:vhost/:name/ring: one queue's GM ring, put together of what every node's own
member says, and what is on its way round it.

A broadcast goes round twice. Its pub is kept by each member that it passes; when it is home, its
publisher forgets it and sends the ack round, at which the others forget it too. So who still holds
a message tells how far it has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shalott.broker.base.http.messages import Request, Response, json_response
from shalott.broker.rabbit.management.agent import Look
from shalott.broker.rabbit.management.backend import ManagementBackend, Route
from shalott.broker.rabbit.management.queues import find_row
from shalott.broker.rabbit.management.views import looks_of_all

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


ROUTES: tuple[Route, ...] = (Route("GET", "/api/shalott/queues/:vhost/:name/ring", show_ring),)
