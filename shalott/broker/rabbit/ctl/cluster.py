"""cluster_status, and what changes who belongs to a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shalott.broker.rabbit.ctl.session import (
    BOLD,
    EXIT_SOFTWARE,
    EXIT_TEMPORARY,
    EXIT_UNAVAILABLE,
    PLAIN,
    CtlError,
    Invalid,
    NoAnswer,
    Session,
    bad,
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
        ("Alarms", alarms_of(nodes)),
        ("Network Partitions", cut_off),
        ("Listeners", listeners),
    )
    for title, lines in sections:
        session.say([f"{BOLD}{title}{PLAIN}", "", *(lines or ["(none)"]), ""])


def alarms_of(nodes: Sequence[Mapping[str, object]]) -> list[str]:
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
        "alarms": alarms_of(nodes),
        "partitions": {node["name"]: node["partitions"] for node in nodes if node["partitions"]},
        "listeners": {session.node: overview["listeners"]},
    }


async def forget_cluster_node(session: Session) -> None:
    """Of a node whose broker is stopped. Raises CtlError, Invalid."""
    if session.typed.has("--offline"):
        text = "Error: this command requires the target node to be stopped."
        raise Invalid(text)
    node = session.typed.arguments[0].rpartition("@")[2]
    session.inform(f"Removing node {session.typed.arguments[0]} from the cluster")
    missing = "{:not_a_cluster_node, 'The node selected is not in the cluster.'}"
    await session.ask("DELETE", ("shalott", "members", node), missing=missing)


async def await_online_nodes(session: Session) -> None:
    """Raises CtlError, Invalid."""
    text = session.typed.arguments[0]
    if not text.isdecimal() or int(text) < 1:
        raise bad("Argument must be a positive integer")
    seconds = session.typed.seconds("--timeout", 300)
    session.inform(
        f"Will wait for at least {text} nodes to join the cluster of {session.node}. Timeout:"
        f" {int(seconds)} seconds."
    )
    try:
        async with asyncio.timeout(seconds):
            while True:
                told = await session.get("shalott", "members")
                if len(told["running_nodes"]) >= int(text):
                    return
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        told = f"timed out while waiting. Not enough nodes joined {session.node}'s cluster."
        raise CtlError(EXIT_SOFTWARE, f"Error:\nError: {told}") from None


# -- stopping, starting, joining -------------------------------------------------------------------

# stop_app and start_app; and, of a node whose broker is stopped: reset, force_reset, join_cluster
# and force_boot.
#
# Source: rabbitmqctl(8) of RabbitMQ 3.10, Nodes and Cluster management.

AGAIN_S = 0.1
MEMBER = "The node is already a member of this cluster"
APP = ("shalott", "app")


NEEDS: Mapping[str, str] = {
    "running": (
        "Error: this command requires the 'rabbit' app to be running on the target node. Start it"
        " with 'rabbitmqctl start_app'."
    ),
    "stopped": (
        "Error: this command requires the 'rabbit' app to be stopped on the target node. Stop it"
        " with 'rabbitmqctl stop_app'."
    ),
}


async def require_phase(session: Session, phase: str) -> None:
    """Raises CtlError, Invalid unless the node is there and its broker as it must be; the session
    knows the node's own name then."""
    told = await session.get(*APP)
    session.node = told["node"]
    if phase in NEEDS and told["phase"] != phase:
        raise Invalid(NEEDS[phase])


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
    if through == session.node:
        text = f"Error:\nError: cannot cluster node with itself: {member}"
        raise CtlError(EXIT_SOFTWARE, text)
    try:
        told = await _begin_again(session, {"action": "join", "node": through})
    except CtlError as error:
        if MEMBER not in error.text:
            raise
        session.say([MEMBER])
        return
    if told["problem"]:
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{told['problem']}")


async def update_cluster_nodes(session: Session) -> None:
    """Who the members are is the configuration's to say; that one of them is there is seen to.
    Raises CtlError."""
    seed = session.typed.arguments[0]
    session.inform(f"Will seed {session.node} from {seed} on next start")
    await session.ask("POST", APP, {"action": "seed", "node": seed.rpartition("@")[2]})


async def change_cluster_node_type(session: Session) -> None:
    """Raises CtlError, Invalid."""
    kind = session.typed.arguments[0]
    session.inform(f"Turning {session.node} into a {kind} node")
    if kind == "ram":
        raise CtlError(EXIT_UNAVAILABLE, "Error:\nthere are no RAM nodes here")


def check_node_type(session: Session) -> None:
    """Raises Invalid."""
    if session.typed.arguments[0] not in ("disc", "disk", "ram"):
        raise bad("The node type must be either disc or ram.")


async def stop(session: Session) -> None:
    """The node's process ends; with a pid file, returns when it has. Raises CtlError."""
    session.inform(f"Stopping and halting node {session.node} ...")
    await session.ask("POST", APP, {"action": "shutdown"})
    await _gone(session)


async def shutdown(session: Session) -> None:
    """Returns when nothing answers any more. Raises CtlError."""
    session.inform(f"Shutting down RabbitMQ node {session.node}")
    await session.ask("POST", APP, {"action": "shutdown"})
    await _gone(session)


async def _gone(session: Session) -> None:
    try:
        async with asyncio.timeout(session.asked.timeout_s):
            while True:
                await session.get(*APP)
                await asyncio.sleep(AGAIN_S)
    except NoAnswer:
        return
    except TimeoutError:
        text = f"Error: operation on node {session.node} timed out. Timeout value used: "
        raise CtlError(EXIT_TEMPORARY, f"{text}{session.asked.timeout_s} seconds") from None


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
