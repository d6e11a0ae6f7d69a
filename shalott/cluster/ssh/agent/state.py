"""What an agent has made on its host, written down where any process can read and undo it.

One directory a run, on a file system in memory: after a reboot nothing is in force and nothing is
written down. ``undo`` needs the directory alone. So it is called by the agent when its harness is
silent, by the keeper when the agent was killed, and by a sweep when both were.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shalott.cluster.cgroups import remove_groups
from shalott.cluster.filling import empty
from shalott.cluster.ssh.agent import firewall, queueing
from shalott.cluster.ssh.agent.host_clock import HOST_CLOCK, HostClock

MARK = "SHALOTT_NODE"  # in the environment of every process of a node
MARKED_DIRECTORY = ".shalott-run"  # in a run's directory: to be removed as a whole
GONE_WITHIN_S = 5.0
START_TRIES, START_PAUSE_S = 10, 1.0  # of a service
POLL_S = 0.01

Request = Mapping[str, Any]  # what the harness asks for, or what it is told: a line of JSON


@dataclass
class State:
    """``name``: the run and the node; ``pids``: of the node's first process and of the agent, each
    with its start time in clock ticks, ``servers``: of its disk and of the packet engine;
    ``devices``: whose queues were replaced; ``mounts``: where its disk and its /tmp are mounted;
    ``groups``: names of control groups; ``true_ns``: the wall clock less CLOCK_BOOTTIME as they
    were, if the host's clock is set wrong.

    Of a node that is a service of the host's own (service.py), ``service``: its unit or commands;
    ``is_down``: it was stopped here, and is to be started; ``paused``: processes of it that stand
    still; ``filled``: directories that hold a file which takes all room."""

    name: str
    run: str
    owner: str
    directory: str
    lease_s: float
    agent: list[tuple[int, int]] = field(default_factory=list)
    pids: list[tuple[int, int]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    servers: list[tuple[int, int]] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    true_ns: int | None = None
    service: dict[str, str] = field(default_factory=dict)
    is_down: bool = False
    paused: list[tuple[int, int]] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)


def state_root() -> Path:
    """The directory of all runs of this user. Raises OSError if it is another user's."""
    uid, path = os.geteuid(), _root()
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != uid or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise OSError(f"{path} belongs to another user: remove it")
    return path


def _root() -> Path:
    """Made by the first run, if it is there."""
    uid = os.geteuid()
    return Path("/run/shalott") if uid == 0 else Path("/dev/shm") / f"shalott-{uid}"


def place_of(name: str) -> Path:
    return state_root() / name


def log_of(name: str) -> Path:
    """What the agent itself says, if anything."""
    return state_root() / f"{name}.log"


def write_state(state: State) -> None:
    """Replace the file as a whole: a reader sees the old state or the new one."""
    place = place_of(state.name)
    fresh = place / "state.new"
    fresh.write_text(json.dumps(asdict(state)))
    fresh.replace(place / "state.json")


def read_states() -> Iterator[State]:
    for path in sorted(state_root().glob("*/state.json")):
        try:
            yield State(**json.loads(path.read_text()))
        except FileNotFoundError:
            continue  # it ended meanwhile


def read_state(name: str) -> State | None:
    return next((state for state in read_states() if state.name == name), None)


def undo(state: State, host: HostClock = HOST_CLOCK) -> None:
    """Set the clock right and heal the links first, then end every process, then unmount, then
    remove every file. May be repeated."""
    clock_is_right = _set_clock_right(state, host)
    firewall.remove(state.name)
    queueing.remove(state.name)
    for device in state.devices:
        subprocess.run(["tc", "qdisc", "del", "dev", device, "root"], capture_output=True)
    end_processes(state.name)
    for pid, ticks in [*state.pids, *state.servers]:
        if start_ticks(pid) == ticks:
            signal_process(pid, signal.SIGKILL)
    remove_groups(state.groups)
    for mountpoint in state.mounts:
        # Lazily: it disappears now, also if it is in use. Its content goes with the directory under
        # it.
        subprocess.run(["umount", "-l", mountpoint], capture_output=True)
    if state.service:
        _restore_service(state)
    directory = Path(state.directory)
    if (directory / MARKED_DIRECTORY).is_file():
        shutil.rmtree(directory, ignore_errors=True)
    if clock_is_right:  # or what is written down is needed again
        shutil.rmtree(place_of(state.name), ignore_errors=True)
        log_of(state.name).unlink(missing_ok=True)
        if state.service:
            _leave(directory)


def _restore_service(state: State) -> None:
    """The host's own service goes on as it was found."""
    for pid, ticks in state.paused:
        if start_ticks(pid) == ticks:
            signal_process(pid, signal.SIGCONT)
    for directory in state.filled:
        empty(Path(directory))
    if state.is_down:
        for _ in range(START_TRIES):
            done = subprocess.run(
                ["sh", "-c", state.service["start"]], capture_output=True, cwd="/", env=unmarked()
            )
            if done.returncode == 0:
                return
            sys.stderr.write(f"it can't be started: {done.stderr.decode(errors='replace')}\n")
            time.sleep(START_PAUSE_S)


def unmarked() -> Mapping[str, str]:
    """An environment for what is not the run's."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def _leave(directory: Path) -> None:
    """Remove the agent itself, and the directories that it made, unless another run is here."""
    if any(read_states()):
        return
    for archive in directory.parent.parent.glob("agent-*.pyz"):
        archive.unlink(missing_ok=True)
    for each in (directory.parent, directory.parent.parent, _root()):
        remove_if_empty(each)


def remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass  # it holds what is another's


def _set_clock_right(state: State, host: HostClock) -> bool:
    """Whether the host's clock is right now; where it is not, the agent's log says why."""
    if state.true_ns is not None:
        try:
            host.set(state.true_ns, 0)
        except OSError as error:
            sys.stderr.write(f"the clock can't be set right: {error}\n")
            return False
    return True


def end_processes(name: str) -> None:
    """SIGKILL all processes that carry the mark, until nothing does."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (pids := marked(name)) and time.monotonic() < deadline:
        for pid in pids:
            signal_process(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended a moment ago


def marked(name: str) -> Sequence[int]:
    """The processes of a node, with any parents; zombies are not among them."""
    mark = f"{MARK}={name}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended, or is not ours
    return found


def start_ticks(pid: int) -> int | None:
    """Clock ticks from the machine's boot to the process's start; None: it does not run."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def has_stopped(pid: int) -> bool:
    fields = _stat_fields(pid)
    return not fields or fields[0] in "TtZX"


def _stat_fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # The command's name is in parentheses and may hold anything, also ") R 1".
    return text[text.rindex(")") + 2 :].split()
