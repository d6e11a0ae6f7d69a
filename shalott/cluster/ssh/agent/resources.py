"""What the node is short of on this host (cluster/kernel_limits.py): it has control groups of its
own, and perhaps a small /tmp in memory that lies over the host's for its processes alone.

The groups' names say whose they are and which node's, as several hosts may be one machine. They are
there from before the first start to the end of the run, and what was made is written down first
(state.py), so that each of these can remove it: the agent, its keeper, or a sweep.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from shalott.cluster.cgroups import Groups, own_groups
from shalott.cluster.filling import FILLER
from shalott.cluster.kernel_limits import Lack, Life, Limits, Lives
from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.state import (
    MARK,
    Request,
    State,
    place_of,
    write_state,
)
from shalott.core.errors import HarnessError

TMP = "/tmp"
TMP_OPTIONS = "size=16m,mode=1777"
NODE = "node"  # there is one on a host


class Resources:
    """One node's. Without ``prepare`` there is nothing that could be short."""

    def __init__(self, state: State, node: Node) -> None:
        self._state = state
        self._node = node
        self._groups: Groups | None = None
        self._lives = Lives(self._begin)
        self._kills = 0

    def prepare(self, small_tmp: bool) -> None:
        """Before the node is started. Raises NodeError."""
        self._state.groups = [group_of(self._state)]
        write_state(self._state)  # first, so that it is known when all is undone
        try:
            self._groups = own_groups(group_of(self._state))
        except HarnessError as error:
            raise NodeError(str(error)) from error
        self._node.groups = [str(path) for path in self._directories()]
        if small_tmp:
            self._node.tmp = self._mount_tmp()

    def _directories(self) -> list[Path]:
        assert self._groups is not None
        return list(dict.fromkeys(self._groups.directories.values()))

    def _mount_tmp(self) -> str:
        if not self._node.is_isolated:
            raise NodeError("no /tmp of the node's own can be made, and the host's is not filled")
        if Path(TMP) in Path(self._state.directory).parents:
            raise NodeError("the node's files are in /tmp: name another directory in the inventory")
        tmp = place_of(self._state.name) / "tmp"
        tmp.mkdir()
        self._state.mounts = [*self._state.mounts, str(tmp)]
        write_state(self._state)
        command = ["mount", "-t", "tmpfs", "-o", TMP_OPTIONS, "shalott", str(tmp)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise NodeError(f"no /tmp of the node's own can be made: {done.stderr.strip()}")
        return str(tmp)

    async def set(self, lack: Request) -> None:
        """From now on, over all of the node's lives. Raises NodeError."""
        if self._groups is None:
            raise NodeError("the node was not started to be short of anything")
        try:
            await self._lives.set(NODE, Lack(**lack), self._node.pid)
        except HarnessError as error:
            raise NodeError(str(error)) from error

    async def seen(self) -> Mapping[str, object]:
        """What the kernel says. Raises NodeError."""
        try:
            return asdict(await self._lives.seen(NODE, self._node.pid))
        except HarnessError as error:
            raise NodeError(str(error)) from error

    def starting(self) -> None:
        """A machine that starts has all it has; ``started`` takes it away again."""
        if self._groups is None:
            return
        self._groups.limit_cpu(None)
        self._groups.limit_memory(None)
        self._groups.limit_pids(None)
        if self._node.tmp:
            (Path(self._node.tmp) / FILLER).unlink(missing_ok=True)
        self._kills = self._groups.memory_kills()

    async def started(self) -> None:
        """Raises NodeError."""
        try:
            await self._lives.started(NODE, self._node.pid)
        except HarnessError as error:
            raise NodeError(str(error)) from error

    async def stopping(self) -> None:
        """A process that stands still could not end by itself."""
        await self._lives.stopping(NODE)

    def stop_again(self) -> None:
        """All of the node's processes were let run."""
        self._lives.stop_again()

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has ended a process of the node's last life for want of memory."""
        return self._groups is not None and self._groups.memory_kills() > self._kills

    def _begin(self, pid: int, limits: Limits) -> Life:
        # Marked, so that it ends with the node's processes.
        mark = ["env", f"{MARK}={self._state.name}"]
        fork = [*mark, sys.executable, "-I", sys.argv[0], "fork"]
        assert self._groups is not None
        return Life(pid, limits, self._groups, fork, self._tmp)

    def _tmp(self) -> Path:
        if not self._node.tmp:
            raise HarnessError("the node has no small /tmp of its own: the host's is not filled")
        return Path(self._node.tmp)


def group_of(state: State) -> str:
    """The name of its groups."""
    return f"shalott-{state.owner.replace('/', '_')}-{state.name}"
