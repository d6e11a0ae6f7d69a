"""What is said of one node and set at it: status, report, limits, whether it is there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.broker.rabbit.config import RABBITMQ_VERSION
from shalott.broker.rabbit.ctl.cluster import AGAIN_S, APP, alarms_of, cluster_status
from shalott.broker.rabbit.ctl.listing import LISTINGS, run_listing
from shalott.broker.rabbit.ctl.session import (
    BOLD,
    EXIT_TEMPORARY,
    EXIT_UNAVAILABLE,
    PLAIN,
    CtlError,
    Invalid,
    NoAnswer,
    Session,
    Shown,
    bad,
    invalid,
)

# -- status ----------------------------------------------------------------------------------------

UNITS: Mapping[str, int] = {"bytes": 1, "mb": 10**6, "gb": 10**9}


async def status(session: Session) -> None:
    """In RabbitMQ's sections, as far as there is something to say. Raises CtlError, Invalid."""
    unit = session.typed.options.get("--unit", "gb")
    if unit not in UNITS:
        text = f"unit '{unit}' is not supported. Please use one of: bytes, mb, gb"
        raise Invalid(f'"{text}"')
    node, overview = await session.get("shalott", "node"), await session.get("overview")
    names = [one["name"] for one in await session.get("vhosts")]
    if session.typed.formatter == "json":
        session.say([msgspec.json.encode(_as_object(node, overview, names)).decode()])
        return
    session.inform(f"Status of node {session.node} ...")
    for title, lines in _sections(node, overview, names, unit):
        session.say([f"{BOLD}{title}{PLAIN}", "", *lines, ""])


def _as_object(node: Shown, overview: Shown, vhosts: Sequence[str]) -> dict[str, object]:
    totals = overview["object_totals"]
    return {
        "alarms": alarms_of([node]),
        "data_directory": node["data_dir"],
        "disk_free": node["disk_free"],
        "disk_free_limit": node["disk_free_limit"],
        "is_under_maintenance": False,
        "listeners": overview["listeners"],
        "memory": {"total": {"allocated": node["mem_used"]}},
        "net_ticktime": node["net_ticktime"],
        "product_name": overview["product_name"],
        "product_version": overview["product_version"],
        "rabbitmq_version": overview["rabbitmq_version"],
        "totals": {
            "virtual_host_count": len(vhosts),
            "connection_count": totals["connections"],
            "queue_count": totals["queues"],
        },
        "uptime": node["uptime"] // 1000,
        "vm_memory_high_watermark_limit": node["mem_limit"],
    }


def _sections(
    node: Shown, overview: Shown, vhosts: Sequence[str], unit: str
) -> list[tuple[str, list[str]]]:
    def size(count: int | None) -> str:
        return "none" if count is None else f"{round(count / UNITS[unit], 4)} {unit}"

    totals = overview["object_totals"]
    runtime = [
        f"Uptime (seconds): {node['uptime'] // 1000}",
        "Is under maintenance?: false",
        f"RabbitMQ version: {overview['rabbitmq_version']}",
        f"Node name: {node['name']}",
        f"Cluster heartbeat timeout (net_ticktime): {node['net_ticktime']:g}",
    ]
    memory = [
        f"Total memory used: {size(node['mem_used'])}",
        f"Memory high watermark, computed to: {size(node['mem_limit'])}",
    ]
    disk = [
        f"Low free disk space watermark: {size(node['disk_free_limit'])}",
        f"Free disk space: {size(node['disk_free'])}",
    ]
    counted = [
        f"Connection count: {totals['connections']}",
        f"Queue count: {totals['queues']}",
        f"Virtual host count: {len(vhosts)}",
    ]
    listeners = [
        f"Interface: {each['ip_address']}, port: {each['port']}, protocol: {each['protocol']}"
        for each in overview["listeners"]
        if each["node"] == node["name"]
    ]
    return [
        ("Runtime", runtime),
        ("Data directory", [f"Node data directory: {node['data_dir']}"]),
        ("Alarms", alarms_of([node]) or ["(none)"]),
        ("Memory", memory),
        ("Free Disk Space", disk),
        ("Totals", counted),
        ("Listeners", listeners),
    ]


