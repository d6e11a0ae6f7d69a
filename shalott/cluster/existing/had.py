"""What containers that others made could take before a run, and how they get it back.

The limits are the kernel's own (cluster/kernel_limits.py); a life that ended took its own with it.
"""

from __future__ import annotations

import contextlib
import os
import signal

import msgspec

from shalott.cluster.cgroups import groups_of
from shalott.cluster.kernel_limits import STOPPED, read_limit, set_limit
from shalott.cluster.owner import process_state
from shalott.core.errors import HarnessError

GONE = (ProcessLookupError, FileNotFoundError)  # it has ended meanwhile


class Had(msgspec.Struct, frozen=True, kw_only=True):
    """Of a node; None: all there is. ``files``: how many each of its processes could open."""

    cpu_percent: float | None
    memory: int | None
    pids: int | None
    files: int


def had_by(pid: int) -> Had:
    """``pid``: of its first process. Raises HarnessError."""
    groups = groups_of(pid)
    try:
        return Had(
            cpu_percent=groups.cpu_percent(),
            memory=groups.memory_limit(),
            pids=groups.pids_limit(),
            files=read_limit(pid)[0],
        )
    except OSError as error:
        raise HarnessError(f"limits of process {pid} can't be read: {error}") from error


def give_back(pid: int, had: Had) -> None:
    """May be repeated. Raises HarnessError."""
    try:
        groups = groups_of(pid)
        if groups.cpu_percent() != had.cpu_percent:
            groups.limit_cpu(had.cpu_percent)
        if groups.memory_limit() != had.memory:
            groups.limit_memory(had.memory)
        if groups.pids_limit() != had.pids:
            groups.limit_pids(had.pids)
        for process in groups.processes():
            with contextlib.suppress(*GONE):
                soft, hard = read_limit(process)
                if soft < had.files:
                    set_limit(process, min(had.files, hard), hard)
                if process_state(process) in STOPPED:
                    os.kill(process, signal.SIGCONT)
    except OSError as error:
        raise HarnessError(f"process {pid} can't get back what it had: {error}") from error


def taken(pid: int, had: Had) -> list[str]:
    """What it lacks still, each in words. Raises HarnessError."""
    groups, now = groups_of(pid), had_by(pid)
    found = [
        f"{what} is limited to {getattr(now, name)}"
        for name, what in (
            ("cpu_percent", "its CPU"),
            ("memory", "its memory"),
            ("pids", "its processes' number"),
            ("files", "its files' number"),
        )
        if getattr(now, name) != getattr(had, name)
    ]
    stopped = [each for each in groups.processes() if process_state(each) in STOPPED]
    return found + [f"its process {each} stands still" for each in stopped]
