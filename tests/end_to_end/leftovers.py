"""What there still is of a run when its harness has ended: found by whose it is, in every place
where a run makes anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from shalott.clients.java.machine import OWNER_PROPERTY
from shalott.cluster.disks.mounting import SOURCE_PREFIX, find_mounts, find_places
from shalott.cluster.docker.engine import Engine
from shalott.cluster.docker.firewall import list_tables
from shalott.cluster.docker.names import LABEL_RUN, TABLE_PATTERN
from shalott.cluster.docker.sweep import find_remains
from shalott.cluster.local.sweep import RunState, state_directory
from shalott.cluster.owner import parse_owner


class Harness(Protocol):
    """One that has ended, or still runs."""

    @property
    def pid(self) -> int: ...

    @property
    def cwd(self) -> Path: ...


def leftovers(harness: Harness) -> list[str]:
    """Everything, whatever backend the run had."""
    return [*_processes(harness), *_states(harness.pid), *_work_directories(harness.cwd)]


def docker_leftovers(harness: Harness) -> list[str]:
    """The same, and what is in Docker and in the host's firewall."""
    return [*leftovers(harness), *_disks(harness.pid), *asyncio.run(_docker(harness.pid))]


def _processes(harness: Harness) -> list[str]:
    """Whatever was started with a file of this run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(harness.cwd) in command or f"-D{OWNER_PROPERTY}={harness.pid} " in command:
            found.append(f"process {process.name}: {command}")
    return found


def _disks(pid: int) -> list[str]:
    """Mounts, their directories, and processes whose command lines name the harness as their owner.
    These are servers of disks, and packet engines."""
    found = [
        f"mount {each.mountpoint}"
        for each in find_mounts()
        if each.owner is not None and each.owner.pid == pid
    ]
    found += [f"directory {place}" for place, owner in find_places() if owner.pid == pid]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(_is_of(word.removeprefix(SOURCE_PREFIX), pid) for word in words):
            found.append(f"process {process.name}: {' '.join(words)}")
    return found


def _states(pid: int) -> list[str]:
    found = []
    for path in state_directory().glob("*.json"):
        try:
            state = msgspec.json.decode(path.read_bytes(), type=RunState)
        except (FileNotFoundError, msgspec.MsgspecError):
            continue
        if _is_of(state.owner, pid):
            found.append(f"state {path}: {state}")
    return found


def _work_directories(cwd: Path) -> list[str]:
    runs = [run / "work" for run in (cwd / "store").glob("*/2*")]
    return [str(path) for path in runs if path.exists()]


async def _docker(pid: int) -> list[str]:
    engine = Engine()
    try:
        remains = await engine.call(lambda api: find_remains(api, LABEL_RUN))
    finally:
        engine.close()
    found = [f"{each} of {each.run}" for each in remains.values() if _is_of(each.owner, pid)]
    for table in await list_tables():
        match = TABLE_PATTERN.match(table)
        if match and int(match[2]) == pid:
            found.append(f"table {table}")
    return found


def _is_of(owner: str, pid: int) -> bool:
    parsed = parse_owner(owner)
    return parsed is not None and parsed.pid == pid
