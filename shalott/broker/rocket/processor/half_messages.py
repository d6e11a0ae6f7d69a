"""HalfMessages: which transactions are not decided at a master, as far as it has looked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waiting:
    """A half message that is not decided; times are of the clock that is never set."""

    offset: int  # in the log
    ask_at_ms: int
    asked: int = 0


@dataclass(slots=True)
class HalfMessages:
    """Of one mastership, by queue offset. ``halves_end`` and ``ops_end``: up to where both queues
    are known; ``ending``: whose end is being stored, and may fail."""

    epoch: int | None = None
    halves_end: int = 0
    ops_end: int = 0
    waiting: dict[int, Waiting] = field(default_factory=dict)
    ending: dict[int, None] = field(default_factory=dict)
    decided: dict[int, None] = field(default_factory=dict)
    held: asyncio.Lock = field(default_factory=asyncio.Lock)  # by who looks for more
