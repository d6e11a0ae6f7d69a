"""pause_minority, partial partitions and autoheal on three nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from shalott.broker.rabbit.metadata.partitions import NAME, PartitionHandler
from shalott.broker.rabbit.processes.process import Process
from tests.world.clock.turns import turns
from tests.world.rabbit.metadata import NODES, World
from tests.world.rabbit.switchboard import Listener

pytestmark = pytest.mark.unit


class Control:
    """A node's broker, reduced to its metadata server."""

    def __init__(self, world: World, node: str) -> None:
        self.world = world
        self.node = node
        self.handler: PartitionHandler
        self.log: list[str] = []
        self.clients = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._go = asyncio.Event()

    def pause(self, reason: str) -> None:
        self.log.append("pause")
        self.world.servers[self.node].leave()

    def resume(self) -> None:
        self.log.append("resume")
        self.tasks.append(asyncio.create_task(self.world.servers[self.node].boot()))

    def restart(self, reason: str, *, wait_for_go: bool) -> None:
        async def restart() -> None:
            self.world.servers[self.node].leave()
            self.handler.broker_stopped()
            if wait_for_go:
                await self._go.wait()
            await self.world.servers[self.node].boot()
            self.log.append("restarted")

        self.log.append("restart")
        self.tasks.append(asyncio.create_task(restart()))

    def go(self) -> None:
        self._go.set()

    def disconnect(self, node: str, reason: str) -> None:
        self.log.append(f"disconnect {node}")
        self.world.board.cut(self.node, node)

    def connections(self) -> int:
        return self.clients


def run(
    mode: str,
    body: Callable[[World, dict[str, Control]], Awaitable[Any]],
    bugs: tuple[str, ...] = (),
) -> None:
    async def main() -> None:
        world = World(mode, bugs)
        controls = {node: Control(world, node) for node in NODES}
        handlers: list[Process] = []
        for node, control in controls.items():
            control.handler = PartitionHandler(
                world.envs[node], world.configs[node], world.servers[node], control
            )
            world.board.runtimes[node].spawn(control.handler, name=NAME)
            world.servers[node].on_lost = partial(control.restart, wait_for_go=False)
            handlers.append(control.handler)
        await turns()
        try:
            await world.boot()
            await body(world, controls)
        finally:
            for control in controls.values():
                for task in control.tasks:
                    task.cancel()
            for handler in handlers:
                await handler.runtime.kill(handler.pid)
            await world.close()

    asyncio.run(main())


def test_the_minority_pauses_holds_its_confirms_and_comes_back() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.isolate("n1")
        await world.until(lambda: controls["n1"].log == ["pause"])
        assert not controls["n1"].handler.may_confirm()
        await world.until(controls["n2"].handler.may_confirm)
        assert controls["n2"].log == controls["n3"].log == []
        world.board.link_all()
        await world.until(lambda: len(world.servers["n1"].members) == 3)
        assert controls["n1"].log == ["pause", "resume"]
        assert controls["n1"].handler.may_confirm()
        assert not any(any(s.known_partitions().values()) for s in world.servers.values())

    run("pause_minority", body)


def test_every_node_pauses_when_all_links_are_cut_and_all_come_back() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.isolate("n1")
        world.board.isolate("n2")
        await world.until(lambda: all(control.log == ["pause"] for control in controls.values()))
        world.board.link_all()
        await world.until(
            lambda: all(len(server.members) == 3 for server in world.servers.values())
        )

    run("pause_minority", body)


def test_under_ignore_nobody_does_anything() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.isolate("n1")
        await world.until(lambda: len(world.servers["n1"].members) == 1)
        world.board.link_all()
        await world.until(lambda: bool(world.servers["n1"].known_partitions()["n1"]))
        assert all(control.log == [] for control in controls.values())

    run("ignore", body)


@pytest.mark.parametrize(("clients", "losers"), [(9, ["n2", "n3"]), (0, ["n1"])])
def test_autoheal_restarts_the_side_with_fewer_clients(clients: int, losers: list[str]) -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        controls["n1"].clients = clients
        controls["n2"].clients = 1
        world.board.isolate("n1")
        await world.until(lambda: len(world.servers["n1"].members) == 1)
        await world.until(lambda: len(world.servers["n2"].members) == 2)
        world.board.link_all()
        await world.until(
            lambda: all(controls[node].log == ["restart", "restarted"] for node in losers)
        )
        assert all(controls[node].log == [] for node in NODES if node not in losers)
        await world.until(
            lambda: all(len(server.members) == 3 for server in world.servers.values())
        )
        assert not any(any(s.known_partitions().values()) for s in world.servers.values())

    run("autoheal", body)


