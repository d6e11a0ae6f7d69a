"""What a plan of the workload ``consume`` sets, as far as its judges must know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Overflow = Literal["drop-head", "reject-publish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """One queue. 0 and "" stand for none.

    ``ttl_ms``: of the queue; messages may have a shorter one of their own. ``dead_letters``: the
    queue that its dead letters are routed to. ``expires_ms``: it is deleted when it has had no
    consumer for so long. ``max_priority``: messages of higher priority go first.
    """

    name: str
    ttl_ms: int = 0
    max_length: int = 0
    overflow: Overflow = "drop-head"
    dead_letters: str = ""
    expires_ms: int = 0
    max_priority: int = 0
    single_active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRules:
    """All queues of a run, those of dead letters too.

    ``keeps_acknowledged``: the settings promise that a fault of the plan loses nothing that was
    confirmed. ``stuck_after_ms``: so long after the heal a message that waits has come to a
    consumer that has room for it. ``client``: whose library consumes: "own", or the name of one
    that recovers by itself; what that loses or doubles is the client's.
    """

    queues: tuple[QueueRules, ...]
    keeps_acknowledged: bool = True
    stuck_after_ms: int = 10_000
    client: str = "own"
