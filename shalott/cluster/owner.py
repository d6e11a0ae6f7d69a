"""Owner: which harness process a container, network, firewall table or node process belongs to.

Everything a run makes carries its owner, so that what a killed harness left can be told from what
a live one still uses. A process id alone is reused by the kernel; with the start time from /proc
it is unique until the machine boots again, and the boot id tells that. In another process-id
namespace or on another machine nothing can be known, and what isn't known to be dead is never
removed.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Liveness = Literal["alive", "dead", "unknown"]


@dataclass(frozen=True)
class Owner:
    """A process, named for good."""

    pid: int
    start_ticks: int
    boot: str
    pid_namespace: str
    machine: str

    def __str__(self) -> str:
        return ":".join(str(part) for part in astuple(self))


def parse_owner(text: str) -> Owner | None:
    """The owner that ``str`` wrote; None if it is something else."""
    parts = text.split(":")
    if len(parts) != 5 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return Owner(int(parts[0]), int(parts[1]), *parts[2:])


def this_process() -> Owner:
    """The owner of what this process makes."""
    pid = os.getpid()
    return Owner(pid, start_ticks(pid) or 0, _boot_id(), _pid_namespace(), _machine())


def liveness(owner: Owner) -> Liveness:
    """Whether the owner still runs, as far as this process can know."""
    if owner.machine != _machine():
        return "unknown"
    if owner.boot != _boot_id():
        return "dead"
    if owner.pid_namespace != _pid_namespace():
        return "unknown"
    return "alive" if runs(owner.pid, owner.start_ticks) else "dead"


def runs(pid: int, started_ticks: int) -> bool:
    """Whether this very process runs: the same id with another start time is another process's."""
    return process_state(pid) not in ("", "Z", "X") and start_ticks(pid) == started_ticks


def start_ticks(pid: int) -> int | None:
    """Clock ticks from the machine's boot to the process's start; None if there is no such
    process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def process_state(pid: int) -> str:
    """The kernel's letter: R, S, D, T (stopped), Z (zombie); empty if there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def _stat_fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command's name is in parentheses and may hold anything, also ") R 1".
    return text[text.rindex(")") + 2 :].split()


@cache
def _boot_id() -> str:
    return _first_line("/proc/sys/kernel/random/boot_id")[:8]


@cache
def _machine() -> str:
    name = _first_line("/etc/machine-id") or platform.node()
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
