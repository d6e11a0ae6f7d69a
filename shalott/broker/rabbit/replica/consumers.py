"""The consumers of a master, their turns, their limits, and what they have not settled.

After rabbit/rabbit_queue_consumers.erl: higher priority first, round robin among equals; a consumer
is ready while it and its channel have fewer unsettled deliveries than their prefetch limits allow
(0 is no limit), and while the channel has written to its client's socket most of what it was sent
(``UNWRITTEN_MAX``: rabbit_queue_consumers.erl, UNSENT_MESSAGE_LIMIT). With x-single-active-consumer
one consumer gets everything until it leaves; the next is that of the highest priority that has
waited longest. A newcomer of higher priority does not take its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shalott.broker.rabbit.amqp.queue_protocol import Consume
from shalott.broker.rabbit.processes.messages import Pid

UNWRITTEN_MAX = 200


@dataclass(slots=True)
class Consumer:
    request: Consume
    unsettled: int = 0


@dataclass(slots=True)
class ChannelUse:
    """A channel that consumes, or holds deliveries."""

    prefetch: int = 0
    paused: bool = False  # it has no room for what other queues send it
    unwritten: int = 0  # deliveries that it may still have before its socket
    counted: int = 0  # unsettled deliveries to its consumers (not to basic.get)
    # ack id -> (message id, its consumer)
    deliveries: dict[int, tuple[int, Consumer | None]] = field(default_factory=dict)


class Consumers:
    def __init__(self, first_ack_id: int, *, single_active: bool = False) -> None:
        self._ack_id = first_ack_id
        self._single_active = single_active
        self._active: tuple[Pid, str] | None = None
        self._consumers: dict[tuple[Pid, str], Consumer] = {}  # in turn: the next first
        self.channels: dict[Pid, ChannelUse] = {}
        self.had_any = False
        self.in_question: tuple[Pid, int] | None = None

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._consumers.values())

    # -- coming and going --------------------------------------------------------------------------

    def add(self, request: Consume) -> bool:
        """False if exclusive use clashes, with other consumers or with x-single-active-consumer."""
        if request.exclusive and self._single_active:
            return False
        taken = any(c.request.exclusive for c in self._consumers.values())
        if taken or (request.exclusive and self._consumers):
            return False
        self._consumers[request.channel, request.tag] = Consumer(request)
        self._elect()
        self.had_any = True
        return True

    def cancel(self, channel: Pid, tag: str) -> bool:
        found = self._consumers.pop((channel, tag), None) is not None
        self._elect()
        return found

    def set_limit(self, channel: Pid, prefetch: int) -> None:
        self._channel(channel).prefetch = prefetch

    def pause(self, channel: Pid) -> bool:
        """Nothing more for it until ``resume``; whether that is news."""
        use = self._channel(channel)
        was, use.paused = use.paused, True
        return not was

    def resume(self, channel: Pid) -> None:
        self._channel(channel).paused = False

    @property
    def single_active(self) -> tuple[Pid, str] | None:
        """Who is it, channel and tag; None if none is, or each may be served."""
        return self._active if self._single_active else None

    def drop_channel(self, channel: Pid) -> list[int]:
        """The channel is dead: forget its consumers; returns what it had not settled."""
        for key in [key for key in self._consumers if key[0] == channel]:
            del self._consumers[key]
        self._elect()
        if self.in_question is not None and self.in_question[0] == channel:
            self.in_question = None
        use = self.channels.pop(channel, None)
        return [] if use is None else [message for message, _ in use.deliveries.values()]

    def _elect(self) -> None:
        """See that one is active, if only one may be."""
        if self._single_active and self._active not in self._consumers:
            self._active = max(
                self._consumers, key=lambda key: self._consumers[key].request.priority, default=None
            )

    def _channel(self, channel: Pid) -> ChannelUse:
        return self.channels.setdefault(channel, ChannelUse())

    # -- deliveries --------------------------------------------------------------------------------

    def next_ready(self) -> Consumer | None:
        """Whose turn it is; that one then goes to the end of the line."""
        if self.in_question is not None:
            return None
        if self._single_active:
            active = None if self._active is None else self._consumers[self._active]
            return active if active is not None and self._is_ready(active) else None
        best: tuple[Pid, str] | None = None
        for key, consumer in self._consumers.items():
            if self._is_ready(consumer) and (
                best is None or consumer.request.priority > self._consumers[best].request.priority
            ):
                best = key
        if best is None:
            return None
        consumer = self._consumers.pop(best)
        self._consumers[best] = consumer
        return consumer

    def has_ready(self) -> bool:
        """Whether ``next_ready`` would name one. No consumer's turn is over by that."""
        if self.in_question is not None:
            return False
        if self._single_active:
            active = None if self._active is None else self._consumers[self._active]
            return active is not None and self._is_ready(active)
        return any(self._is_ready(consumer) for consumer in self._consumers.values())

    def _is_ready(self, consumer: Consumer) -> bool:
        request = consumer.request
        use = self.channels.get(request.channel)
        if use is not None and use.unwritten >= UNWRITTEN_MAX:
            return False
        if use is None or request.no_ack:
            return request.no_ack or not request.prefetch or consumer.unsettled < request.prefetch
        if request.prefetch and consumer.unsettled >= request.prefetch:
            return False
        return not use.paused and (not use.prefetch or use.counted < use.prefetch)

    def delivered(self, channel: Pid, message_id: int, consumer: Consumer | None) -> int:
        """Note a delivery to be settled (``consumer`` None: basic.get); returns its ack id.

        A channel whose limit counts what other queues send it may have no room. So the delivery is
        in question until the channel has answered, and nothing overtakes it, as the original's
        queue waits for the channel's limiter (rabbit_limiter:can_send).
        """
        ack_id = self.next_ack_id()
        use = self._channel(channel)
        use.deliveries[ack_id] = (message_id, consumer)
        if consumer is not None:
            consumer.unsettled += 1
            use.counted += 1
            if use.prefetch:
                self.in_question = channel, ack_id
        return ack_id

    def sent(self, channel: Pid) -> None:
        """A delivery to one of its consumers."""
        self._channel(channel).unwritten += 1

    def written(self, channel: Pid, count: int) -> None:
        if channel in self.channels:
            self.channels[channel].unwritten -= count

    def answered(self, channel: Pid, ack_id: int) -> None:
        if self.in_question == (channel, ack_id):
            self.in_question = None

    def next_ack_id(self) -> int:
        self._ack_id += 1
        return self._ack_id

    def messages_of(self, channel: Pid, ack_ids: tuple[int, ...]) -> list[int]:
        """Messages that these deliveries are of, before they are settled."""
        use = self.channels.get(channel)
        held = {} if use is None else use.deliveries
        return [held[ack_id][0] for ack_id in ack_ids if ack_id in held]

    def settle(self, channel: Pid, ack_ids: tuple[int, ...]) -> list[int]:
        """Messages that these deliveries were of; unknown ids (of a former master, say) are
        ignored.
        """
        use = self.channels.get(channel)
        if use is None:
            return []
        messages = []
        for ack_id in ack_ids:
            self.answered(channel, ack_id)
            delivery = use.deliveries.pop(ack_id, None)
            if delivery is None:
                continue
            message, consumer = delivery
            messages.append(message)
            if consumer is not None:  # it may be cancelled, and another one have its tag
                use.counted -= 1
                consumer.unsettled -= 1
        return messages
