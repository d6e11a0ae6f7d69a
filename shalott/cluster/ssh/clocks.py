"""Clocks of hosts' nodes: which way each node gets a clock of its own, set and read by its agent.

By libfaketime where it reaches the node's program (cluster/faketime.py). Where it does not, the
host's own wall clock is set, but only if the user allowed it (``--ssh-set-time``).
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shalott.cluster.capabilities import WORLDS, Can, refusal
from shalott.cluster.faketime import FILE, GO_MARK, READ, check_program, environment, file_text
from shalott.cluster.nodes import NodeSpec
from shalott.cluster.ssh.connection import Connection
from shalott.cluster.ssh.facts import HostFacts
from shalott.cluster.ssh.inventory import title_of
from shalott.cluster.ssh.nodes import HostNodes
from shalott.cluster.ssh.upload import search_path
from shalott.core.errors import UsageError
from shalott.core.plan import HostPlan

Way = Literal["library", "host"]
HEAD_BYTES = 65536  # of a program: its program headers are there
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ALLOW = "or allow --ssh-set-time, which sets the host's own clock"


class HostClocks:
    """See ``Clocks``. ``is_wanted``: nodes are started so that each can have a clock of its own;
    ``set_time``: the hosts' own clocks may be set.

    Only the wall clock: the monotonic one never drifts here.
    """

    error_ms = 5.0  # a drift is made of steps

    def __init__(
        self, run: HostNodes, capabilities: Can, *, is_wanted: bool, set_time: bool
    ) -> None:
        self.capabilities = capabilities & WORLDS["ssh"]["clocks"]
        self._run = run
        self.is_wanted = is_wanted
        self._set_time = set_time
        self._ways: dict[str, Way] = {}
        self._wrong: dict[str, None] = {}
        # See ``MovesClocks``. A host's own clock is read instead (backend.py: read_clocks).
        self.history: dict[str, list[tuple[int, int]]] = {}

    async def prepare(self, spec: NodeSpec) -> NodeSpec:
        """The node as it is started, to have a clock of its own. Raises UsageError if it can't
        have one."""
        if not self.is_wanted:
            return spec
        node = spec.name
        connection, facts = self._run.connection(node), self._run.facts[node]
        command = [self._run.filled(node, word) for word in spec.command]
        way = await self._run.links[node].in_thread(
            lambda: way_of(connection, facts, spec, command, set_time=self._set_time)
        )
        self._ways[node] = way
        if way == "host":
            return spec
        return msgspec.structs.replace(
            spec,
            files={**spec.files, FILE: file_text(0)},
            environment={**spec.environment, **environment("{config}")},
        )

    def adopt(self, node: str) -> None:
        """A node that was not started for it has its host's clock. Raises UsageError if that can't
        be set."""
        connection, facts = self._run.connection(node), self._run.facts[node]
        if not self._set_time:
            raise UsageError(
                f"the clock of {node} is its host's: choose another --nemesis, or allow to set it"
                " (set_time = true in the inventory)"
            )
        if (obstacle := why_not_set(connection.host, facts)) is not None:
            raise UsageError(f"{node} can't have a wrong clock: {obstacle}")
        self._ways[node] = "host"

    def check(self) -> None:
        """When all are prepared. Raises UsageError if a clock that is to be set is another node's
        too."""
        refuse_shared_clocks(self._run.facts, self._ways)

    async def set(self, node: str, *, offset_ms: float = 0, drift_ppm: float = 0) -> None:
        self._check()
        self._wrong[node] = None
        way = self._ways[node]
        agent = self._run.agent(node)
        await agent.call("clock", way=way, offset_ms=offset_ms, drift_ppm=drift_ppm)
        if way == "library":
            put = time.monotonic_ns(), round(offset_ms * 1e6)
            self.history.setdefault(node, []).append(put)
        if not offset_ms and not drift_ppm:
            self._wrong.pop(node, None)

    async def offset_ms(self, node: str) -> float:
        """Seen by a program that is run with the environment of the node's first process."""
        self._check()
        agent = self._run.agent(node)
        command = [agent.host.python, "-I", "-S", "-c", READ]
        return float(await agent.call("read_clock", command=command))

    def _check(self) -> None:
        if not self.is_wanted:
            raise refusal("ssh", "clocks")

    async def heal(self) -> None:
        await asyncio.gather(*(self.set(node) for node in list(self._wrong)))

    def described(self) -> str:
        """How clocks are made wrong, for the report."""
        ways = sorted(set(self._ways.values()))
        return " and ".join({"library": "libfaketime", "host": "the hosts' own"}[w] for w in ways)

    async def close(self) -> None:
        self._ways.clear()
        self._wrong.clear()


