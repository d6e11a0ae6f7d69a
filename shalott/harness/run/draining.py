"""The drain's end: what clients that are gone still hold is no loss.

A broker that does not read a connection, as RabbitMQ during an alarm, can't hear that its client
hung up: it keeps the messages that it sent there until the alarm is over, or until a heartbeat
fails. Queues say that they are empty meanwhile. So a drain that leaves such messages waits for
them, and is made again when they have come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from shalott.core.errors import ClientError

log = logging.getLogger("shalott.run")

# Clients agree on a heartbeat every 10 s. Two may be written before one fails, each after 5 to 10.
WITHIN_S = 25.0
PAUSE_S = 0.5

Held = Callable[[str], Awaitable[int]]


async def came_back(held: Held, nodes: Sequence[str]) -> bool:
    """Wait until no client holds a message, WITHIN_S at most; whether some have come back.

    ``held`` asks a node how many clients have, and raises ClientError.
    """
    first = left = await _ask(held, nodes)
    if not first:
        return False
    log.info("clients that are gone hold %d messages: waiting for them", first)
    clock = asyncio.get_running_loop().time
    until_s = clock() + WITHIN_S
    while left != 0 and clock() < until_s:
        await asyncio.sleep(PAUSE_S)
        answer = await _ask(held, nodes)
        left = left if answer is None else answer
    return left != first


async def _ask(held: Held, nodes: Sequence[str]) -> int | None:
    """What the first says that can be asked; None if nobody can."""
    for node in nodes:
        try:
            return await held(node)
        except ClientError:
            pass
    return None
