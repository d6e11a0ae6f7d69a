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
            "ring": ring_order(members),
            "in_flight": in_flight(members),
            "nodes": nodes,
        }
    )


def ring_order(members: Sequence[Shown]) -> list[str]:
    """Ids from the master (or the first) to the right, as the newest view has them."""
    if not members:
        return []
    newest = max(members, key=lambda each: each["version"])
    order = [each["id"] for each in newest["view"]]
    masters = [each["id"] for each in members if each["role"] == "master" and each["id"] in order]
    start = order.index(masters[0]) if masters else 0
    return order[start:] + order[:start]


def in_flight(members: Sequence[Shown]) -> list[dict[str, Any]]:
    """``phase``: pub or ack. ``passed``: the members that it has passed, in ring order from the
    publisher, or from who stands in for it. Who gave no answer is no hindrance: it is not known
    whether it has what its right neighbour has not."""
    order = ring_order(members)
    by_id = {each["id"]: each for each in members}
    found: dict[tuple[str, int], dict[str, Any]] = {}
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
) -> dict[str, Any]:
    told = [each for each in ring if each in by_id]
    is_pub = bool(told) and told[0] in holders
    passed = [each for each in told if (each in holders) == is_pub]
    return {"phase": "pub" if is_pub else "ack", "held_by": sorted(holders), "passed": passed}


ROUTES: tuple[Route, ...] = (Route("GET", "/api/shalott/queues/:vhost/:name/ring", show_ring),)
