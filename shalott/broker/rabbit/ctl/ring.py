"""gm_ring: one queue's GM ring, as each node's own member has it. rabbitmqctl has no such verb.

A row for every publisher that a member knows; a node without a member, or without an answer, has
one row that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.broker.rabbit.ctl.listing import render
from shalott.broker.rabbit.ctl.session import Session

COLUMNS = (
    *("node", "role", "member", "left", "right", "aliases", "publisher", "last_pub", "last_ack"),
    "pending_ack",
)


async def gm_ring(session: Session) -> None:
    """Raises CtlError."""
    vhost, name = session.typed.vhost, session.typed.arguments[0]
    session.inform(f"Ring of queue '{name}' in vhost '{vhost}' ...")
    path = ("shalott", "queues", vhost, name, "ring")
    told = await session.ask("GET", path, missing="not_found")
    if session.typed.formatter == "json":
        session.say([msgspec.json.encode(told).decode()])
        return
    rows = [row for node in told["nodes"] for row in _rows(node)]
    session.say(render(session, rows, COLUMNS))


def _rows(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not node["reachable"]:
        return [{"node": node["node"], "role": "unreachable"}]
    member = node["member"]
    if member is None:
        return [{"node": node["node"], "role": "silent" if node["silent"] else "none"}]
    if member["id"] is None:
        return [{"node": node["node"], "role": member["role"]}]
    shared = {
        "node": node["node"],
        "role": member["role"],
        "member": member["id"],
        **{key: member[key] for key in ("left", "right", "aliases")},
    }
    return [
        {
            **shared,
            "publisher": each["id"],
            "last_pub": each["last_pub"],
            "last_ack": each["last_ack"],
            "pending_ack": [pub["number"] for pub in each["pending_ack"]],
        }
        for each in member["publishers"]
    ] or [shared]
