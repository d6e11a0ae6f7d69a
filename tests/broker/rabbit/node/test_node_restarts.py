"""A node whose broker is to restart more than once: in virtual time, on a simulated disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shalott.broker.base.env import Platform, never
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.node.node import Node
from shalott.cluster.sim.disk.disk import SimDisk
from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork
from shalott.core.rng import Stream
from tests.world.clock.turns import passes, until

pytestmark = pytest.mark.unit

BOOTS_S = 30  # virtual; a node alone boots within a net tick or two
Body = Callable[[Node, "Events"], Awaitable[None]]


class Events:
    """Counts how often the broker has begun to run."""

    def __init__(self) -> None:
        self.runs = 0

    def emit(self, *words: Any, role: str = "", **more: Any) -> None:
        self.runs += role == "running"


def with_node(body: Body, buggify: Callable[[str], bool] = never) -> None:
    """Run ``body`` on a node that runs."""
    loop = SimLoop()
    loop.network = SimNetwork(loop, 1, NetworkKnobs())
    loop.network.add_host("n1")
    events = Events()

    async def main() -> None:
        async def open_events(incarnation: int) -> Any:
            return events

        platform = Platform(
            clock=NodeClock(loop, wall_origin_ns=0),
            make_rng=lambda incarnation: Stream(1, incarnation),
            disk=SimDisk(loop, 1, "n1"),
            open_events=open_events,
            buggify=buggify,
        )
        config = NodeConfig(name="n1", data_dir="", bind_host="n1", net_tick_ms=1000)
        node = await Node.open(config, platform)
        await node.start()
        await run_again(node, events, 1)
        await body(node, events)
        await node.stop()

    loop.run(main(), SimProcess("n1"))


async def run_again(node: Node, events: Events, count: int) -> None:
    """Return when the broker has begun to run ``count`` times, and does run."""
    await until(
        lambda: events.runs >= count and node.phase == "running",
        f"{count} runs",
        within_s=BOOTS_S,
    )


def test_two_restarts_that_are_asked_for_at_once_are_two_restarts() -> None:
    """The second one once waited for a word that only a lost autoheal brings, for ever."""

    async def body(node: Node, events: Events) -> None:
        node.restart("its leader does not know it", wait_for_go=False)
        node.restart("it saw no leader for too long", wait_for_go=False)
        await run_again(node, events, 2)

    with_node(body)


def test_a_restart_after_an_autoheal_waits_for_its_word_whatever_was_asked_before() -> None:
    async def body(node: Node, events: Events) -> None:
        node.restart("at once", wait_for_go=False)
        await run_again(node, events, 2)
        node.restart("autoheal: this side lost", wait_for_go=True)
        await passes(BOOTS_S)
        assert (node.phase, events.runs) == ("booting", 2)
        node.go()
        await run_again(node, events, 3)

    with_node(body)


def test_no_client_is_taken_before_the_queues_are_recovered() -> None:
    async def body(node: Node, events: Events) -> None:
        assert node.broker is not None
        row = await node.broker.queues.declare(
            vhost="/", name="q", durable=True, auto_delete=False, exclusive_owner=None, arguments={}
        )
        node.restart("to recover", wait_for_go=False)
        was = node.broker
        await until(
            lambda: node.broker not in (None, was) and node.broker.listener.listening,
            "it listens again",
            within_s=BOOTS_S,
        )
        process = node.broker.supervisor.children.process_of(row.key)
        assert process is not None and process.role is not None

    with_node(body, buggify=lambda site: site == "recover.late")
