"""stop_app and start_app; and, of a node whose broker is stopped: reset, force_reset, join_cluster
and force_boot.

Source: rabbitmqctl(8) of RabbitMQ 3.10, Nodes and Cluster management.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from shalott.broker.rabbit.ctl.arguments import EXIT_USAGE, CtlError
from shalott.broker.rabbit.ctl.session import EXIT_UNAVAILABLE, NoAnswer, Session

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
    """Nobody tells when a node is there, so it is asked. Raises CtlError when time is up."""
    await session.ask("POST", APP, {"action": action})
    await _until(session, lambda told: bool(told["phase"] == phase))


async def _until(session: Session, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the node says of itself then. It may be gone in between, and be another life's."""
    try:
        async with asyncio.timeout(session.asked.timeout_s):
            while True:
                try:
                    told: dict[str, Any] = await session.get(*APP)
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


async def _begin_again(session: Session, body: dict[str, str]) -> dict[str, Any]:
    """The node ends, and is there again, stopped."""
    before = (await session.get(*APP))["life"]
    await session.ask("POST", APP, body)
    return await _until(
        session,
        lambda told: bool(
            told["life"] > before and told["phase"] == "stopped" and told["joining"] is None
        ),
    )
