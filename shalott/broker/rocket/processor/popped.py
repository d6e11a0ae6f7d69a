"""Known: which messages a master has given to pops and got no acknowledgement of (flights.py)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

Place = tuple[str, str, int]  # group, topic, queue


@dataclass(slots=True)
class Flight:
    """One popped message. ``record``: where its check point is in the revive queue."""

    record: int
    pop_ms: int
    due_ms: int  # of the clock that is never set
    is_busy: bool = False  # its acknowledgement, new time or copy is being stored


@dataclass(slots=True)
class Known:
    """Of one mastership. ``end``: up to where the revive queue is read."""

    epoch: int | None = None
    end: int = 0
    flights: dict[Place, dict[int, Flight]] = field(default_factory=dict)
    held: asyncio.Lock = field(default_factory=asyncio.Lock)  # by who reads on
    turns: dict[Place, asyncio.Lock] = field(default_factory=dict)  # of pops
