"""Planted defects of the mirrored broker, as AMQP's consumers meet them."""

from __future__ import annotations

from tests.planted.consumers_shape import ConsumerMutant
from tests.world.mutants import Edit

_AMQP = "shalott/broker/rabbit/amqp"
_REPLICA = "shalott/broker/rabbit/replica"
_STORAGE = "shalott/broker/rabbit/storage"

# -- what goes back --------------------------------------------------------------------------------

_RETURNS: tuple[ConsumerMutant, ...] = (
    ConsumerMutant(
        name="requeue-at-the-tail",
        breaks="what is given back goes behind everything that waits",
        edits=(
            Edit(
                f"{_STORAGE}/message_order.py",
                "        heapq.heappush(self._requeued, (entry.serial, entry))\n",
                "        self.add(entry)\n",
            ),
        ),
        checkers=("queue-order",),
    ),
    ConsumerMutant(
        name="flag-never-set",
        breaks="what is given back comes again without the flag redelivered",
        edits=(
            Edit(
                f"{_STORAGE}/message_table.py",
                "entry.place, entry.redelivered = Place.READY, redelivered\n",
                "entry.place, entry.redelivered = Place.READY, False\n",
            ),
        ),
        checkers=("redelivered-flag",),
        run="calm",
        in_ci=True,
    ),
    ConsumerMutant(
        name="flag-forgotten-after-promotion",
        breaks="a promoted mirror takes all that it has for never delivered",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                "            self._requeue(self.queue.messages.unacked_ids())\n"
                "        self.limits.expire()\n",
                "            self._requeue(self.queue.messages.unacked_ids())\n"
                "        for entry in self.queue.messages.entries.values():\n"
                "            entry.redelivered = False\n"
                "        self.limits.expire()\n",
            ),
        ),
        checkers=("redelivered-flag",),
    ),
    ConsumerMutant(
        name="unacked-forgotten",
        breaks="what a channel held when it ended is given to nobody",
        edits=(
            Edit(
                f"{_REPLICA}/consumers.py",
                "        return [] if use is None else"
                " [message for message, _ in use.deliveries.values()]\n",
                "        return []\n",
            ),
        ),
        checkers=("consumer-fates", "consumer-liveness"),
        run="calm",
        in_ci=True,
    ),
    ConsumerMutant(
        name="recover-forgets",
        breaks="what a client asks to have again is not given back",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                '        self._tell_queues(self.deliveries.settle_all(), "requeue")\n',
                "        self.deliveries.settle_all()\n",
            ),
        ),
        checkers=("consumer-liveness", "queue-order", "consumer-fates"),
    ),
    ConsumerMutant(
        name="given-back-at-cancel",
        breaks="what a cancelled consumer holds is given to another while it works on it",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                "                    self._user_left()\n"
                "                    self.dispatch.deliver_ready()",
                "                    self._user_left()\n"
                "                    use = self.consumers._channels.get(channel)\n"
                "                    held = use.deliveries.values() if use else ()\n"
                "                    self._requeue([message for message, _ in held])\n"
                "                    self.dispatch.deliver_ready()",
            ),
        ),
        checkers=("delivered-once-at-a-time", "acked-again"),
        run="calm",
    ),
)

# -- settling --------------------------------------------------------------------------------------

