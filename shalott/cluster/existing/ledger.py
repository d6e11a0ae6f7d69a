"""What a run has done to containers that others made, and how all of it is undone.

The harness has the guardian write each thing down before it does it (guard.py), so all can be
undone by the ledger alone: by the harness at its end, by the guardian when the harness is gone, and
by a sweep when both are. ``undo`` may be repeated; ``remains`` says what is there nevertheless.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import docker
import docker.errors
import msgspec

from shalott.cluster.docker import containers
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.firewall import CHAIN, list_tables, remove_table
from shalott.cluster.docker.namespaces import can_enter, is_root, run_in_namespace
from shalott.cluster.docker.packets import chain_script, list_engines
from shalott.cluster.existing.had import Had, give_back, taken
from shalott.cluster.filling import FILLER, empty
from shalott.cluster.local.sweep import state_directory
from shalott.core.errors import HarnessError

SUFFIX = ".ledger"
Noted = Literal["down", "paused", "filled", "short"]
OWN_CHAINS = "SHALOTT"
CUTS = (f"-D INPUT -j {CHAIN}", f"-F {CHAIN}", f"-X {CHAIN}")  # those made inside nodes


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``tables``: of its own firewall before the run. ``queue``: the kind of its device's
    queue then. ``data``: its data directory as this host sees it, "" if a run never fills it.
    ``had``: None if a run takes nothing from it."""

    node: str
    id: str
    device: str = ""
    tables: tuple[str, ...] = ()
    queue: str = ""
    data: str = ""
    had: Had | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """``guardian``: process id and start ticks. ``table``: on this host's bridge. ``down``,
    ``paused``, ``filled``, ``short``: ids of containers that the run has stopped, paused, filled
    the disk of, and taken something from. ``is_shaped``: their networks may hold rules and queues
    of ours."""

    run: str
    token: str
    lease_s: float
    guardian: tuple[int, int] = (0, 0)
    table: str = ""
    nodes: tuple[Container, ...] = ()
    down: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    is_shaped: bool = False

    def noted(self, what: Noted, identity: str, is_so: bool) -> Ledger:
        """With that container among those that are so, or without it."""
        before: Sequence[str] = getattr(self, what)
        others = tuple(each for each in before if each != identity)
        return msgspec.structs.replace(self, **{what: (*others, identity) if is_so else others})

    def of(self, identity: str) -> Container:
        return next(each for each in self.nodes if each.id == identity)


def place_of(token: str) -> Path:
    return state_directory() / f"{token}{SUFFIX}"


def write_ledger(ledger: Ledger) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one."""
    place = place_of(ledger.token)
    fresh = place.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(ledger))
    fresh.replace(place)


def read_ledgers() -> list[Ledger]:
    found = []
    for path in sorted(state_directory().glob(f"*{SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):  # its run ended meanwhile
            found.append(msgspec.json.decode(path.read_bytes(), type=Ledger))
    return found


# -- undo


async def undo(ledger: Ledger) -> None:
    """Links first, then processes, then files. Raises HarnessError with all that could not be
    done, when the rest is."""
    engine, errors = Engine(), []
    steps: list[Callable[[], Awaitable[None]]] = [partial(_mend_links, engine, ledger)]
    steps += [partial(_resume, engine, each) for each in ledger.paused]
    steps += [partial(_empty, engine, ledger.of(each)) for each in ledger.filled]
    steps += [partial(_give_back, engine, ledger.of(each)) for each in ledger.short]
    # What ran short may have ended of it.
    steps += [partial(_start, engine, each) for each in (*ledger.down, *ledger.short)]
    try:
        for step in steps:
            try:
                await step()
            except HarnessError as error:
                errors.append(str(error))
    finally:
        engine.close()
    if errors:
        raise HarnessError("; ".join(errors))


async def _mend_links(engine: Engine, ledger: Ledger) -> None:
    if not is_root():
        return
    if ledger.table:
        await remove_table(ledger.table)
    if not ledger.is_shaped:
        return
    for each in ledger.nodes:
        pid = await _pid(engine, each.id)
        if pid is None or not can_enter(pid):
            continue  # its network went with its processes
        for script in (chain_script([]), *(f"iptables -w {w} 2>/dev/null; true" for w in CUTS)):
            await run_in_namespace(pid, script, own_files=False)
        if each.device and each.queue != "htb":
            script = (
                f"tc qdisc show dev {each.device} root | grep -q '^qdisc htb 1:' &&"
                f" tc qdisc del dev {each.device} root; true"
            )
            await run_in_namespace(pid, script, own_files=False)
        for table in await tables_in(pid):
            if table not in each.tables and not await _rules_in(pid, table):
                await run_in_namespace(pid, f"nft delete table {table}", own_files=False)


async def tables_in(pid: int) -> list[str]:
    """Of the firewall of a process's own network: "ip filter" and the like."""
    listed = await run_in_namespace(pid, "nft list tables 2>/dev/null; true", own_files=False)
    return [line.removeprefix("table ") for line in listed.splitlines()]


