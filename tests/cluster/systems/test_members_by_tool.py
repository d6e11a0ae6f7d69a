"""Members of a system that its own tool changes: asked, changed once, and refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shalott.api import ChangesMembers, CommandResult, MembersByTool, Observation, members_of
from shalott.core.errors import ClientError, Definite, HarnessError, Indefinite

pytestmark = pytest.mark.unit


class Tooled(MembersByTool):
    def __init__(self) -> None:
        self.down: list[str] = []

    def list_members(self) -> Sequence[str]:
        return ("tool", "list")

    def read_members(self, output: str) -> Mapping[str, str]:
        return dict(line.split("=") for line in output.split())

    def remove_member(self, called: str) -> Sequence[str]:
        return ("tool", "remove", called)

    def add_member(self, node: str) -> Sequence[str]:
        return ("tool", "add", node)

    async def observe(self, cluster: Any, node: str) -> Observation:
        if node in self.down:
            raise Definite(f"{node} is down")
        return {}


class Cluster:
    """One list of members, which every node's tool changes."""

    nodes = ("n1", "n2", "n3")
    left_down = ()

    def __init__(self) -> None:
        self.members = {"n1": "a", "n2": "b", "n3": "c"}
        self.ran: list[str] = []
        self.answer: CommandResult | HarnessError | None = None
        self.processes = SimpleNamespace(run_command=self.run)

    async def run(self, node: str, command: Sequence[str], timeout_ms: int) -> CommandResult:
        if isinstance(self.answer, HarnessError):
            raise self.answer
        if self.answer is not None:
            return self.answer
        match command:
            case ("tool", "list"):
                lines = (f"{name}={called}" for name, called in self.members.items())
                return CommandResult(0, "\n".join(lines))
            case ("tool", "remove", called):
                self.members = {n: c for n, c in self.members.items() if c != called}
            case ("tool", "add", name):
                self.members[name] = "new"
        self.ran.append(f"{node}: {' '.join(command)}")
        return CommandResult(0, "")


def test_a_member_is_taken_out_and_let_in_once() -> None:
    async def scene() -> None:
        cluster: Any = Cluster()
        system = Tooled()
        assert isinstance(system, ChangesMembers)
        for _ in range(2):
            await system.forget(cluster, "n2", "n1")
        assert await system.members(cluster, "n3") == ["n1", "n3"]
        assert members_of(cluster, system) == ("n1", "n3")  # type: ignore[arg-type]
        for _ in range(2):
            await system.admit(cluster, "n2", "n3")
        system.down = ["n2"]
        assert sorted(await system.running_members(cluster, "n1")) == ["n1", "n3"]
        assert cluster.ran == ["n1: tool remove b", "n3: tool add n2"]
        assert system.left_out == []

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (CommandResult(1, "no leader\n"), Indefinite, "tool on n1: no leader"),
        (CommandResult(124, "x"), Indefinite, "tool on n1: no answer"),
        (CommandResult(0, "nonsense"), Definite, "n1 lists its members as 'nonsense'"),
        (HarnessError("n1 is gone"), Indefinite, "tool on n1: n1 is gone"),
    ],
)
def test_what_the_tool_does_not_do_is_no_error_of_the_harness(
    answer: Any, error: type[ClientError], words: str
) -> None:
    async def scene() -> None:
        cluster: Any = Cluster()
        cluster.answer = answer
        with pytest.raises(error, match=words):
            await Tooled().forget(cluster, "n2", "n1")

    asyncio.run(scene())