_SETTLING: tuple[ConsumerMutant, ...] = (
    ConsumerMutant(
        name="ack-of-another-tag",
        breaks="an acknowledgement settles the oldest delivery, not the one that it names",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                "        tags: list[int] = [tag]\n",
                "        tags: list[int] = [next(iter(self._unsettled))]\n",
            ),
        ),
        checkers=("acked-again", "consumer-fates"),
        run="calm",
    ),
    ConsumerMutant(
        name="multiple-one-too-many",
        breaks="an acknowledgement of several takes the next one as well",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                "                if candidate > tag:\n",
                "                if candidate > tag + 1:\n",
            ),
        ),
        checkers=("consumer-fates", "prefetch"),
    ),
    ConsumerMutant(
        name="multiple-one-too-few",
        breaks="an acknowledgement of several leaves the last one out",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                "                if candidate > tag:\n",
                "                if candidate >= tag:\n",
            ),
        ),
        checkers=("acked-again", "consumer-liveness"),
        run="calm",
    ),
    ConsumerMutant(
        name="rejected-and-requeued",
        breaks="a nack without requeue puts the message back",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                '        outcome = "requeue" if method.requeue else "reject"\n'
                "        await self._settle(method.delivery_tag, multiple=method.multiple,"
                " outcome=outcome)\n",
                '        outcome = "requeue"\n'
                "        await self._settle(method.delivery_tag, multiple=method.multiple,"
                " outcome=outcome)\n",
            ),
        ),
        checkers=("acked-again", "consumer-fates"),
    ),
    ConsumerMutant(
        name="prefetch-not-decremented",
        breaks="a consumer's room does not come back when it acknowledges",
        edits=(
            Edit(
                f"{_REPLICA}/consumers.py",
                "                consumer.unsettled -= 1\n",
                "                consumer.unsettled -= 0\n",
            ),
        ),
        checkers=("consumer-liveness",),
        run="calm",
    ),
    ConsumerMutant(
        name="prefetch-one-too-many",
        breaks="a consumer holds one more than it asked for",
        edits=(
            Edit(
                f"{_REPLICA}/consumers.py",
                "consumer.unsettled >= request.prefetch:",
                "consumer.unsettled > request.prefetch:",
            ),
        ),
        checkers=("prefetch",),
        run="calm",
    ),
    ConsumerMutant(
        name="channel-limit-ignored",
        breaks="a channel's limit holds for each queue by itself, and for none after a failover",
        edits=(
            Edit(
                f"{_AMQP}/deliveries.py",
                "        return 0 < self.prefetch <= self.deliveries.counted\n",
                "        return False\n",
            ),
            Edit(
                f"{_AMQP}/consuming.py",
                "        self._unsettled.send_limit(row.pid)\n        try:\n",
                "        self._unsettled._limits[row.pid] = self._unsettled.prefetch\n"
                "        try:\n",
            ),
        ),
        checkers=("prefetch",),
    ),
    ConsumerMutant(
        name="acks-not-mirrored",
        breaks="a master tells its mirrors of no acknowledgement: they deliver everything again",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                "            self.shell.broadcast(ins.Acked(tuple(acked)))\n",
                "            pass\n",
            ),
        ),
        checkers=("acked-again",),
    ),
)

# -- dead letters, and what a queue drops ----------------------------------------------------------

