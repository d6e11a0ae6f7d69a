"""The processes of a service of the host's own, and the commands that are run for it: a unit's are
those of its control group; else a command names the first, and what they started belongs to it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from shalott.cluster.ssh.agent.agent_node import Node, NodeError
from shalott.cluster.ssh.agent.state import start_ticks

STARTED_WITHIN_S = 60.0
ASKED_S = 20.0


class ServiceProcesses:
    """``service``: as State's. What its commands start is not ended with the run."""

    def __init__(self, service: Mapping[str, str], node: Node) -> None:
        self._service = service
        self._node = node
        self.unit = service.get("unit", "")

    async def runs(self) -> bool:
        if self.unit or self._service.get("pids"):
            return bool(await self.found())
        return (await self._run(self._service["status"], ASKED_S))["exit_code"] == 0

    async def is_gone(self) -> bool:
        return not await self.runs()

    async def found(self) -> Sequence[int]:
        """Those that run, the oldest first; none if they are not known."""
        if self.unit:
            words = f"systemctl show -p ControlGroup --value {shlex.quote(self.unit)}"
            group = (await self.said(words)).strip()
            listed = _in_group(group) if group else []
        elif self._service.get("pids"):
            said = await self.said(f"{self._service['pids']} || true")
            listed = _with_children([int(word) for word in said.split() if word.isdigit()])
        else:
            listed = []
        ticks = {pid: at for pid in listed if (at := start_ticks(pid)) is not None}
        return sorted(ticks, key=lambda pid: (ticks[pid], pid))

    async def exit_code(self) -> int | None:
        """Of a unit's last life, as systemd knows it."""
        if not self.unit:
            return None
        names = "ExecMainCode,ExecMainStatus"
        said = await self.said(f"systemctl show -p {names} {shlex.quote(self.unit)}")
        told = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        status = int(told.get("ExecMainStatus", "0") or 0)
        return status if told.get("ExecMainCode") == str(os.CLD_EXITED) else 128 + status

    async def shell(self, script: str, timeout_s: float = STARTED_WITHIN_S) -> None:
        """Raises NodeError with what it said."""
        done = await self._run(script, timeout_s)
        if done["exit_code"] != 0:
            said = str(done["output"]).strip()[-500:]
            raise NodeError(f"{script} ended with {done['exit_code']}: {said}")

    async def said(self, script: str) -> str:
        return str((await self._run(script, ASKED_S))["output"])

    async def _run(self, script: str, timeout_s: float) -> Mapping[str, object]:
        words = ["sh", "-c", f"cd / && {{ {script}\n}}"]
        return await self._node.run_command(words, timeout_s, outlives=True)


def _in_group(group: str) -> Sequence[int]:
    """The processes of a control group, in whichever tree, and of those below it."""
    found = []
    for pid in _all():
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        paths = [line.split(":", 2)[2] for line in lines]
        if any(path.endswith(group) or f"{group}/" in path for path in paths):
            found.append(pid)
    return found


def _with_children(pids: Sequence[int]) -> Sequence[int]:
    parents = {pid: parent for pid in _all() if (parent := _parent(pid)) is not None}
    found = [pid for pid in pids if pid in parents]
    for pid in found:
        found += [each for each, parent in parents.items() if parent == pid and each not in found]
    return found


def _all() -> Sequence[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text[text.rindex(")") + 2 :].split()[1])
