"""Generators of the workload ``consume``: publishers and consumers that come, go and die; and what
is done after the heal, until every queue is empty.

A consumer has a slot: a number among those of its queue, which belongs to one thread. A worker that
asks says what its client holds (``Context.holds``); a slot of its thread that is not held is
subscribed again, after a rest if the generator itself had ended it. So who consumes what is a
function of the seed and of what the clients saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.queue_generator import COUNTER_BITS, RETRY_PAUSE_NS
from shalott.core.rng import draw_below, draw_float, draw_u64, stream_key
from shalott.core.subscription import Habits, Subscription

NO_QUEUE = "NOT_FOUND - no queue"  # in the error of who asked for a queue that is not there
IN_USE = "ACCESS_REFUSED"  # in the error of who asked for what another one has for itself
AGAIN_NS = 500_000_000  # a subscription that was refused is tried again so long after
PAUSE_NS = 500_000_000  # a queue that may have refused a message is left alone for so long
DECLARED_WITHIN_NS = 2_000_000_000  # then another client declares a queue that is missing


class Slot(msgspec.Struct, frozen=True):
    queue: str
    number: int
    thread: int
    exclusive: bool = False

    @property
    def name(self) -> str:
        """As clients say that they hold it."""
        return slot_name(self.queue, self.number)


def slot_name(queue: str, number: int) -> str:
    return f"{queue}#{number}"


class Route(msgspec.Struct, frozen=True):
    """Where a message may be published. ``key``: the queue, or exchange/NAME with ``routing_key``
    and the queues that it is routed to. ``priorities``: 0, or one of 0 to so many is drawn."""

    key: str
    weight: float
    to: tuple[str, ...] | None = None
    routing_key: str = ""
    ttls_ms: tuple[int, ...] = ()  # 0: none of its own
    priorities: int = 0
    headers: Mapping[str, str] = {}


class Churn(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the operations; what is left is publishes. A consumer that was ended on purpose is
    away for up to ``away_ms``, a deleted queue too. ``rest``: how often a queue's consumers are all
    cancelled, each by its client, and come back after up to ``rest_ms``, so that it fills."""

    cancel: float = 0
    close: float = 0
    hang_up: float = 0
    delete: float = 0
    purge: float = 0
    away_ms: int = 1000
    rest: float = 0
    rest_ms: int = 1000


class _Keys(msgspec.Struct, frozen=True):
    what: int
    route: int
    message: int
    consumer: int
    which: int
    away: int
    rest: int


