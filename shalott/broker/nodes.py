"""The two kinds of node, by their configuration: RabbitMQ's (node.py), RocketMQ's (rocketmq/)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Clock, Rng, never
from shalott.broker.base.events import EventLog
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.node.node import Node
from shalott.broker.rabbit.node.node_state import MEMBER, Standing
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.node.node import RocketNode

AnyNode = Node | RocketNode


async def open_node(
    config: NodeConfig | RocketConfig,
    *,
    clock: Clock,
    make_rng: Callable[[int], Rng],
    disk: Disk,
    open_events: Callable[[int], Awaitable[EventLog]],
    buggify: Callable[[str], bool] = never,
    starts: int = 0,
    standing: Standing = MEMBER,
) -> AnyNode:
    """The node that ``config`` describes; see Node.open, with ``standing``, and RocketNode.open."""
    if isinstance(config, RocketConfig):
        return await RocketNode.open(
            config,
            clock=clock,
            make_rng=make_rng,
            disk=disk,
            open_events=open_events,
            buggify=buggify,
            starts=starts,
        )
    return await Node.open(
        config,
        clock=clock,
        make_rng=make_rng,
        disk=disk,
        open_events=open_events,
        buggify=buggify,
        starts=starts,
        standing=standing,
    )
