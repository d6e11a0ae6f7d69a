"""The node's disk on this host, if its plan has faults of power or disks: a file system of ours,
mounted over its data directory (docs/explanation/disks.md).

Its server is a process of its own, which the end of the node does not touch: a kill is no power
loss. It ends with the agent, and ``state.undo`` unmounts what is left.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from shalott.cluster.ssh.agent.agent_node import NodeError
from shalott.cluster.ssh.agent.state import State, log_of, place_of, start_ticks, write_state

READY_WITHIN_S = 20.0
ANSWER_MAX = 1 << 26


async def mount(state: State, program: str, options: Sequence[str]) -> int:
    """Mount it and start its server; that process's id. Raises NodeError with what that says."""
    data = f"{state.directory}/data"
    words = [
        *("serve", "--backing", data, "--mount", data, "--socket", str(_socket(state))),
        *("--source", f"shalott:{state.owner}", "--with-pid", str(os.getpid()), *options),
    ]
    state.mounts = [*state.mounts, data]  # first, so that it is known when all is undone
    write_state(state)
    said = place_of(state.name) / "disk.log"
    server = _launch([program, *words], said)
    state.servers = [*state.servers, (server.pid, start_ticks(server.pid) or 0)]
    write_state(state)
    assert server.stdout is not None
    with server.stdout as output:
        line = await asyncio.wait_for(asyncio.to_thread(output.readline), READY_WITHIN_S)
    if line != b"ready\n":
        reason = said.read_text(errors="replace").strip()
        raise NodeError(f"its disk can't be mounted: {reason or log_of(state.name)}")
    return server.pid


def _launch(command: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as errors:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
    server.returncode = 0  # the agent reaps its children itself
    return server


async def ask(state: State, line: str) -> str:
    """The server's answer to a line of JSON. Raises NodeError if there is none."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(_socket(state)), limit=ANSWER_MAX)
    except OSError as error:
        raise NodeError(f"its disk can't be reached: {error.strerror}") from error
    try:
        writer.write(line.encode() + b"\n")
        answer = await reader.readline()
    except OSError as error:
        raise NodeError(f"its disk is gone: {error.strerror}") from error
    finally:
        writer.close()
    if not answer:
        raise NodeError("its disk is gone")
    return answer.decode()


def _socket(state: State) -> Path:
    return place_of(state.name) / "disk"