def way_of(
    connection: Connection,
    facts: HostFacts,
    spec: NodeSpec,
    command: Sequence[str],
    *,
    set_time: bool,
) -> Way:
    """The way in which a node gets a clock of its own; ``command``: its words on the host. Blocks.
    Raises UsageError if there is none."""
    reason = why_no_library(connection.host, facts) or why_not_reached(
        connection, command, search_path(spec.image)
    )
    if not reason:
        return "library"
    if not set_time:
        raise UsageError(
            f"{spec.name} can't have a clock of its own: {reason}; choose another --nemesis,"
            f" {ALLOW}"
        )
    if (obstacle := why_not_set(connection.host, facts)) is not None:
        raise UsageError(f"{spec.name} can't have a clock of its own: {reason}, and {obstacle}")
    return "host"


def why_no_library(host: HostPlan, facts: HostFacts) -> str:
    """Why no program of a host can be started with libfaketime; "" if one can."""
    if not facts.glibc:
        return f"{title_of(host)} has another C library than glibc, which libfaketime does not know"
    if facts.faketime:
        return ""
    return f"{title_of(host)} lacks libfaketime (install it: sudo apt-get install -y libfaketime)"


def why_not_reached(connection: Connection, command: Sequence[str], path: str) -> str:
    """Why libfaketime does nothing to what ``command`` runs on a host; "" if it does."""
    named = [word for number, word in enumerate(command) if number == 0 or word[:1] == "/"]
    for word in dict.fromkeys(named):
        quoted = shlex.quote(word)
        found = f'file=$(PATH={path} command -v {quoted}) && [ -f "$file" ] && '
        mark = shlex.quote(GO_MARK[1:].decode())
        head = connection.run(_shell(f'{found}head -c {HEAD_BYTES} "$file"'))
        if head.exit_code != 0:
            continue  # no program: a directory, or what is not there yet
        content = head.output
        if connection.run(_shell(f'{found}LC_ALL=C grep -qF {mark} "$file"')).exit_code == 0:
            content += GO_MARK
        if reason := check_program(content):
            return f"{word} {reason}"
    return ""


def why_not_set(host: HostPlan, facts: HostFacts) -> str | None:
    """Why the harness must not set a host's clock, or None."""
    if not facts.is_root:
        return f"only root sets the clock of {title_of(host)}: add --ssh-sudo"
    if facts.boot_id == BOOT_ID.read_text().strip():
        return f"{title_of(host)} has the harness's own clock, which is never set"
    return None


def refuse_shared_clocks(facts: Mapping[str, HostFacts], ways: Mapping[str, Way]) -> None:
    """Raises UsageError if a clock that is to be set is another node's too."""
    for node, way in ways.items():
        others = [name for name in facts if name != node]
        shared = [name for name in others if facts[name].boot_id == facts[node].boot_id]
        if way == "host" and shared:
            raise UsageError(
                f"the hosts of {node} and {shared[0]} have one clock, so it can't be set for one"
                " node alone: use hosts with kernels of their own, or choose another --nemesis"
            )


def check_libraries(
    hosts: Sequence[HostPlan], facts: Sequence[HostFacts], *, set_time: bool
) -> None:
    """Raises UsageError: a host has no way to give its node a clock of its own."""
    for host, each in zip(hosts, facts, strict=True):
        reason = why_no_library(host, each)
        if reason and not set_time:
            raise UsageError(
                f"no node can have a clock of its own there: {reason}; choose another --nemesis,"
                f" {ALLOW}"
            )


def _shell(script: str) -> str:
    return f"sh -c {shlex.quote(script)}"