class ConsumerMix(msgspec.Struct, frozen=True):
    """Publishes, consumers and their ends, for ever, as the seed draws them."""

    slots: tuple[Slot, ...]
    threads: int
    routes: tuple[Route, ...]
    deletable: tuple[str, ...]  # queues that are deleted and declared again
    purgeable: tuple[str, ...]  # queues that are purged
    fading: tuple[str, ...]  # queues that may be gone by themselves: declared again if missed
    churn: Churn
    habits: Habits
    keys: _Keys
    value_base: int
    count: int = 0
    sent: int = 0
    subscribed: int = 0
    rest_ns: Mapping[str, int] = {}  # slot -> not before
    resting_ns: Mapping[str, int] = {}  # queue -> no consumer before
    missing_ns: Mapping[str, int] = {}  # queue -> when it is declared again
    paused_ns: Mapping[str, int] = {}  # route -> not before

    def next(self, context: Context) -> tuple[Answer, Generator]:
        invocation, successor = self._rested(context.now_ns)._next(context)
        return Scheduled(context.now_ns, invocation), msgspec.structs.replace(
            successor, count=self.count + 1
        )

    def _rested(self, now_ns: int) -> ConsumerMix:
        """With another queue at rest, if one is drawn."""
        drawn = draw_float(self.keys.rest, 2 * self.count)
        queues = list(dict.fromkeys(slot.queue for slot in self.slots))
        if drawn >= self.churn.rest or not queues:
            return self
        queue = queues[int(drawn / self.churn.rest * len(queues))]
        share = 0.5 + 0.5 * draw_float(self.keys.rest, 2 * self.count + 1)
        until_ns = now_ns + int(share * self.churn.rest_ms * 1e6)
        resting = {**self.resting_ns, queue: until_ns}
        return msgspec.structs.replace(self, resting_ns=resting)

    def _next(self, context: Context) -> tuple[Invocation, ConsumerMix]:
        now_ns = context.now_ns
        for queue, due_ns in self.missing_ns.items():
            if due_ns <= now_ns:
                missing = {**self.missing_ns, queue: now_ns + DECLARED_WITHIN_NS}
                declare = Invocation(f="declare-queue", key=queue)
                return declare, msgspec.structs.replace(self, missing_ns=missing)
        for slot in self._own(context):
            is_held, rests = slot.name in context.holds, self._rests(slot, now_ns)
            if is_held and rests:
                return Invocation(
                    f="unsubscribe", key=slot.queue, extra={"slot": slot.number}
                ), self
            if not is_held and not rests and self._may_subscribe(slot, now_ns):
                return self._subscribe(slot, now_ns)
        drawn, churn = draw_float(self.keys.what, self.count), self.churn
        held = [slot for slot in self._own(context) if slot.name in context.holds]
        if held:
            slot = held[draw_below(self.keys.which, self.count, len(held))]
            for share, f in ((churn.cancel, "unsubscribe"), (churn.close, "close-channel")):
                if drawn < share:
                    wanted = Invocation(f=f, key=slot.queue, extra={"slot": slot.number})
                    return wanted, self._resting((slot,), now_ns)
                drawn -= share
            if drawn < churn.hang_up:
                return Invocation(f="hang-up"), self._resting(self._own(context), now_ns)
            drawn -= churn.hang_up
        deletable = [queue for queue in self.deletable if queue not in self.missing_ns]
        if deletable and 0 <= drawn < churn.delete:
            queue = deletable[draw_below(self.keys.which, self.count, len(deletable))]
            missing = {**self.missing_ns, queue: now_ns + DECLARED_WITHIN_NS}
            delete = Invocation(f="delete-queue", key=queue)
            return delete, msgspec.structs.replace(self, missing_ns=missing)
        if self.purgeable and 0 <= drawn - churn.delete < churn.purge:
            which = draw_below(self.keys.which, self.count, len(self.purgeable))
            return Invocation(f="purge-queue", key=self.purgeable[which]), self
        return self._publish(now_ns)

    def _own(self, context: Context) -> list[Slot]:
        thread = context.process % self.threads
        return [slot for slot in self.slots if slot.thread == thread]

    def _rests(self, slot: Slot, now_ns: int) -> bool:
        return self.resting_ns.get(slot.queue, 0) > now_ns

    def _may_subscribe(self, slot: Slot, now_ns: int) -> bool:
        return self.rest_ns.get(slot.name, 0) <= now_ns and slot.queue not in self.missing_ns

    def _subscribe(self, slot: Slot, now_ns: int) -> tuple[Invocation, ConsumerMix]:
        key = draw_u64(self.keys.consumer, self.subscribed)
        wanted = self.habits.draw(key, slot.number, exclusive=slot.exclusive)
        rest = {**self.rest_ns, slot.name: now_ns + AGAIN_NS}
        successor = msgspec.structs.replace(self, subscribed=self.subscribed + 1, rest_ns=rest)
        return Invocation(f="subscribe", key=slot.queue, extra=wanted.extra()), successor

    def _resting(self, slots: Sequence[Slot], now_ns: int) -> ConsumerMix:
        away_ns = now_ns + self._away_ns()
        rest = {**self.rest_ns, **{slot.name: away_ns for slot in slots}}
        return msgspec.structs.replace(self, rest_ns=rest)

    def _away_ns(self) -> int:
        return int(draw_float(self.keys.away, self.count) * self.churn.away_ms * 1e6)

    def _publish(self, now_ns: int) -> tuple[Invocation, ConsumerMix]:
        usable = [r for r in self.routes if self.paused_ns.get(r.key, 0) <= now_ns] or self.routes
        drawn = draw_float(self.keys.route, self.count) * sum(route.weight for route in usable)
        for route in usable:
            drawn -= route.weight
            if drawn < 0:
                break
        extra: dict[str, object] = {}
        if route.to is not None:
            extra = {"to": list(route.to), "routing_key": route.routing_key}
        if route.ttls_ms:
            which = draw_below(self.keys.message, 2 * self.sent, len(route.ttls_ms))
            if route.ttls_ms[which]:
                extra["ttl_ms"] = route.ttls_ms[which]
        if route.priorities:
            drawn_below = draw_below(self.keys.message, 2 * self.sent + 1, route.priorities + 1)
            extra["priority"] = drawn_below
        if route.headers:
            extra["headers"] = dict(route.headers)
        value = self.value_base + self.sent
        publish = Invocation(f="enqueue", key=route.key, value=value, extra=extra or None)
        return publish, msgspec.structs.replace(self, sent=self.sent + 1)

    def update(self, event: Completed) -> Generator:
        key, now_ns = event.invocation.key, event.now_ns
        match event.invocation.f, event.kind:
            case "enqueue", "info":
                paused = {**self.paused_ns, key: now_ns + PAUSE_NS}
                return msgspec.structs.replace(self, paused_ns=paused)
            case "subscribe", "fail" if key in self.fading and NO_QUEUE in (event.error or ""):
                return msgspec.structs.replace(self, missing_ns={**self.missing_ns, key: now_ns})
            case "delete-queue", _:
                due_ns = now_ns + self._away_ns()
                return msgspec.structs.replace(self, missing_ns={**self.missing_ns, key: due_ns})
            case "declare-queue", "ok":
                missing = {queue: at for queue, at in self.missing_ns.items() if queue != key}
                return msgspec.structs.replace(self, missing_ns=missing)
        return self


