"""Membership of systems whose own tools tell and change it, run on a node that is a member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.cluster.cluster import Cluster
from shalott.cluster.system import Observation
from shalott.core.errors import ClientError, Definite, HarnessError, Indefinite

TIMED_OUT = 124


class MembersByTool:
    """``ChangesMembers``, of four commands that a system says.

    A command that fails is asked again, of other members too; what it has done already is looked at
    first, so that nothing is done twice.
    """

    tool_timeout_ms = 5000
    left_out: Sequence[str] = ()

    def list_members(self) -> Sequence[str]:
        """The command that lists who belongs to the cluster."""
        raise NotImplementedError

    def read_members(self, output: str) -> Mapping[str, str]:
        """Names of nodes, each with what ``remove_member`` must call it."""
        raise NotImplementedError

    def remove_member(self, called: str) -> Sequence[str]:
        """The command that takes out a member, which is down."""
        raise NotImplementedError

    def add_member(self, node: str) -> Sequence[str]:
        """The command that lets a node in, which is empty and started next."""
        raise NotImplementedError

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        """The system's own."""
        raise NotImplementedError

    def why_not_leave(self, node: str) -> str:
        return ""

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        return [*await self._members(cluster, node)]

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        """Those that can be observed."""
        found = []
        for member in await self.members(cluster, node):
            try:
                await self.observe(cluster, member)
            except ClientError:
                continue
            found.append(member)
        return found

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        called = (await self._members(cluster, by)).get(node)
        if called is not None:
            await self._run(cluster, by, self.remove_member(called))
        self.left_out = [*(name for name in self.left_out if name != node), node]

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        if node not in await self._members(cluster, by):
            await self._run(cluster, by, self.add_member(node))
        self.left_out = [name for name in self.left_out if name != node]

    async def _members(self, cluster: Cluster, by: str) -> Mapping[str, str]:
        said = await self._run(cluster, by, self.list_members())
        try:
            return self.read_members(said)
        except (ValueError, LookupError, TypeError) as error:
            raise Definite(f"{by} lists its members as {said[:200]!r}: {error}") from error

    async def _run(self, cluster: Cluster, by: str, command: Sequence[str]) -> str:
        """What the tool says. Raises ClientError."""
        try:
            done = await cluster.processes.run_command(by, command, self.tool_timeout_ms)
        except HarnessError as error:
            raise Indefinite(f"{command[0]} on {by}: {error}") from error
        if done.exit_code != 0:
            why = "no answer" if done.exit_code == TIMED_OUT else done.output.strip()[-300:]
            raise Indefinite(f"{command[0]} on {by}: {why}")
        if not done.is_whole:
            raise Indefinite(f"{command[0]} on {by}: what it said was lost")
        return done.output