_POLICIES: tuple[ConsumerMutant, ...] = (
    ConsumerMutant(
        name="dead-letter-twice",
        breaks="what dies is a dead letter two times",
        edits=(
            Edit(
                f"{_AMQP}/dead_letters.py",
                "        for content in message.contents:\n",
                "        for content in message.contents * 2:\n",
            ),
        ),
        checkers=("consumer-fates",),
    ),
    ConsumerMutant(
        name="dead-letter-forgotten",
        breaks="the first of those that die together is no dead letter",
        edits=(
            Edit(
                f"{_AMQP}/dead_letters.py",
                "        for content in message.contents:\n",
                "        for content in message.contents[1:]:\n",
            ),
        ),
        checkers=("consumer-fates",),
    ),
    ConsumerMutant(
        name="dead-letters-end-at-promotion",
        breaks="what dies under a promoted master is no dead letter",
        edits=(
            Edit(
                "shalott/broker/rabbit/queue_process/roles.py",
                "    if shell.context.dead_letters is not None:\n",
                '    if shell.context.dead_letters is not None and started_as != "promoted":\n',
            ),
        ),
        checkers=("consumer-fates",),
    ),
    ConsumerMutant(
        name="wrong-reason-of-death",
        breaks="x-death says of what expired that the queue was full",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                '        self._dropped(expired, "expired")\n',
                '        self._dropped(expired, "maxlen")\n',
            ),
        ),
        checkers=("consumer-fates",),
    ),
    ConsumerMutant(
        name="ttl-too-short",
        breaks="messages expire when two thirds of their time are over",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "Expiry.after(self._shell.env.clock, ttl_ms * 1_000_000)",
                "Expiry.after(self._shell.env.clock, ttl_ms * 667_000)",
            ),
        ),
        checkers=("ttl",),
    ),
    ConsumerMutant(
        name="ttl-by-the-wrong-clock",
        breaks="deadlines of the monotonic clock are compared with the wall clock",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "        expired: list[Entry] = []\n        now = self._now_ns()\n",
                "        expired: list[Entry] = []\n"
                "        now = self._shell.env.clock.wall_ns()\n",
            ),
        ),
        checkers=("ttl",),
    ),
    ConsumerMutant(
        name="ttl-never",
        breaks="nothing expires",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "        if not self._queue.messages.expiring:\n"
                "            return\n        expired",
                "        if self._queue.messages.expiring >= 0:\n"
                "            return\n        expired",
            ),
        ),
        checkers=("ttl",),
    ),
    ConsumerMutant(
        name="ttl-forgotten-at-promotion",
        breaks="what a mirror has lives for ever once it is promoted",
        edits=(
            Edit(
                f"{_REPLICA}/mirror.py",
                "                expiry = None if ttl_ms is None else"
                " self._expiry(ttl_ms * 1_000_000)\n",
                "                expiry = None\n",
            ),
            Edit(
                f"{_REPLICA}/mirror.py",
                "            expiry = None if left_ns is None else self._expiry(left_ns)\n",
                "            expiry = None\n",
            ),
        ),
        checkers=("ttl",),
    ),
    ConsumerMutant(
        name="length-limit-too-high",
        breaks="a queue keeps a few messages more than it may",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "self._queue.messages.ready > self._max_length:",
                "self._queue.messages.ready > self._max_length + 3:",
            ),
        ),
        checkers=("max-length",),
    ),
    ConsumerMutant(
        name="length-limit-too-low",
        breaks="a queue drops messages while there is room for a few more",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "self._queue.messages.ready > self._max_length:",
                "self._queue.messages.ready > self._max_length - 3:",
            ),
        ),
        checkers=("max-length", "consumer-fates"),
    ),
    ConsumerMutant(
        name="drops-the-newest",
        breaks="a queue that is full drops what came last instead of the head",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "            dropped += self._queue.drop(1)\n"
                '        self._dropped(dropped, "maxlen")\n',
                "            held = self._queue.drop(self._queue.messages.ready,"
                " ack_required=True)\n"
                "            self._queue.requeue([e.id for e in held[:-1]], redelivered=False)\n"
                "            self._queue.ack([held[-1].id])\n"
                "            dropped += held[-1:]\n"
                '        self._dropped(dropped, "maxlen")\n',
            ),
            Edit(
                f"{_REPLICA}/limits.py",
                "            ids = tuple(e.id for e in entries) if"
                " self._queue.messages.has_priorities"
                " else ()\n",
                "            ids = tuple(e.id for e in entries)\n",
            ),
            Edit(
                f"{_REPLICA}/mirror.py",
                "        count = 0\n        for message_id in instruction.ids:\n",
                "        if not instruction.ack_required:\n"
                "            held = self.queue.drop(self.queue.messages.ready, ack_required=True)\n"
                "            gone = dict.fromkeys(instruction.ids)\n"
                "            kept = [e.id for e in held if e.id not in gone]\n"
                "            self.queue.requeue(kept, redelivered=False)\n"
                "            return len(self.queue.ack([e.id for e in held if e.id in gone]))\n"
                "        count = 0\n        for message_id in instruction.ids:\n",
            ),
        ),
        checkers=("queue-order", "max-length", "consumer-fates"),
    ),
    ConsumerMutant(
        name="refused-and-confirmed",
        breaks="a full queue that refuses a message confirms it",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                "            self.confirms.refuse(message)\n            return\n",
                "            self.confirms.owe(message)\n"
                "            self.confirms.confirm(content.id)\n            return\n",
            ),
            Edit(
                f"{_REPLICA}/limits.py",
                '        if self._overflow == "reject-publish-dlx":\n',
                '        if self._overflow == "never":\n',
            ),
        ),
        checkers=("consumer-fates",),
    ),
    ConsumerMutant(
        name="expires-in-use",
        breaks="a queue is deleted for want of use while it has consumers",
        edits=(
            Edit(
                f"{_REPLICA}/limits.py",
                "        if in_use:\n            self.touch()\n            return\n",
                "        if in_use:\n            self.is_unused = True\n            return\n",
            ),
        ),
        checkers=("cancel",),
    ),
)

