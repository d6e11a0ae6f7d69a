"""cluster_status, forget_cluster_node, sync_queue and cancel_sync_queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

import msgspec

from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    CtlError,
    NoAnswer,
    Session,
)


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


def _alarms(nodes: list[dict[str, object]]) -> list[str]:
    kinds = (("mem_alarm", "Memory alarm"), ("disk_free_alarm", "Free disk space alarm"))
    return [
        f"{text} on node {node['name']}" for node in nodes for key, text in kinds if node.get(key)
    ]


def _as_object(
    session: Session, overview: dict[str, object], nodes: list[dict[str, object]]
) -> dict[str, object]:
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


# -- stopping, starting, joining -------------------------------------------------------------------

# stop_app and start_app; and, of a node whose broker is stopped: reset, force_reset, join_cluster
# and force_boot.
#
# Source: rabbitmqctl(8) of RabbitMQ 3.10, Nodes and Cluster management.

AGAIN_S = 0.1
EXIT_TEMPORARY = 75  # EX_TEMPFAIL: what was begun is not done yet
MEMBER = "The node is already a member of this cluster"
APP = ("shalott", "app")


async def require_running(session: Session) -> None:
    """Raises CtlError if the node has no broker that runs."""
    if (await session.get(*APP))["phase"] != "running":
        raise CtlError(
            EXIT_USAGE,
            "Error: this command requires the 'rabbit' app to be running on the target node. Start"
            " it with 'rabbitmqctl start_app'.",
        )


async def require_stopped(session: Session, usage: str) -> None:
    """Raises CtlError unless the node is there and its broker is stopped."""
    if (await session.get(*APP))["phase"] != "stopped":
        raise CtlError(
            EXIT_USAGE,
            "Error: this command requires the 'rabbit' app to be stopped on the target node."
            " Stop it with 'rabbitmqctl stop_app'.\n"
            f"Arguments given:\n\t{session.words}\n\n{usage}",
        )


async def stop_app(session: Session) -> None:
    """Returns when the broker has ended. Raises CtlError."""
    session.inform(f"Stopping rabbit application on node {session.node} ...")
    await _turn(session, "stop", "stopped")


async def start_app(session: Session) -> None:
    """Returns when the broker runs. Raises CtlError."""
    session.inform(f"Starting node {session.node} ...")
    await _turn(session, "start", "running")


async def _turn(session: Session, action: str, phase: str) -> None:
    """A node does not tell when it is there, so it is asked. Raises CtlError when time is up."""
    await session.ask("POST", APP, {"action": action})
    await _until(session, lambda told: bool(told["phase"] == phase))


async def _until(session: Session, is_so: Callable[[dict[str, object]], bool]) -> dict[str, object]:
    """What the node says of itself then. It may be gone in between, and be another life's."""
    try:
        async with asyncio.timeout(session.asked.timeout_s):
            while True:
                try:
                    told: dict[str, object] = await session.get(*APP)
                    if is_so(told):
                        return told
                except NoAnswer:
                    pass
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        text = f"Error: operation on node {session.node} timed out. Timeout value used: "
        raise CtlError(EXIT_TEMPORARY, f"{text}{session.asked.timeout_s} seconds") from None


async def reset(session: Session) -> None:
    """Out of the cluster, and with nothing left. Raises CtlError."""
    session.inform(f"Resetting node {session.node} ...")
    await _begin_again(session, {"action": "reset"})


async def force_reset(session: Session) -> None:
    """The same without a word to the others. Raises CtlError."""
    session.inform(f"Forcefully resetting node {session.node} ...")
    await _begin_again(session, {"action": "force_reset"})


async def join_cluster(session: Session) -> None:
    """[--disc] member. Raises CtlError."""
    if session.typed.has("--ram"):
        raise CtlError(EXIT_UNAVAILABLE, "Error:\nthere are no RAM nodes here")
    member = session.typed.arguments[0]
    session.inform(f"Clustering node {session.node} with {member}")
    through = member.rpartition("@")[2]
    try:
        told = await _begin_again(session, {"action": "join", "node": through})
    except CtlError as error:
        if MEMBER not in error.text:
            raise
        session.say([MEMBER])
        return
    if told["problem"]:
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{told['problem']}")


async def force_boot(session: Session) -> None:
    """Says nothing, as RabbitMQ's. Raises CtlError."""
    await session.ask("POST", APP, {"action": "force_boot"})


async def _begin_again(session: Session, body: dict[str, str]) -> dict[str, object]:
    """The node ends, and is there again, stopped."""
    before = (await session.get(*APP))["life"]
    await session.ask("POST", APP, body)
    return await _until(
        session,
        lambda told: bool(
            told["life"] > before and told["phase"] == "stopped" and told["joining"] is None
        ),
    )


# -- the memory limit ------------------------------------------------------------------------------

# set_vm_memory_high_watermark, with the units and refusals of rabbitmqctl 3.10.

_UNITS: Mapping[str, int] = {
    "": 1,
    **dict.fromkeys(("k", "ki", "kiB"), 1 << 10),
    **dict.fromkeys(("M", "Mi", "MiB"), 1 << 20),
    **dict.fromkeys(("G", "Gi", "GiB"), 1 << 30),
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
PATH = ("shalott", "vm_memory_high_watermark")


async def set_watermark(session: Session) -> None:
    """``<fraction>`` or ``absolute <value>``. Raises CtlError."""
    words = session.typed.arguments
    if words[0] == "absolute" and len(words) == 2:
        found = re.fullmatch(r"(\d+)(\w{0,3})", words[1])
        if found is None:
            raise _bad("")
        if found[2] not in _UNITS:
            raise _bad("Invalid units.")
        session.inform(f"Setting memory threshold on {session.node} to {words[1]} bytes ...")
        await session.ask("PUT", PATH, {"absolute": int(found[1]) * _UNITS[found[2]]})
        return
    if len(words) == 2:
        raise _refused("too many arguments.")
    try:
        fraction = float(words[0])
    except ValueError:
        raise (_refused("not enough arguments.") if words[0] == "absolute" else _bad("")) from None
    if not 0 <= fraction <= 1:
        raise _bad("The threshold should be a fraction between 0.0 and 1.0")
    session.inform(f"Setting memory threshold on {session.node} to {words[0]} ...")
    await session.ask("PUT", PATH, {"fraction": fraction})


def _bad(text: str) -> CtlError:
    told = f"Bad argument: {text}" if text else "Bad argument."
    return CtlError(EXIT_DATA, f"Error (argument validation): {told}")


def _refused(text: str) -> CtlError:
    return CtlError(EXIT_USAGE, f"Error (argument validation): {text}")
