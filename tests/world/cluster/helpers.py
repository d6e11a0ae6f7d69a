"""The processes that a running harness has besides its nodes, as a test may kill them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shalott.cluster.disks.mounting import SOURCE_PREFIX
from shalott.cluster.docker.packets import list_engines
from shalott.cluster.owner import parse_owner

RELAYS = "shalott.cluster.local.relay_process"
AGENT = "/agent-"  # what the harness has on a host: python3 -I .../agent-DIGEST.pyz open


def helpers_of(harness: int, hosts: Path | None = None) -> list[tuple[str, int]]:
    """(what it is, process id) of each; ``hosts``: see ``agents_of``."""
    return [
        *(("relays", pid) for pid in relays_of(harness)),
        *(("file system", pid) for pid in file_systems_of(harness)),
        *(("packet engine", pid) for pid in engines_of(harness)),
        *(("agent", pid) for pid in ([] if hosts is None else agents_of(hosts))),
    ]


def relays_of(harness: int) -> list[int]:
    return [pid for pid, words in processes() if RELAYS in words and parent_of(pid) == harness]


def file_systems_of(harness: int) -> list[int]:
    """Also those of hosts that are network namespaces of this machine."""
    found = []
    for pid, words in processes():
        if "serve" in words[1:2] and "--source" in words:
            source = words[words.index("--source") + 1]
            owner = parse_owner(source.removeprefix(SOURCE_PREFIX))
            found += [pid] if owner is not None and owner.pid == harness else []
    return found


def engines_of(harness: int) -> list[int]:
    owners = [(pid, parse_owner(owner)) for pid, owner, _ in list_engines()]
    return [pid for pid, owner in owners if owner is not None and owner.pid == harness]


def agents_of(hosts: Path) -> list[int]:
    """Those on hosts whose files ``ssh_hosts`` made in that directory."""
    commands = dict(processes())
    found = []
    for pid, words in commands.items():
        if words[-1:] == ["open"] and any(AGENT in word for word in words):
            above = parent_of(parent_of(pid))  # its session's sshd, and the one that listens
            found += [pid] if str(hosts) in " ".join(commands.get(above, ())) else []
    return found


def parent_of(pid: int) -> int:
    """0 if there is no such process any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def processes() -> Iterator[tuple[int, list[str]]]:
    """(id, command line) of each of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue  # it has ended
        yield int(path.parent.name), words