class Fates(msgspec.Struct, frozen=True):
    """Queues by what befalls them: clients delete or purge them, or they go by themselves."""

    deletable: tuple[str, ...] = ()
    purgeable: tuple[str, ...] = ()
    fading: tuple[str, ...] = ()


def consumer_mix(
    *,
    slots: Sequence[Slot],
    threads: int,
    routes: Sequence[Route],
    fates: Fates,
    churn: Churn,
    habits: Habits,
    seed: int,
) -> ConsumerMix:
    names = ("what", "route", "message", "consumer", "which", "away", "rest")
    return ConsumerMix(
        slots=tuple(slots),
        threads=threads,
        routes=tuple(routes),
        deletable=fates.deletable,
        purgeable=fates.purgeable,
        fading=fates.fading,
        churn=churn,
        habits=habits,
        keys=_Keys(*(stream_key(seed, "consume", name) for name in names)),
        value_base=(draw_u64(stream_key(seed, "consume", "run"), 0) >> 44) << COUNTER_BITS,
    )


class ConsumeOut(msgspec.Struct, frozen=True):
    """Consume until every slot's client has looked and found nothing more in its queue.

    Who is asked to look acknowledges everything from then on.
    """

    slots: tuple[Slot, ...]  # that have not found their queue empty yet
    threads: int
    again_ns: Mapping[str, int] = {}  # slot -> not before

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if not self.slots:
            return None, self
        thread = context.process % self.threads
        own = [slot for slot in self.slots if slot.thread == thread]
        if not own:
            return Pending(), self
        slot = min(own, key=lambda slot: self.again_ns.get(slot.name, 0))
        at_ns = max(context.now_ns, self.again_ns.get(slot.name, 0))
        if slot.name in context.holds:
            invocation = Invocation(f="look", key=slot.queue, extra={"slot": slot.number})
        else:
            plain = Subscription(slot=slot.number, exclusive=slot.exclusive, prefetch=10)
            invocation = Invocation(f="subscribe", key=slot.queue, extra=plain.extra())
        again = {**self.again_ns, slot.name: at_ns + RETRY_PAUSE_NS}
        return Scheduled(at_ns, invocation), msgspec.structs.replace(self, again_ns=again)

    def update(self, event: Completed) -> Generator:
        extra, error = event.invocation.extra or {}, event.error or ""
        name = slot_name(event.invocation.key, extra.get("slot", 0))
        done = event.invocation.f == "look" and event.kind == "ok"
        # Nothing is there, or another client sees to it.
        done |= event.kind == "fail" and (NO_QUEUE in error or IN_USE in error)
        if not done:
            return self
        left = tuple(slot for slot in self.slots if slot.name != name)
        return msgspec.structs.replace(self, slots=left)


class StopConsumers(msgspec.Struct, frozen=True):
    """Cancel every consumer; exhausted when no thread holds one."""

    waiting: tuple[int, ...]  # threads that may hold some
    threads: int

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if context.holds:
            return Scheduled(context.now_ns, Invocation(f="unsubscribe")), self
        thread = context.process % self.threads
        left = tuple(other for other in self.waiting if other != thread)
        answer = Pending() if left else None
        return answer, StopConsumers(left, self.threads)

    def update(self, event: Completed) -> Generator:
        return self


class DeclareQueues(msgspec.Struct, frozen=True):
    """Declare these queues, one after the other, until each is there."""

    missing: tuple[str, ...]
    asked: int = 0
    not_before_ns: int = 0

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if not self.missing:
            return None, self
        if self.asked >= len(self.missing):
            return Pending(), self
        at_ns = max(context.now_ns, self.not_before_ns)
        invocation = Invocation(f="declare-queue", key=self.missing[self.asked])
        return Scheduled(at_ns, invocation), msgspec.structs.replace(self, asked=self.asked + 1)

    def update(self, event: Completed) -> Generator:
        if event.invocation.f != "declare-queue":
            return self
        if event.kind == "ok":
            left = tuple(queue for queue in self.missing if queue != event.invocation.key)
            return msgspec.structs.replace(self, missing=left, asked=max(0, self.asked - 1))
        later_ns = event.now_ns + RETRY_PAUSE_NS
        return msgspec.structs.replace(self, asked=0, not_before_ns=later_ns)
