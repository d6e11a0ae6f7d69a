"""The drain's end: what clients that are gone still hold is no loss.

A broker that does not read a connection, as RabbitMQ during an alarm, can't hear that its client
hung up: it keeps the messages that it sent there until the alarm is over, or until a heartbeat
fails. Queues say that they are empty meanwhile. So a drain that leaves such messages waits for
them, and is made again when they have come back.
"""

from __future__ import annotations

import asyncio
import logging

from shalott.cluster.system import TellsHeld, members_of
from shalott.core.errors import ClientError
from shalott.harness.run.world import World

log = logging.getLogger("shalott.run")

# Clients agree on a heartbeat every 10 s. Two may be written before one fails, each after 5 to 10.
WITHIN_S = 25.0
PAUSE_S = 0.5


async def came_back(world: World) -> bool:
    """Wait until no client holds a message, WITHIN_S at most; whether some have come back."""
    first = left = await _held(world)
    if not first:
        return False
    log.info("clients that are gone hold %d messages: waiting for them", first)
    clock = asyncio.get_running_loop().time
    until_s = clock() + WITHIN_S
    while left != 0 and clock() < until_s:
        await asyncio.sleep(PAUSE_S)
        answer = await _held(world)
        left = left if answer is None else answer
    return left != first


async def _held(world: World) -> int | None:
    """How many messages clients have, by the first node that answers; None if none does, or the
    system does not tell."""
    cluster, system = world.cluster, world.system
    if not isinstance(system, TellsHeld):
        return None
    for node in members_of(cluster, world.system):
        try:
            return await system.held(cluster, node)
        except ClientError:
            pass
    return None
