"""The processes that a running harness has besides its nodes, as a test may kill them."""

from __future__ import annotations

from pathlib import Path

from shalott.cluster.disks.mounting import find_mounts, find_servers
from shalott.cluster.docker.packets import list_engines
from shalott.cluster.owner import parse_owner

RELAYS = b"shalott.cluster.local.relay_process"


def helpers_of(harness: int) -> list[tuple[str, int]]:
    """(what it is, process id) of each."""
    return [
        *(("relays", pid) for pid in relays_of(harness)),
        *(("file system", pid) for pid in file_systems_of(harness)),
        *(("packet engine", pid) for pid in engines_of(harness)),
    ]


def relays_of(harness: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            stat = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if RELAYS in words and int(stat[1]) == harness:
            found.append(int(path.name))
    return found


def file_systems_of(harness: int) -> list[int]:
    """Also those of hosts that are network namespaces of this machine."""
    own = [m for m in find_mounts() if m.owner is not None and m.owner.pid == harness]
    return [pid for mount in own for pid in find_servers(mount.mountpoint)]


def engines_of(harness: int) -> list[int]:
    owners = [(pid, parse_owner(owner)) for pid, owner, _ in list_engines()]
    return [pid for pid, owner in owners if owner is not None and owner.pid == harness]
