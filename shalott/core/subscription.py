"""What an operation ``subscribe`` asks of its client: a consumer, and how it settles what it gets.

All of it is data in the operation's ``extra``, so that a plan and its seed decide it. The client
draws what it does with each delivery from the stream that ``Settling.key`` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shalott.core.rng import draw_float, draw_u64

SettlementKind = Literal["ack", "nack", "reject", "recover", "never"]

KEY_BITS = 52  # so that no reader of JSON rounds it
_DRAWS = 3  # a delivery
PATIENCE_MS = 300  # how long the rest of a batch is waited for


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of one delivery: said so long after it came, unless that of another one that
    settles several settles it before."""

    said: SettlementKind
    after_ms: float
    multiple: bool = False
    requeue: bool = False


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """How a channel's deliveries are settled.

    ``nack``, ``reject``, ``never`` and ``recover`` are shares of the deliveries; what is left is
    acknowledged. ``requeue`` is the share of the nacked and rejected ones that are to be delivered
    again. ``batch``: so many are settled at once, with multiple. ``shuffled``: each after a time of
    its own, so not in their order.
    """

    key: int = 0
    after_ms: float = 0
    batch: int = 1
    shuffled: bool = False
    nack: float = 0
    reject: float = 0
    requeue: float = 0
    never: float = 0
    recover: float = 0

    def verdict(self, number: int) -> Verdict:
        """On the delivery with that number, counted by channel from 0."""
        drawn = draw_float(self.key, number * _DRAWS)
        said: SettlementKind = "ack"
        limit = 0.0
        for share, name in self._shares():
            limit += share
            if drawn < limit:
                said = name
                break
        after_ms = self.after_ms
        if self.shuffled:
            after_ms *= 2 * draw_float(self.key, number * _DRAWS + 1)
        if self.batch > 1 and (number + 1) % self.batch:
            after_ms += PATIENCE_MS
        return Verdict(
            said=said,
            after_ms=after_ms,
            multiple=self.batch > 1 and said in ("ack", "nack"),
            requeue=draw_float(self.key, number * _DRAWS + 2) < self.requeue,
        )

    def _shares(self) -> tuple[tuple[float, SettlementKind], ...]:
        return (
            (self.never, "never"),
            (self.recover, "recover"),
            (self.nack, "nack"),
            (self.reject, "reject"),
        )


PLAIN = Settling()


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer. ``slot``: its number among those of its queue. ``prefetch`` 0: no limit.
    ``per_channel``: the limit is the channel's. ``join``: on a channel that its client has already,
    if it has one; then it is that one's settling, and its limit if that is the channel's."""

    slot: int = 0
    prefetch: int = 0
    per_channel: bool = False
    exclusive: bool = False
    no_ack: bool = False
    cancel_on_failover: bool = False
    priority: int = 0
    join: bool = False
    settling: Settling = PLAIN

    def extra(self) -> dict[str, object]:
        """As an operation's ``extra``."""
        fields: dict[str, object] = msgspec.to_builtins(self)
        return fields


def subscription_of(extra: Mapping[str, object] | None) -> Subscription:
    """The reverse of ``Subscription.extra``."""
    return msgspec.convert(extra or {}, Subscription)


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How a run's consumers are drawn. Shares are of consumers, those of ``settling`` and below it
    of deliveries. ``window``: the largest prefetch. ``slowest_ms``: the latest settling."""

    window: int = 10
    prefetch: Literal["mixed", "one", "window", "unlimited"] = "mixed"
    per_channel: float = 0
    no_ack: float = 0
    cancel_on_failover: float = 0
    with_priority: float = 0
    join: float = 0
    batches: float = 0
    shuffled: float = 0
    slowest_ms: int = 0
    nack: float = 0
    reject: float = 0
    requeue: float = 0
    never: float = 0
    recover: float = 0

    def draw(self, key: int, slot: int, *, exclusive: bool) -> Subscription:
        """The consumer whose stream has that key."""
        prefetch = self._prefetch(draw_u64(key, 0))
        batch = 1
        if draw_float(key, 1) < self.batches:
            batch = 2 + draw_u64(key, 2) % 4
            batch = min(batch, prefetch) if prefetch else batch
        return Subscription(
            slot=slot,
            prefetch=prefetch,
            per_channel=prefetch > 0 and draw_float(key, 3) < self.per_channel,
            exclusive=exclusive,
            no_ack=draw_float(key, 4) < self.no_ack,
            cancel_on_failover=draw_float(key, 5) < self.cancel_on_failover,
            priority=1 + draw_u64(key, 6) % 3 if draw_float(key, 7) < self.with_priority else 0,
            join=draw_float(key, 8) < self.join,
            settling=Settling(
                key=draw_u64(key, 9) >> (64 - KEY_BITS),
                after_ms=round(self.slowest_ms * (0, 0.1, 0.5, 1)[draw_u64(key, 10) % 4], 3),
                batch=batch,
                shuffled=draw_float(key, 11) < self.shuffled,
                nack=self.nack,
                reject=self.reject,
                requeue=self.requeue,
                never=self.never,
                recover=self.recover,
            ),
        )

    def _prefetch(self, drawn: int) -> int:
        choices = {
            "mixed": (0, 1, 1, 3, self.window),
            "one": (1,),
            "window": (self.window,),
            "unlimited": (0,),
        }[self.prefetch]
        return choices[drawn % len(choices)]
