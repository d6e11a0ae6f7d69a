"""Which life of a node this is: a number that grows with every start, for ever.

Processes, links and tables tell a node's lives apart by it. The data directory holds it, but an
operator may replace a broken disk by an empty one. Erlang's daemon epmd, which is not on that disk,
counts the starts of a node for that reason (its "creation"); here the machine does.
"""

from __future__ import annotations

from shalott.broker.base.disk import Disk
from shalott.broker.base.files import read_number, write_number


async def begin_life(disk: Disk, starts: int) -> int:
    """The number of the life that begins, durable when this returns.

    Args:
        starts: how often the machine has started the node, this time included; 0 if nobody counts.
    """
    incarnation = max(await read_number(disk, "incarnation") + 1, starts)
    await write_number(disk, "incarnation", incarnation)
    return incarnation
