"""What ends a message or a queue without a consumer: time to live, maximum length, disuse; and dead
letters.

The master alone decides; its mirrors are told as drops (rabbit/rabbit_amqqueue_process.erl).
Messages expire from the head only, so one that waits behind a longer-lived one expires late. Time
counts from the publish, also for a message that went straight to a consumer, and a requeue, a
promotion or a restart does not prolong it: the backing queue keeps it (storage/entries.py). A
policy's time to live holds for what is published under it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.mirrored.messages import ExpiryTimer, UnusedTimer
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.replica import instructions as ins
from shalott.broker.rabbit.replica.shell import Shell
from shalott.broker.rabbit.storage.backing_queue import BackingQueue
from shalott.broker.rabbit.storage.entries import Entry, Expiry

REFUSING = ("reject-publish", "reject-publish-dlx")

DeadLetter = Callable[[Sequence[Content], str, str, str | None], None]


class Limits:
    """The limits of one master's queue. ``dead_letters`` gets (contents, reason, exchange, routing
    key).
    """

    def __init__(self, shell: Shell, queue: BackingQueue, row: QueueRow) -> None:
        self._shell = shell
        self._queue = queue
        self.dead_letters: DeadLetter | None = None
        self._last_use_ns = 0
        self._expiry_timer: tuple[int, asyncio.TimerHandle] | None = None  # monotonic ns
        self._unused_timer_runs = False
        self.is_unused = False  # x-expires has passed
        self.waits_for_head = False  # something is to be dropped that must be read first
        self.update(row)

    def update(self, row: QueueRow) -> None:
        """The row's arguments and policy, as they are now."""
        self._ttl_ms = _number(policy.setting(row, "message-ttl"))
        self._max_length = _number(policy.setting(row, "max-length"))
        self._max_bytes = _number(policy.setting(row, "max-length-bytes"))
        self._overflow = policy.setting(row, "overflow")
        self._expires_ms = _number(policy.setting(row, "expires"))
        exchange = policy.setting(row, "dead-letter-exchange")
        self._dead_letter_exchange = None if exchange is None else str(exchange)
        key = policy.setting(row, "dead-letter-routing-key")
        self._dead_letter_key = None if key is None else str(key)
        self.touch()

    # -- time to live ------------------------------------------------------------------------------

    def ttl_ms(self, content: Content) -> int | None:
        """How long ``content`` may live, if it is published now."""
        if self._ttl_ms is None:
            return content.expiration_ms
        if content.expiration_ms is None:
            return self._ttl_ms
        return min(self._ttl_ms, content.expiration_ms)

    def expiry(self, ttl_ms: int | None) -> Expiry | None:
        """When that is over, from now."""
        return None if ttl_ms is None else Expiry.after(self._shell.env.clock, ttl_ms * 1_000_000)

    def expire(self) -> None:
        """Drop what is overdue at the head."""
        if not self._queue.messages.expiring:
            return
        expired: list[Entry] = []
        now = self._now_ns()
        head = self._queue.messages.peek()
        while head is not None and head.expiry is not None and head.expiry.at_ns <= now:
            if not self._may_drop(head):
                break
            expired += self._queue.drop(1)
            head = self._queue.messages.peek()
        self._dropped(expired, "expired")
        self.watch_head()

    def watch_head(self) -> None:
        """See that it expires in time, though no client may ask for it."""
        if not self._queue.messages.expiring:
            return
        head = self._queue.messages.peek()
        if head is None:
            self.waits_for_head = self._queue.messages.ready > 0
        elif head.expiry is not None:
            self._arm(head.expiry.at_ns)

    @property
    def next_expiry_ns(self) -> int | None:
        """When the timer for the head's time to live fires, on the node's clock; None: it does not
        run.
        """
        return None if self._expiry_timer is None else self._expiry_timer[0]

    @property
    def waits_for_use(self) -> bool:
        """Whether the timer of x-expires runs."""
        return self._unused_timer_runs

    def _arm(self, at_ns: int) -> None:
        """One timer at a time: the earliest that was wanted. Who is early looks again."""
        if self._expiry_timer is not None:
            due_ns, timer = self._expiry_timer
            if due_ns <= at_ns:
                return
            timer.cancel()
        delay_ms = max(0.0, (at_ns - self._now_ns()) / 1_000_000)
        self._expiry_timer = at_ns, self._shell.after(delay_ms + 1, ExpiryTimer())

    # -- length ------------------------------------------------------------------------------------

    def refuses(self, content: Content) -> bool:
        """Whether the queue is full and refuses publishes (x-overflow reject-publish)."""
        if self._overflow not in REFUSING:
            return False
        size = self._queue.messages.ready_bytes + len(content.body)
        too_many = (
            self._max_length is not None and self._queue.messages.ready + 1 > self._max_length
        )
        return too_many or (self._max_bytes is not None and size > self._max_bytes)

    def refused(self, content: Content) -> None:
        """``content`` is refused and, under reject-publish-dlx, passed on."""
        if self._overflow == "reject-publish-dlx":
            self._dead_letter([content], "maxlen")

    def trim(self) -> None:
        """Drop from the head what is too much (x-overflow drop-head)."""
        if self._overflow in REFUSING:
            return
        dropped: list[Entry] = []
        while self._queue.messages.ready and self._is_over():
            if not self._may_drop(self._queue.messages.peek()):
                break
            dropped += self._queue.drop(1)
        self._dropped(dropped, "maxlen")

    def _is_over(self) -> bool:
        if self._max_length is not None and self._queue.messages.ready > self._max_length:
            return True
        return self._max_bytes is not None and self._queue.messages.ready_bytes > self._max_bytes

    def _may_drop(self, head: Entry | None) -> bool:
        """Not before it is known which one it is; and what is passed on is read before."""
        if head is None or (head.content is None and self.passes_on):
            self.waits_for_head = True
            return False
        return True

    def _dropped(self, entries: list[Entry], reason: str) -> None:
        if entries:
            ids = tuple(e.id for e in entries) if self._queue.messages.has_priorities else ()
            self._shell.broadcast(ins.Dropped(self._queue.messages.ready, len(entries), False, ids))
            self._dead_letter([e.content for e in entries if e.content is not None], reason)

    # -- dead letters ------------------------------------------------------------------------------

    @property
    def passes_on(self) -> bool:
        """Whether what is dropped is published elsewhere."""
        return self._dead_letter_exchange is not None and self.dead_letters is not None

    def dead_letter(self, ids: Iterable[int], reason: str) -> None:
        """These are about to be dropped: pass them on, if the queue says where."""
        if not self.passes_on:
            return
        held = [self._queue.messages.get(message_id) for message_id in ids]
        self._dead_letter([h.content for h in held if h is not None], reason)

    def _dead_letter(self, contents: list[Content], reason: str) -> None:
        if contents and self._dead_letter_exchange is not None and self.dead_letters is not None:
            self.dead_letters(contents, reason, self._dead_letter_exchange, self._dead_letter_key)

    # -- disuse ------------------------------------------------------------------------------------

    def touch(self) -> None:
        """The queue is used now: declared, asked for a message, given or losing a consumer."""
        self._last_use_ns = self._now_ns()
        if self._expires_ms is not None and not self._unused_timer_runs:
            self._unused_timer_runs = True
            self._shell.after(self._expires_ms, UnusedTimer())

    def handle(self, message: Message, expire: Callable[[], None], *, in_use: bool) -> bool:
        """Whether ``message`` was one of the timers. ``in_use``: the queue has consumers."""
        match message:
            case ExpiryTimer():
                self._expiry_timer = None
                expire()
            case UnusedTimer():
                self._unused_timer_runs = False
                self._check_use(in_use)
            case _:
                return False
        return True

    def _check_use(self, in_use: bool) -> None:
        if self._expires_ms is None:
            return
        if in_use:
            self.touch()
            return
        idle_ms = (self._now_ns() - self._last_use_ns) / 1_000_000
        if idle_ms >= self._expires_ms:
            self.is_unused = True
        else:
            self._unused_timer_runs = True
            self._shell.after(self._expires_ms - idle_ms, UnusedTimer())

    def _now_ns(self) -> int:
        return self._shell.env.clock.monotonic_ns()


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
