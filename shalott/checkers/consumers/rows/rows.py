"""The rows of a run of ``consume`` as columns (docs/reference/consumers.md, section 1).

Queues, consumers and channels are small integers here: their positions in ``names``. A message is
a row of ``Published``: one that is routed to three queues is three. A *life* is what x-death says
of a copy, as a small integer; 0 is a message that never died.
"""

from __future__ import annotations

from dataclasses import dataclass

from shalott.checkers.consumers.rows.settling import Settled, Settlements
from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.history.words import Words

OK, FAIL, INFO = range(3)  # what a publisher was told
NONE = -1


@dataclass(frozen=True, slots=True)
class Published:
    """A row a message, in the order of the history, by queue within one publish."""

    index: Ints  # of the publish in the history
    process: Codes
    node: Words
    queue: Ints
    value: Ints
    ack: Codes  # OK, FAIL or INFO
    invoke_ns: Ints
    complete_ns: Ints  # NEVER where there is none
    ttl_ms: Ints  # NONE: none of its own
    priority: Ints
    repeated: int  # publishes of a value that another had: the harness's own fault


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What consumers were given, and what basic.get took in the drain, in order of time."""

    index: Ints
    begin_ns: Ints  # of a take: when it was asked for
    at_ns: Ints
    queue: Ints
    value: Ints
    damaged: Bools  # its CRC was wrong: nobody knows what it was
    flagged: Bools
    taken: Bools  # by basic.get
    consumer: Ints  # NONE of a take
    channel: Ints  # NONE of a take
    tag: Ints
    life: Codes
    message: Ints  # which of Published it is, or was before it died; NONE: nobody published it
    settled: Settled


@dataclass(frozen=True, slots=True)
class Consumers:
    """A row a consumer, in order of its code. Times are NEVER where nothing happened."""

    name: tuple[str, ...]
    index: Ints  # NONE of one that only deliveries name
    queue: Ints
    channel: Ints
    prefetch: Ints
    shared: Bools  # the limit is its channel's
    exclusive: Bools
    priority: Ints
    cancel_on_failover: Bools
    no_ack: Bools
    begin_ns: Ints
    active_ns: Ints
    leaving_ns: Ints
    end_ns: Ints
    ended: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True)
class Channels:
    """A row a channel, in order of its code.

    ``alive_ns``: the latest time at which the broker is known to have had the channel: something
    that was sent on it then was answered. -1 if nothing was.
    """

    name: tuple[str, ...]
    end_ns: Ints  # NEVER if no row says it
    ended: tuple[str, ...]
    error: tuple[str, ...]
    alive_ns: Ints


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A queue was deleted (``gone``) or declared again."""

    index: int
    queue: int
    gone: bool
    begin_ns: int
    end_ns: int  # NEVER if nobody knows
    failed: bool


@dataclass(frozen=True, slots=True)
class Death:
    queue: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Everything together. ``lives``: the deaths of each life, the latest first."""

    queues: tuple[str, ...]
    published: Published
    deliveries: Deliveries
    settlements: Settlements
    consumers: Consumers
    channels: Channels
    changes: tuple[QueueChange, ...]
    lives: tuple[tuple[Death, ...], ...]
    emptied: dict[int, Ints]  # by queue: when it said that it was empty, ...
    emptied_by: dict[int, Codes]  # ... and at which node (``nodes``)
    nodes: tuple[str, ...]  # that clients talked to
