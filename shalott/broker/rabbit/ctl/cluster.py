"""cluster_status, forget_cluster_node, sync_queue and cancel_sync_queue."""

from __future__ import annotations

from typing import Any

import msgspec

from shalott.broker.rabbit.ctl.session import Session


async def cluster_status(session: Session) -> None:
    """In RabbitMQ 3.10's sections, titles in bold as there, or as one JSON object."""
    overview, nodes = await session.get("overview"), await session.get("nodes")
    if session.typed.formatter == "json":
        session.say([msgspec.json.encode(_as_object(session, overview, nodes)).decode()])
        return
    session.inform(f"Cluster status of node {session.node} ...")
    names = [node["name"] for node in nodes]
    running = [node["name"] for node in nodes if node["running"]]
    version = f"{overview['product_name']} {overview['product_version']}"
    cut_off = [
        f"Node {node['name']} cannot communicate with {', '.join(node['partitions'])}"
        for node in nodes
        if node["partitions"]
    ]
    listeners = [
        f"Node: {each['node']}, interface: {each['ip_address']}, port: {each['port']}, protocol:"
        f" {each['protocol']}"
        for each in overview["listeners"]
    ]
    sections = (
        ("Basics", [f"Cluster name: {overview['cluster_name']}"]),
        ("Disk Nodes", names),
        ("Running Nodes", running),
        ("Versions", [f"{name}: {version}" for name in running]),
        (
            "Maintenance status",
            [f"Node: {name}, status: not under maintenance" for name in running],
        ),
        ("Alarms", _alarms(nodes)),
        ("Network Partitions", cut_off),
        ("Listeners", listeners),
    )
    for title, lines in sections:
        session.say([f"\x1b[1m{title}\x1b[0m", "", *(lines or ["(none)"]), ""])


def _alarms(nodes: list[dict[str, Any]]) -> list[str]:
    kinds = (("mem_alarm", "Memory alarm"), ("disk_free_alarm", "Free disk space alarm"))
    return [
        f"{text} on node {node['name']}" for node in nodes for key, text in kinds if node.get(key)
    ]


def _as_object(
    session: Session, overview: dict[str, Any], nodes: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "cluster_name": overview["cluster_name"],
        "disk_nodes": [node["name"] for node in nodes],
        "ram_nodes": [],
        "running_nodes": [node["name"] for node in nodes if node["running"]],
        "alarms": _alarms(nodes),
        "partitions": {node["name"]: node["partitions"] for node in nodes if node["partitions"]},
        "listeners": {session.node: overview["listeners"]},
    }


async def forget_cluster_node(session: Session) -> None:
    """Of a node that is down. Raises CtlError."""
    node = session.typed.arguments[0].rpartition("@")[2]
    session.inform(f"Removing node {node} from the cluster")
    missing = "{:not_a_cluster_node, 'The node selected is not in the cluster.'}"
    await session.ask("DELETE", ("shalott", "members", node), missing=missing)


async def sync_queue(session: Session) -> None:
    """Raises CtlError."""
    await _act(session, "sync", "Synchronising queue '{name}' in vhost '{vhost}' ...")


async def cancel_sync_queue(session: Session) -> None:
    """Raises CtlError."""
    banner = "Stopping synchronising queue '{name}' in vhost '{vhost}' ..."
    await _act(session, "cancel_sync", banner)


async def _act(session: Session, action: str, banner: str) -> None:
    vhost, name = session.typed.vhost, session.typed.arguments[0]
    session.inform(banner.format(name=name, vhost=vhost))
    path = ("queues", vhost, name, "actions")
    await session.ask("POST", path, {"action": action}, missing="not_found")