async def _rules_in(pid: int, table: str) -> list[str]:
    """What a table does besides being there."""
    script = f"nft list table {table} 2>/dev/null; true"
    listed = await run_in_namespace(pid, script, own_files=False)
    lines = [line.strip() for line in listed.splitlines()]
    plumbing = ("table ", "chain ", "type ", "}", "#")
    return [line for line in lines if line and not line.startswith(plumbing)]


async def _pid(engine: Engine, identity: str) -> int | None:
    return (await engine.call(lambda api: containers.status(api, identity))).pid


async def _resume(engine: Engine, identity: str) -> None:
    if (await engine.call(lambda api: containers.status(api, identity))).state == "paused":
        await engine.call(lambda api: api.unpause(identity))


async def _give_back(engine: Engine, node: Container) -> None:
    """What forks there ends with the harness."""
    if node.had is not None and (pid := await _pid(engine, node.id)) is not None:
        await asyncio.to_thread(give_back, pid, node.had)


async def _start(engine: Engine, identity: str) -> None:
    if (await engine.call(lambda api: containers.status(api, identity))).state == "exited":
        await engine.call(lambda api: api.start(identity))


async def _empty(engine: Engine, node: Container) -> None:
    if (place := await data_of(engine, node)) is not None:
        await asyncio.to_thread(empty, place)


async def data_of(engine: Engine, node: Container) -> Path | None:
    """A node's data directory as this host sees it: a volume's own place, which is there while the
    node is down, or what its first process sees; None if there is neither now."""
    mounts = await engine.call(lambda api: _mounts(api, node.id))
    for target, source in mounts.items():
        if node.data == target or node.data.startswith(f"{target}/"):
            place = Path(source + node.data.removeprefix(target))
            if await asyncio.to_thread(place.is_dir):
                return place
    pid = await _pid(engine, node.id)
    place = Path(f"/proc/{pid}/root{node.data}")
    return place if pid is not None and await asyncio.to_thread(place.is_dir) else None


def _mounts(api: docker.APIClient, identity: str) -> dict[str, str]:
    """Source by target, the longest target first."""
    found = {
        str(each["Destination"]): str(each.get("Source") or "")
        for each in api.inspect_container(identity)["Mounts"]
    }
    return {target: found[target] for target in sorted(found, key=len, reverse=True)}


# -- what is left


async def remains(ledger: Ledger) -> list[str]:
    """What there is of ours, each named. Raises HarnessError: it can't be looked at."""
    found = [f"the firewall table {each}" for each in await list_tables() if ledger.token in each]
    found += [f"the packet engine {pid}" for pid, _, own in list_engines() if own == ledger.token]
    engine = Engine()
    try:
        for each in ledger.nodes:
            found += [f"{each.node}: {what}" for what in await _remains_of(engine, each)]
    finally:
        engine.close()
    return found


async def _remains_of(engine: Engine, node: Container) -> Sequence[str]:
    status = await engine.call(lambda api: containers.status(api, node.id))
    found = [] if status.state == "running" else [f"its container is {status.state}"]
    if node.data and (place := await data_of(engine, node)) is not None:
        found += [f"the file {FILLER}"] if (place / FILLER).exists() else []
    if status.pid is None or not is_root() or not can_enter(status.pid):
        return found
    script = f"iptables -w -S 2>/dev/null | grep {OWN_CHAINS}; true"
    rules = await run_in_namespace(status.pid, script, own_files=False)
    found += [f"the rule {line.strip()}" for line in rules.splitlines()]
    found += [
        f"the table {each}" for each in await tables_in(status.pid) if each not in node.tables
    ]
    if node.had is not None:
        found += await asyncio.to_thread(taken, status.pid, node.had)
    if node.device:
        queue = await queue_of(status.pid, node.device)
        found += [f"the queue {queue} of {node.device}"] if queue != node.queue else []
    return found


async def queue_of(pid: int, device: str) -> str:
    """The kind of a device's outermost queue."""
    script = f"tc qdisc show dev {device} root 2>/dev/null; true"
    words = (await run_in_namespace(pid, script, own_files=False)).split()
    return words[1] if len(words) > 1 else "noqueue"