def test_autoheal_waits_until_every_node_is_back() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        controls["n1"].clients = 2
        controls["n2"].clients = controls["n3"].clients = 1
        world.board.isolate("n1")
        await world.until(lambda: len(world.servers["n2"].members) == 2)
        await world.until(lambda: len(world.servers["n1"].members) == 1)
        controls["n2"].clients = 5
        world.board.link("n1", "n3")
        await world.until(lambda: "n1" in world.servers["n3"].known_partitions()["n3"])
        await world.until(lambda: "n3" in world.servers["n1"].known_partitions()["n1"])
        assert all(control.log == [] for control in controls.values())
        world.board.link("n1", "n2")
        await world.until(lambda: controls["n1"].log == ["restart", "restarted"])
        assert controls["n2"].log == controls["n3"].log == []

    run("autoheal", body)


def test_a_partial_partition_becomes_a_full_one() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.cut("n1", "n3")
        await world.until(
            lambda: "disconnect n2" in controls["n1"].log or "disconnect n2" in controls["n3"].log
        )

    run("ignore", body)


def test_with_our_08_a_partial_partition_pauses_a_node_until_all_are_back() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.cut("n1", "n3")
        await world.until(
            lambda: controls["n1"].log == ["pause"] or controls["n3"].log == ["pause"]
        )
        world.board.link_all()
        await world.until(
            lambda: all(len(server.members) == 3 for server in world.servers.values())
        )

    run("pause_minority", body, bugs=("OUR-08",))


async def leader_of(world: World) -> str:
    """Who leads the tables, as soon as all nodes see it: a busy machine may elect once more."""

    def leaders() -> set[str | None]:
        return {server.leader_node for server in world.servers.values()}

    await world.until(lambda: len(leaders()) == 1 and None not in leaders())
    return str(leaders().pop())


@pytest.mark.parametrize("is_leaders", [True, False])
def test_of_two_members_without_a_link_one_waits_until_it_is_back(is_leaders: bool) -> None:
    """Who is cut off from the leader goes, or of two others the newer one."""

    async def body(world: World, controls: dict[str, Control]) -> None:
        leader = await leader_of(world)
        kept, gone = [node for node in world.servers[leader].members if node != leader]
        world.board.cut(leader if is_leaders else kept, gone)
        await world.until(lambda: controls[gone].log == ["restart"])
        await world.until(lambda: world.servers[gone].phase == "booting")
        stay = [node for node in NODES if node != gone]
        assert all(sorted(world.servers[node].members) == stay for node in stay)
        assert all(controls[node].handler.may_confirm() for node in stay)
        assert not controls[gone].handler.may_confirm()
        world.board.link_all()
        await world.until(
            lambda: all(len(server.members) == 3 for server in world.servers.values())
        )
        assert all(controls[node].log == [] for node in stay)

    run("pause_minority", body)


def test_a_link_that_breaks_and_comes_back_at_once_splits_no_views() -> None:
    """The log brings what was said meanwhile."""

    async def body(world: World, controls: dict[str, Control]) -> None:
        listener = Listener()
        world.servers["n2"].subscribers.add(world.board.runtimes["n2"].spawn(listener))
        for one, other in (("n2", "n3"), ("n1", "n2")):
            world.board.cut(one, other)
            world.board.link(one, other)
        await world.until(lambda: len(listener.got) >= 4)  # each went, and came
        await world.until(
            lambda: all(len(server.members) == 3 for server in world.servers.values())
        )
        await world.until(lambda: all(c.handler.may_confirm() for c in controls.values()))
        assert all(control.log == [] for control in controls.values())

    run("pause_minority", body)


def test_a_killed_node_is_no_partial_partition() -> None:
    async def body(world: World, controls: dict[str, Control]) -> None:
        world.board.isolate("n3")
        await world.until(lambda: len(world.servers["n1"].members) == 2)
        await world.until(lambda: len(world.servers["n2"].members) == 2)
        assert all(control.log == [] for control in controls.values())

    run("ignore", body)
