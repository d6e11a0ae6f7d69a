"""What ends a message or a queue without a consumer: time to live, maximum length, disuse; and dead
letters.

The master alone decides; its mirrors are told as drops (rabbit/rabbit_amqqueue_process.erl).
Messages expire from the head only, so one that waits behind a longer-lived one expires late.
Deadlines count from when this process got the message: they start again with a restart of the node,
or with a promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import policy
from shalott.broker.rabbit.mirrored.messages import ExpiryTimer, UnusedTimer
from shalott.broker.rabbit.mirrored.replica import instructions as ins
from shalott.broker.rabbit.mirrored.replica.shell import Shell
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.storage.backing_queue import BackingQueue

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
        self._deadlines: dict[int, int] = {}  # message id -> monotonic ns
        self._last_use_ns = 0
        self._expiry_timer_runs = False
        self._unused_timer_runs = False
        self.is_unused = False  # x-expires has passed
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

    def note(self, content: Content) -> None:
        """``content`` was enqueued now."""
        ttl = self._ttl_of(content)
        if ttl is not None:
            self._deadlines[content.id] = self._now_ns() + ttl * 1_000_000
            self._arm()

    def note_present(self) -> None:
        """The same for everything that is in the queue already."""
        for held in self._queue.contents():
            self.note(held.content)

    def forget(self, ids: Iterable[int]) -> None:
        for message_id in ids:
            self._deadlines.pop(message_id, None)

    def purged(self) -> None:
        """Most messages went: keep the deadlines of those that are left."""
        self._deadlines = {m: at for m, at in self._deadlines.items() if m in self._queue}

    def expire(self) -> None:
        """Drop what is overdue at the head."""
        expired: list[Content] = []
        now = self._now_ns() if self._deadlines else 0
        while self._deadlines and (head := self._queue.peek()) is not None:
            deadline = self._deadlines.get(head.content.id)
            if deadline is None or deadline > now:
                break
            expired.append(head.content)
            self._queue.drop(1)
            del self._deadlines[head.content.id]
        self._dropped(expired, "expired")
        self._arm()

    def _ttl_of(self, content: Content) -> int | None:
        ttls = [ttl for ttl in (self._ttl_ms, content.expiration_ms) if ttl is not None]
        return min(ttls, default=None)

    def _arm(self) -> None:
        if self._expiry_timer_runs or not self._deadlines:
            return
        head = self._queue.peek()
        deadline = None if head is None else self._deadlines.get(head.content.id)
        if deadline is not None:
            self._expiry_timer_runs = True
            delay_ms = max(0.0, (deadline - self._now_ns()) / 1_000_000)
            self._shell.after(delay_ms + 1, ExpiryTimer())

    # -- length ------------------------------------------------------------------------------------

    def refuses(self, content: Content) -> bool:
        """Whether the queue is full and refuses publishes (x-overflow reject-publish)."""
        if self._overflow not in REFUSING:
            return False
        size = self._queue.ready_bytes + len(content.body)
        too_many = self._max_length is not None and self._queue.ready + 1 > self._max_length
        return too_many or (self._max_bytes is not None and size > self._max_bytes)

    def refused(self, content: Content) -> None:
        """``content`` is refused and, under reject-publish-dlx, passed on."""
        if self._overflow == "reject-publish-dlx":
            self._dead_letter([content], "maxlen")

    def trim(self) -> None:
        """Drop from the head what is too much (x-overflow drop-head)."""
        if self._overflow in REFUSING:
            return
        dropped: list[Content] = []
        while self._queue.ready and self._is_over():
            dropped += self._queue.drop(1)
        self.forget(content.id for content in dropped)
        self._dropped(dropped, "maxlen")

    def _is_over(self) -> bool:
        if self._max_length is not None and self._queue.ready > self._max_length:
            return True
        return self._max_bytes is not None and self._queue.ready_bytes > self._max_bytes

    def _dropped(self, contents: list[Content], reason: str) -> None:
        if contents:
            self._shell.broadcast(ins.Dropped(self._queue.ready, len(contents), False))
            self._dead_letter(contents, reason)

    # -- dead letters ------------------------------------------------------------------------------

    def dead_letter(self, ids: Iterable[int], reason: str) -> None:
        """These are about to be dropped: pass them on, if the queue says where."""
        held = [self._queue.get(message_id) for message_id in ids]
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
                self._expiry_timer_runs = False
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
