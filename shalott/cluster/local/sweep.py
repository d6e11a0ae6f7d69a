"""The local backend's state files: what a run has started and made, so that another process can
end and remove it.

One JSON file a run, in a directory that only this user can write, replaced as a whole at every
start of a node. A process is ended only if its id and its start time are those that were written
down; a directory is removed only if it carries the run's mark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from shalott.cluster.disks.mounting import unmount_below
from shalott.cluster.owner import Owner, liveness, parse_owner, runs
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError

MARK = ".shalott-run"  # in a run's directory: made by this backend, to be removed as a whole
GONE_WITHIN_S = 5
ENDED_WITHIN_S = 60  # nodes stop in order, and containers are removed
POLL_S = 0.005


class StartedProcess(msgspec.Struct, frozen=True):
    node: str
    pid: int
    start_ticks: int


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of one run."""

    run: str
    owner: str
    directory: str
    processes: tuple[StartedProcess, ...] = ()
    stays: bool = False  # until a user ends it: it is no run


def state_directory() -> Path:
    """Where this user's runs are written down. Raises HarnessError if it is not ours alone."""
    path = Path(tempfile.gettempdir()) / f"shalott-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise HarnessError(f"{path} belongs to another user: remove it")
    return path


def write_state(path: Path, state: RunState) -> None:
    """Replace the file as a whole: a reader sees the old state or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    fresh.replace(path)


def remove_directory(path: Path) -> None:
    """Remove a run's directory, if it is one, and the one around it if nothing else is there."""
    if (path / MARK).is_file():
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # unless another user keeps something there


async def sweep_local() -> list[str]:
    """End and remove what dead harnesses left. Says what was removed."""
    sentences = []
    for path in sorted(state_directory().glob("*.json")):
        try:
            state = msgspec.json.decode(path.read_bytes(), type=RunState)
        except FileNotFoundError:
            continue  # another sweeper was here
        except msgspec.MsgspecError:
            sentences.append(f"left alone: {path} is not a run's state")
            continue
        owner = parse_owner(state.owner)
        if owner is None or liveness(owner) != "dead":
            continue
        ended = await end_processes(state.processes)
        await unmount_below(Path(state.directory))
        remove_directory(Path(state.directory))
        path.unlink(missing_ok=True)
        sentences.append(
            f"removed the local nodes of run {state.run}, which a dead harness had left"
            f" behind ({ended} still ran)"
        )
    return sentences


async def end_staying() -> list[str]:
    """Have what ``shalott up`` started end in order. Says what was ended. Raises HarnessError."""
    sentences = []
    for path in sorted(state_directory().glob("*.json")):
        try:
            state = msgspec.json.decode(path.read_bytes(), type=RunState)
        except (FileNotFoundError, msgspec.MsgspecError):
            continue
        owner = parse_owner(state.owner)
        if not state.stays or owner is None or liveness(owner) != "alive":
            continue
        os.kill(owner.pid, signal.SIGTERM)
        has_ended = partial(_has_ended, owner)
        if not await wait_until(has_ended, ENDED_WITHIN_S, POLL_S):
            raise HarnessError(f"{state.run} does not end: its process is {owner.pid}")
        sentences.append(f"ended {state.run}")
    return sentences


def _has_ended(owner: Owner) -> bool:
    return not runs(owner.pid, owner.start_ticks)


async def end_processes(processes: tuple[StartedProcess, ...]) -> int:
    """Kill those that still are what they were; returns how many, when they are gone."""
    alive = [item for item in processes if runs(item.pid, item.start_ticks)]
    for item in alive:
        try:
            os.killpg(item.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

    def are_gone() -> bool:
        return not any(runs(item.pid, item.start_ticks) for item in alive)

    if not await wait_until(are_gone, GONE_WITHIN_S, POLL_S):
        names = ", ".join(f"{item.node} ({item.pid})" for item in alive)
        raise HarnessError(f"these processes don't die: {names}")
    return len(alive)