async def environment(session: Session) -> None:
    """The node's configuration. Raises CtlError."""
    session.inform(f"Application environment of node {session.node} ...")
    told = await session.get("shalott", "environment")
    if session.typed.formatter == "json":
        session.say([msgspec.json.encode(told).decode()])
        return
    pairs = [f"{{{name},{msgspec.json.encode(each).decode()}}}" for name, each in told.items()]
    body = ",\n          ".join(pairs)
    session.say([f"[{{rabbit,[{body}]}}]"])


PARTS = ("list_connections", "list_channels")
PARTS_OF_VHOSTS = (
    *("list_queues", "list_exchanges", "list_bindings", "list_permissions", "list_policies"),
    *("list_global_parameters", "list_parameters"),
)


async def report(session: Session) -> None:
    """What the other verbs say, one behind the other. Raises CtlError."""
    if session.typed.is_quiet:
        raise invalid(session.typed, "--quiet")
    session.inform(f"Reporting server status of node {session.node} ...")
    for verb in (status, cluster_status, environment):
        session.say([""])
        await verb(session)
    for name in PARTS:
        session.say([""])
        await run_listing(session, LISTINGS[name])
    for vhost in await session.get("vhosts"):
        own = session.in_vhost(vhost["name"])
        for name in PARTS_OF_VHOSTS:
            session.say([""])
            await run_listing(own, LISTINGS[name])


# -- is it there -----------------------------------------------------------------------------------


async def ping(session: Session) -> None:
    """Raises CtlError."""
    session.inform(
        f"Will ping {session.node}. This only checks if the OS process is running and answers."
        f" Timeout: {int(session.typed.timeout_s * 1000)} ms."
    )
    await session.get(*APP)
    session.answer("Ping succeeded")


async def node_health_check(session: Session) -> None:
    """Raises CtlError."""
    session.inform(f"Timeout: {int(session.typed.seconds('--timeout', 70))} seconds ...")
    session.inform(f"Checking health of node {session.node} ...")
    told = await session.get("healthchecks", "node")
    if told["status"] != "ok":
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\nHealth check failed. {told['reason']}")
    session.answer("Health check passed")


async def await_startup(session: Session) -> None:
    """Of one that is on its way. Raises CtlError."""
    seconds = session.typed.seconds("--timeout", 300)
    try:
        async with asyncio.timeout(seconds):
            while (phase := (await session.get(*APP))["phase"]) != "running":
                if phase == "stopped":
                    raise CtlError(EXIT_UNAVAILABLE, "Error:\nrabbit_is_not_running")
                await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        raise _late(session, "await_startup", seconds) from None


def _late(session: Session, what: str, seconds: float) -> CtlError:
    text = f"Error: operation {what} on node {session.node} timed out. Timeout value used: "
    return CtlError(EXIT_TEMPORARY, f"{text}{int(seconds * 1000)}")


def check_wait(session: Session) -> None:
    """Raises Invalid."""
    given = len(session.typed.arguments) + session.typed.has("--pid")
    if given == 0:
        raise Invalid('"No pid or pidfile specified"')
    if given == 2:
        raise Invalid('"Cannot specify both pid and pidfile"')


async def wait(session: Session) -> None:
    """For the node of a process, whose number stands in a file or is given. Raises CtlError."""
    seconds = session.typed.seconds("--timeout", 10)
    try:
        async with asyncio.timeout(seconds):
            await _wait(session)
    except TimeoutError:
        raise _late(session, "wait", seconds) from None


async def _wait(session: Session) -> None:
    text = session.typed.options.get("--pid")
    if text is None:
        path = session.typed.arguments[0]
        session.inform(f"Waiting for pid file '{path}' to appear")
        text = await _written(Path(path))
        session.inform(f"pid is {text}")
    if not text.isdecimal():
        raise CtlError(EXIT_UNAVAILABLE, "Error:\ngarbage_in_pid_file")
    session.inform(
        f"Waiting for erlang distribution on node '{session.node}' while OS process '{text}' is"
        " running"
    )
    phase = ""
    while phase != "running":
        if not _is_alive(int(text)):
            raise CtlError(EXIT_UNAVAILABLE, "Error:\nprocess_not_running")
        try:
            told = await session.get(*APP)
            phase, session.node = told["phase"], told["node"]
        except NoAnswer:
            pass
        await asyncio.sleep(AGAIN_S)
    session.inform(f"Waiting for applications 'rabbit_and_plugins' to start on '{session.node}'")
    session.inform(f"Applications 'rabbit_and_plugins' are running on node '{session.node}'")


