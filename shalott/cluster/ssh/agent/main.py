"""The agent's commands, as the harness runs them over SSH.

``open`` reads the run's settings as one line of JSON, starts the agent if it does not run yet, and
becomes the bridge between this channel and the agent's socket; ``attach NAME`` is the bridge alone.
``list DIRECTORY`` prints every run of this host as a line of JSON, also those of which a reboot
left only files; ``end NAME DIRECTORY`` ends and undoes one. ``engine`` and ``fork`` are
the agent's own (packets.py, resources.py).

The agent is two processes in a session of their own: the agent proper, and its keeper, which waits
for it and undoes everything if it ended without having done so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from shalott.cluster.forking import main as fork_without_end
from shalott.cluster.ssh.agent.agent_server import Server
from shalott.cluster.ssh.agent.firewall import ADMINISTRATORS
from shalott.cluster.ssh.agent.launching import adopt_orphans
from shalott.cluster.ssh.agent.packets import run_engine
from shalott.cluster.ssh.agent.state import (
    MARKED_DIRECTORY,
    State,
    log_of,
    place_of,
    read_state,
    read_states,
    remove_if_empty,
    start_ticks,
    state_root,
    undo,
    write_state,
)

ENDED_WITHIN_S = 20.0
CHUNK = 65536
NO_AGENT = (
    "there is no agent of this run: the host was started anew, or it was ended; `shalott clean`"
    " removes what may be left"
)
EXIT_OK, EXIT_FAILED = 0, 1


def main(arguments: Sequence[str]) -> int:
    os.umask(0o022)
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":" + ADMINISTRATORS
    command = arguments[0]
    try:
        if command == "open":
            return open_run(State(**json.loads(_first_line())))
        if command == "attach":
            return bridge(arguments[1])
        if command == "list":
            return list_runs(Path(arguments[1]))
        if command == "end":
            return end_run(arguments[1], arguments[2])
        if command == "fork":
            fork_without_end([*arguments[1:]])
            return EXIT_OK
        if command == "engine":
            run_engine(int(arguments[1]), int(arguments[2]))
            return EXIT_OK
    except OSError as error:
        _say({"gone": str(error)})
    return EXIT_FAILED


def open_run(state: State) -> int:
    if _connect(state.name) is None:
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            os.setsid()
            _keep(state, write)
        os.close(write)
        if not os.read(read, 1):
            _say({"gone": f"the agent does not start; see {log_of(state.name)}"})
            return EXIT_FAILED
    return bridge(state.name)


def _keep(state: State, ready: int) -> None:
    """The keeper; does not return."""
    state.agent = [(os.getpid(), start_ticks(os.getpid()) or 0)]
    place_of(state.name).mkdir(mode=0o700, exist_ok=True)
    write_state(state)
    _detach(str(log_of(state.name)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    adopt_orphans()
    keeper_read, keeper_write = os.pipe()
    agent = os.fork()
    if agent == 0:
        os.close(keeper_write)
        _serve(state, keeper_read, ready)
        os._exit(EXIT_OK)
    os.close(ready)
    os.close(keeper_read)
    while os.waitpid(-1, 0)[0] != agent:
        pass  # an orphan of the agent's
    left = read_state(state.name)
    if left is not None:
        undo(left)
    if state.service:
        remove_if_empty(state_root())
    os._exit(EXIT_OK)


def _serve(state: State, keeper: int, ready: int) -> None:
    adopt_orphans()
    state.agent = [(pid, start_ticks(pid) or 0) for pid in (os.getpid(), os.getppid())]
    write_state(state)

    def is_ready() -> None:
        os.write(ready, b"1")
        os.close(ready)

    asyncio.run(Server(state, keeper).serve(is_ready))


def _detach(log: str) -> None:
    """From the channel, which ends only when no process holds it."""
    null = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, source in ((0, null), (1, written), (2, written)):
        os.dup2(source, number)


def bridge(name: str) -> int:
    """Carry bytes both ways until either side ends."""
    connection = _connect(name)
    if connection is None:
        _say({"gone": NO_AGENT})
        return EXIT_FAILED
    ends = {0: connection.fileno(), connection.fileno(): 1}
    # An agent that is killed may reset the connection: who attaches again hears that it is gone.
    with connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while True:
            for source in select.select(list(ends), [], [])[0]:
                data = os.read(source, CHUNK)
                if not data:
                    return EXIT_OK
                while data:
                    data = data[os.write(ends[source], data) :]
    return EXIT_OK


def list_runs(runs: Path) -> int:
    # Directories first: a run writes down its state before it makes one.
    files = {path.name: str(path) for path in runs.glob("*") if (path / MARKED_DIRECTORY).exists()}
    states = list(read_states())
    known = [state.name for state in states]
    states += [_of_files(name, path) for name, path in files.items() if name not in known]
    for state in states:
        _say({**asdict(state), "runs": _runs(state)})
    return EXIT_OK


def _of_files(name: str, directory: str) -> State:
    """A run of which nothing but files is left."""
    return State(name=name, run="", owner="", directory=directory, lease_s=0)


def end_run(name: str, directory: str) -> int:
    """End the agent in order, or undo what a dead one left."""
    connection = _connect(name)
    if connection is not None:
        with connection:
            connection.settimeout(ENDED_WITHIN_S)
            connection.sendall(b'{"id": "end", "do": "end"}\n')
            while connection.recv(CHUNK):
                pass
    state = read_state(name) or _of_files(name, directory)
    if not _runs(state):
        undo(state)
    return EXIT_OK


def _runs(state: State) -> bool:
    return any(start_ticks(pid) == ticks for pid, ticks in state.agent)


def _connect(name: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place_of(name) / "socket"))
    except OSError:
        connection.close()
        return None
    return connection


def _first_line() -> bytes:
    """Of the channel, and not a byte of what follows: that is for the agent."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