# -- who is served ---------------------------------------------------------------------------------

_SERVED: tuple[ConsumerMutant, ...] = (
    ConsumerMutant(
        name="cancelled-and-served",
        breaks="a consumer is served after its cancellation was answered",
        edits=(
            Edit(
                f"{_REPLICA}/consumers.py",
                "        found = self._consumers.pop((channel, tag), None) is not None\n",
                "        found = (channel, tag) in self._consumers\n",
            ),
            Edit(
                f"{_AMQP}/consuming.py",
                "            self._drop(message.consumer)\n        await self._send_cancel_ok",
                "            pass\n        await self._send_cancel_ok",
            ),
        ),
        checkers=("cancel",),
    ),
    ConsumerMutant(
        name="cancel-on-failover-ignored",
        breaks="consumers that asked to be cancelled at a failover are subscribed again",
        edits=(
            Edit(
                f"{_AMQP}/consuming.py",
                '                if reason == "normal" or consumer.request.cancel_on_failover:\n',
                '                if reason == "normal":\n',
            ),
        ),
        checkers=("cancel",),
    ),
    ConsumerMutant(
        name="not-resubscribed",
        breaks="consumers stay without a master when theirs has died",
        edits=(
            Edit(
                f"{_AMQP}/consuming.py",
                "            if consumer.process is None and not consumer.cancelling:\n"
                "                await self._resubscribe(consumer)\n",
                "            pass\n",
            ),
        ),
        checkers=("consumer-liveness",),
    ),
    ConsumerMutant(
        name="single-active-twice",
        breaks="after a failover every consumer of a single active one's queue is served",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                'single_active=row.arguments.get("x-single-active-consumer") is True,\n',
                'single_active=row.arguments.get("x-single-active-consumer") is True\n'
                "            and not heritage.senders,\n",
            ),
        ),
        checkers=("single-active",),
    ),
    ConsumerMutant(
        name="exclusive-not-after-failover",
        breaks="an exclusive consumer is not alone any more when its queue's master has died",
        edits=(
            Edit(
                f"{_AMQP}/consuming.py",
                "                row.pid, consumer.request, timeout_ms=None,"
                " caller=self._context.pid\n",
                "                row.pid, __import__('msgspec').structs.replace("
                "consumer.request, exclusive=False),\n"
                "                timeout_ms=None, caller=self._context.pid\n",
            ),
            Edit(
                f"{_REPLICA}/consumers.py",
                "        if taken or (request.exclusive and self._consumers):\n",
                "        if taken:\n",
            ),
        ),
        checkers=("exclusive",),
    ),
    ConsumerMutant(
        name="priorities-reversed",
        breaks="the lowest priority goes first",
        edits=(
            Edit(
                f"{_STORAGE}/message_order.py",
                "        for line in reversed(self._lines):\n            head =",
                "        for line in self._lines:\n            head =",
            ),
        ),
        checkers=("priority",),
    ),
    ConsumerMutant(
        name="consumer-priority-ignored",
        breaks="consumers take turns whatever their priority",
        edits=(
            Edit(
                f"{_REPLICA}/consumers.py",
                "                best is None or consumer.request.priority >"
                " self._consumers[best].request.priority\n",
                "                best is None\n",
            ),
        ),
        checkers=("consumer-priority",),
    ),
    ConsumerMutant(
        name="promoted-without-the-unacked",
        breaks="what consumers of the dead master held is given to nobody",
        edits=(
            Edit(
                f"{_REPLICA}/master.py",
                "            self._requeue(self.queue.messages.unacked_ids())\n"
                "        self.limits.expire()\n",
                "            self._requeue([])\n        self.limits.expire()\n",
            ),
        ),
        checkers=("consumer-fates", "consumer-liveness"),
        run="kill",
        in_ci=True,
    ),
)

AMQP: tuple[ConsumerMutant, ...] = (*_RETURNS, *_SETTLING, *_POLICIES, *_SERVED)