async def _written(path: Path) -> str:
    """As soon as there is something."""
    while True:
        text = await asyncio.to_thread(_read, path)
        if text:
            return text
        await asyncio.sleep(AGAIN_S)


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


async def version(session: Session) -> None:
    """Of RabbitMQ, whose verbs these are."""
    session.say([RABBITMQ_VERSION])


# -- limits ----------------------------------------------------------------------------------------

# set_vm_memory_high_watermark and set_disk_free_limit, with the units and refusals of rabbitmqctl
# 3.10.

_UNITS: Mapping[str, int] = {
    "": 1,
    **dict.fromkeys(("k", "ki", "kiB"), 1 << 10),
    **dict.fromkeys(("M", "Mi", "MiB"), 1 << 20),
    **dict.fromkeys(("G", "Gi", "GiB"), 1 << 30),
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
WATERMARK = ("shalott", "vm_memory_high_watermark")
DISK = ("shalott", "disk_free_limit")


def _bytes(text: str) -> int:
    """Raises Invalid."""
    found = re.fullmatch(r"(\d+)(\w{0,3})", text)
    if found is None:
        raise bad()
    if found[2] not in _UNITS:
        raise bad("Invalid units.")
    return int(found[1]) * _UNITS[found[2]]


def _number(text: str) -> float:
    """Raises Invalid."""
    try:
        return float(text)
    except ValueError:
        raise bad() from None


async def set_watermark(session: Session) -> None:
    """``<fraction>`` or ``absolute <value>``. Raises CtlError, Invalid."""
    words = session.typed.arguments
    if words[0] == "absolute":
        if len(words) == 1:
            raise Invalid("not enough arguments.")
        count = _bytes(words[1])
        session.inform(f"Setting memory threshold on {session.node} to {words[1]} bytes ...")
        await session.ask("PUT", WATERMARK, {"absolute": count})
        return
    if len(words) == 2:
        raise Invalid("too many arguments.")
    fraction = _number(words[0])
    if not 0 <= fraction <= 1:
        raise bad("The threshold should be a fraction between 0.0 and 1.0")
    session.inform(f"Setting memory threshold on {session.node} to {words[0]} ...")
    await session.ask("PUT", WATERMARK, {"fraction": fraction})


async def set_disk_free_limit(session: Session) -> None:
    """``<bytes>`` or ``mem_relative <fraction>``. Raises CtlError, Invalid."""
    words = session.typed.arguments
    if words[0] == "mem_relative":
        if len(words) == 1:
            raise Invalid("not enough arguments.")
        fraction = _number(words[1])
        if not 0 <= fraction <= 1000:
            raise bad()
        told = f"{words[1]} times the total RAM"
        session.inform(f"Setting disk free limit on {session.node} to {told} ...")
        await session.ask("PUT", DISK, {"mem_relative": fraction})
        return
    if len(words) == 2:
        raise Invalid("too many arguments.")
    count = _bytes(words[0])
    session.inform(f"Setting disk free limit on {session.node} to {words[0]} bytes ...")
    await session.ask("PUT", DISK, {"bytes": count})


LEVELS = ("debug", "info", "warning", "error", "critical", "none")


async def set_log_level(session: Session) -> None:
    """Raises CtlError."""
    level = session.typed.arguments[0]
    if level not in LEVELS:
        text = f"level {level} is not supported. Try one of {', '.join(LEVELS)}"
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{text}")
    session.inform(f'Setting log level to "{level}" ...')
    await session.ask("PUT", ("shalott", "log_level"), {"level": level})


async def suspend_listeners(session: Session) -> None:
    session.inform(
        f"Will suspend client connection listeners on node {session.node}. The node will no longer"
        " accept client connections!"
    )
    await session.ask("POST", APP, {"action": "suspend_listeners"})


async def resume_listeners(session: Session) -> None:
    session.inform(
        f"Will resume client connection listeners on node {session.node}. The node will now accept"
        " client connections"
    )
    await session.ask("POST", APP, {"action": "resume_listeners"})
