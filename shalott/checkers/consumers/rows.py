"""The rows of a run of the workload ``consume`` as columns (docs/reference/consumers.md, section
1).

Queues, consumers and channels are small integers here: their positions in ``names``. A message is
a row of ``Published``: one that is routed to three queues is three. A *life* is what x-death says
of a copy, as a small integer; 0 is a message that never died.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints

_T = TypeVar("_T", bound=np.generic)
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
    damaged: Bools  # its CRC was wrong: it is unknown what it was
    flagged: Bools
    taken: Bools  # by basic.get
    consumer: Ints  # NONE of a take
    channel: Ints  # NONE of a take
    tag: Ints
    life: Codes
    message: Ints  # which of Published it is, or was before it died; NONE: no client published it
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
    """A queue was deleted (``gone``) or declared again; or its ready messages were purged, and are
    ``gone``."""

    index: int
    queue: int
    gone: bool
    begin_ns: int
    end_ns: int  # NEVER if it is unknown
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
    purges: tuple[QueueChange, ...]
    lives: tuple[tuple[Death, ...], ...]
    emptied: dict[int, Ints]  # by queue: when it said that it was empty, ...
    emptied_by: dict[int, Codes]  # ... and at which node (``nodes``)
    nodes: tuple[str, ...]  # that clients talked to


# Which deliveries an acknowledgement settles, for all of them at once.
#
# A row that settles says the tag of one delivery, or, with ``multiple``, the highest tag that it
# settles: then it means every unsettled one of its channel up to that (AMQP 0-9-1, basic.ack; tag
# 0 is all, and the row says which was the highest). basic.recover is the same for all that were
# delivered before it. The first row that means a delivery settles it, in the order in which they
# were sent. A channel's tags only grow, so the first of the multiple ones that goes as far as a
# tag is found by bisection in the running maximum.

NOT, ACK, REQUEUE, REJECT, RECOVER, AUTO = range(6)
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Settlements:
    """Rows that settle something, in the order in which they were sent."""

    index: Ints  # in the history
    channel: Ints
    tag: Ints  # NOWHERE with multiple
    upto: Ints  # NOWHERE without
    kind: Codes  # ACK, REQUEUE, REJECT or RECOVER
    ok: Bools  # it was proved to have arrived
    sent_ns: Ints
    done_ns: Ints  # of those that are ok, when that was known; else NEVER


@dataclass(frozen=True, slots=True)
class Settled:
    """A row a delivery: how it was settled, if it was."""

    by: Ints  # position in the Settlements, NOWHERE if none
    kind: Codes  # NOT, ACK, REQUEUE, REJECT, RECOVER or AUTO
    ok: Bools
    sent_ns: Ints  # NEVER
    done_ns: Ints  # NEVER unless ok


def settle(channel: Ints, tag: Ints, auto: Bools, rows: Settlements) -> Settled:
    """``auto``: deliveries that need no acknowledgement, which none of the rows can mean."""
    count = len(rows.index)
    far = count  # behind every row
    first = np.minimum(_singly(channel, tag, rows, far), _multiply(channel, tag, rows, far))
    first = np.where(auto, far, first)
    found = first < far
    by = np.where(found, first, NOWHERE)
    kind = np.where(found, _taken(rows.kind, first, NOT), np.where(auto, AUTO, NOT))
    return Settled(
        by=by,
        kind=kind.astype(np.int32),
        ok=_taken(rows.ok, first, False),
        sent_ns=_taken(rows.sent_ns, first, NEVER),
        done_ns=_taken(rows.done_ns, first, NEVER),
    )


def _taken(column: npt.NDArray[_T], place: Ints, default: int) -> npt.NDArray[_T]:
    """``column[place]``, and the default for what lies behind its end."""
    return np.append(column, np.array(default, dtype=column.dtype))[place]


def _singly(channel: Ints, tag: Ints, rows: Settlements, far: int) -> Ints:
    """Of each delivery the first row with its tag."""
    single = np.flatnonzero(rows.tag >= 0)
    if not len(single):
        return np.full(len(channel), far, dtype=np.int64)
    width = int(max(tag.max(initial=0), rows.tag[single].max())) + 2
    keys = rows.channel[single] * width + rows.tag[single]
    order = np.argsort(keys, kind="stable")  # of equal ones the first sent stays first
    keys, single = keys[order], single[order]
    wanted = channel * width + np.clip(tag, -1, width - 1)
    return _lookup(keys, single, wanted, far)


def _lookup(keys: Ints, places: Ints, wanted: Ints, far: int) -> Ints:
    """``places`` of the first of the sorted keys that is equal to each that is wanted."""
    # Each channel's tags rise with time, so the search stays at a few places at once.
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[at] == wanted) & (wanted >= 0), places[at], far)


def _multiply(channel: Ints, tag: Ints, rows: Settlements, far: int) -> Ints:
    """Of each delivery the first multiple row of its channel that goes as far as its tag."""
    several = np.flatnonzero(rows.upto >= 0)
    if not len(several):
        return np.full(len(channel), far, dtype=np.int64)
    several = several[np.argsort(rows.channel[several], kind="stable")]
    owner = rows.channel[several]
    width = int(max(tag.max(initial=0), rows.upto[several].max())) + 2
    # The channel in the key keeps the running maximum from crossing into the next channel.
    reached = np.maximum.accumulate(owner * width + rows.upto[several])
    wanted = channel * width + np.clip(tag, 0, width - 1)
    at = np.minimum(np.searchsorted(reached, wanted), len(several) - 1)
    meant = (owner[at] == channel) & (reached[at] >= wanted) & (channel >= 0) & (tag >= 0)
    return np.where(meant, several[at], far)
