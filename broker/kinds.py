"""The two kinds of node, by their configuration: RabbitMQ's (node.py), RocketMQ's (rocketmq/)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.config import NodeConfig
from broker.disk import Disk
from broker.env import Clock, Rng, never
from broker.events import EventLog
from broker.node import Node
from broker.rocketmq.config import RocketConfig
from broker.rocketmq.node import RocketNode

AnyNode = Node | RocketNode


async def open_node(
    config: NodeConfig | RocketConfig,
    *,
    clock: Clock,
    make_rng: Callable[[int], Rng],
    disk: Disk,
    open_events: Callable[[int], Awaitable[EventLog]],
    buggify: Callable[[str], bool] = never,
) -> AnyNode:
    """The node that ``config`` describes; see Node.open and RocketNode.open."""
    if isinstance(config, RocketConfig):
        return await RocketNode.open(
            config,
            clock=clock,
            make_rng=make_rng,
            disk=disk,
            open_events=open_events,
            buggify=buggify,
        )
    return await Node.open(
        config,
        clock=clock,
        make_rng=make_rng,
        disk=disk,
        open_events=open_events,
        buggify=buggify,
    )
