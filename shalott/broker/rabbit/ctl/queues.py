"""What is done to queues and connections, and definitions in and out of files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from shalott.broker.rabbit.ctl.session import (
    EXIT_DATA,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    CtlError,
    Session,
    bad,
)


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


async def purge_queue(session: Session) -> None:
    """Raises CtlError."""
    vhost, name = session.typed.vhost, session.typed.arguments[0]
    session.inform(f"Purging queue '{name}' in vhost '{vhost}' ...")
    await session.ask("DELETE", ("queues", vhost, name, "contents"), missing="not_found")


async def delete_queue(session: Session) -> None:
    """Raises CtlError."""
    typed, vhost, name = session.typed, session.typed.vhost, session.typed.arguments[0]
    conditions = [word for word in ("empty", "unused") if typed.has(f"--if-{word}")]
    told = f" if queue is {' and '.join(conditions)}" if conditions else ""
    session.inform(f"Deleting queue '{name}' on vhost '{vhost}'{told} ...")
    ready = 0
    for queue in await session.get("queues", vhost) if await _is_vhost(session, vhost) else []:
        if queue["name"] == name:
            ready = queue.get("messages_ready", 0)
            break
    else:
        raise CtlError(EXIT_USAGE, "Error:\nQueue not found")
    query = "&".join(f"if-{word}=true" for word in conditions)
    try:
        await session.ask("DELETE", ("queues", vhost, name), query=query)
    except CtlError as error:
        for end, text in (("not empty", "Queue is not empty"), ("in use", "Queue is in use")):
            if error.text.endswith(end):
                raise CtlError(EXIT_USAGE, f"Error:\n{text}") from None
        raise
    session.inform(f"Queue was successfully deleted with {ready} ready messages")


async def _is_vhost(session: Session, vhost: str) -> bool:
    return any(one["name"] == vhost for one in await session.get("vhosts"))


# -- connections -----------------------------------------------------------------------------------


async def close_connection(session: Session) -> None:
    """By the pid of its process. Content if there is none. Raises CtlError."""
    pid, reason = session.typed.arguments
    session.inform(f"Closing connection {pid}, reason: {reason}...")
    if not (pid.startswith("<") and pid.endswith(">")):
        text = f'Error:\nError:\n{{:invalid_pid_syntax, "{pid}"}}'
        raise CtlError(EXIT_UNAVAILABLE, text)
    for one in await session.get("connections"):
        if one["pid"] == pid:
            await _close(session, one["name"], reason)


async def _close(session: Session, name: str, reason: str) -> None:
    """One that has gone meanwhile is closed."""
    try:
        await session.ask("DELETE", ("connections", name), missing="none", reason=reason)
    except CtlError as error:
        if error.text != "Error:\nnone":
            raise


async def close_all_connections(session: Session) -> None:
    """Of a vhost, or with --global of all; --limit of them, --per-connection-delay ms apart.
    Raises CtlError."""
    typed, reason = session.typed, session.typed.arguments[0]
    where = "" if typed.has("--global") else f" in vhost {typed.vhost}"
    session.inform(f"Closing all connections{where}, reason: {reason}...")
    shown = [
        one
        for one in await session.get("connections")
        if typed.has("--global") or one["vhost"] == typed.vhost
    ]
    limit = int(typed.seconds("--limit", 0))
    chosen = shown[:limit] if limit else shown
    for one in chosen:
        await _close(session, one["name"], reason)
        await asyncio.sleep(typed.seconds("--per-connection-delay", 0) / 1000)
    session.inform(f"Closed {len(chosen)} connections")


async def close_all_user_connections(session: Session) -> None:
    """Raises CtlError."""
    user, reason = session.typed.arguments
    session.inform(f"Closing connections of user {user}, reason: {reason}...")
    await session.ask("DELETE", ("connections", "username", user), reason=reason)


async def restart_vhost(session: Session) -> None:
    """It runs wherever the broker does. Raises CtlError."""
    vhost, node = session.typed.vhost, session.node
    session.inform(f"Trying to restart vhost '{vhost}' on node '{node}' ...")
    if not await _is_vhost(session, vhost):
        reason = f'Reason: {{:no_such_vhost, "{vhost}"}}'
        text = f"Error:\nFailed to start vhost '{vhost}' on node '{node}'{reason}"
        raise CtlError(70, text)
    await session.ask("POST", ("vhosts", vhost, "start", node))
    session.inform(f"Vhost '{vhost}' is already running on node '{node}'")


# -- definitions -----------------------------------------------------------------------------------


def check_export(session: Session) -> None:
    """Raises Invalid."""
    path = Path(session.typed.arguments[0])
    if str(path) != "-" and not path.parent.is_dir():
        raise bad(f"Directory {path.parent} does not exist")
    _check_format(session)


def check_import(session: Session) -> None:
    """Raises Invalid."""
    path = Path(session.typed.arguments[0])
    if str(path) != "-" and not path.is_file():
        raise bad(f"File {path} does not exist")
    _check_format(session)


def _check_format(session: Session) -> None:
    form = session.typed.options.get("--format", "json")
    if form != "json":
        raise bad(f"Format {form} is not supported. Please use json")


async def export_definitions(session: Session) -> None:
    """Into a file, or to stdout. Raises CtlError."""
    path = session.typed.arguments[0]
    if path != "-":
        session.inform(f'Exporting definitions in JSON to a file at "{path}" ...')
    text = msgspec.json.encode(await session.get("definitions")).decode()
    if path == "-":
        session.say([text])
    else:
        await asyncio.to_thread(Path(path).write_text, text)


async def import_definitions(session: Session) -> None:
    """Of a file, or of stdin. Raises CtlError."""
    path = session.typed.arguments[0]
    where = "standard input" if path == "-" else f'a file at "{path}"'
    session.inform(f"Importing definitions in JSON from {where} ...")
    text = sys.stdin.read() if path == "-" else await asyncio.to_thread(Path(path).read_text)
    try:
        told = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError as error:
        failed = f"Error:\nFailed to deserialise input (format: JSON) (error: {error})"
        raise CtlError(EXIT_DATA, failed) from error
    await session.ask("POST", ("definitions",), told)
