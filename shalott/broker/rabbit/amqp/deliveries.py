"""Deliveries: what a client has been given and has not settled yet. Pure bookkeeping of one
channel.

A delivery whose queue process died is *stale*: the queue will deliver the message again from
elsewhere, so settling the old tag means nothing, but it is no error either, because the client
could not know.
"""

from __future__ import annotations

from collections.abc import Iterable

from shalott.broker.rabbit.amqp.errors import PRECONDITION_FAILED, AmqpError
from shalott.broker.rabbit.processes.messages import Pid


class Delivery:
    """One unsettled delivery. ``process`` None: stale."""

    __slots__ = ("ack_id", "counted", "process")

    def __init__(self, process: Pid, ack_id: int, *, counted: bool) -> None:
        self.process: Pid | None = process
        self.ack_id = ack_id
        self.counted = counted  # against the channel's global prefetch


class Deliveries:
    """Delivery tags count up from 1 and are never reused."""

    def __init__(self) -> None:
        self._unsettled: dict[int, Delivery] = {}  # in order of tag
        self._last_tag = 0
        self.counted = 0

    def __len__(self) -> int:
        return len(self._unsettled)

    def next_tag(self) -> int:
        self._last_tag += 1
        return self._last_tag

    def add(self, tag: int, delivery: Delivery) -> None:
        self._unsettled[tag] = delivery
        self.counted += delivery.counted

    def settle(self, tag: int, *, multiple: bool) -> list[Delivery]:
        """Take out what the client settles. Raises AmqpError(406) if ``tag`` is not unsettled."""
        if tag == 0 and multiple:
            return self.settle_all()
        if tag not in self._unsettled:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        tags: list[int] = [tag]
        if multiple:
            tags = []
            for candidate in self._unsettled:
                if candidate > tag:
                    break
                tags.append(candidate)
        return self._remove(tags)

    def settle_all(self) -> list[Delivery]:
        return self._remove(list(self._unsettled))

    def process_down(self, process: Pid) -> None:
        """Everything from ``process`` is stale now."""
        for delivery in self._unsettled.values():
            if delivery.process == process:
                delivery.process = None
                self.counted -= delivery.counted
                delivery.counted = False

    def _remove(self, tags: Iterable[int]) -> list[Delivery]:
        removed = [self._unsettled.pop(tag) for tag in tags]
        self.counted -= sum(delivery.counted for delivery in removed)
        return removed


def by_process(deliveries: Iterable[Delivery]) -> dict[Pid, tuple[int, ...]]:
    """The ack ids that each living queue process is to hear of, in order of delivery."""
    grouped: dict[Pid, list[int]] = {}
    for delivery in deliveries:
        if delivery.process is not None:
            grouped.setdefault(delivery.process, []).append(delivery.ack_id)
    return {process: tuple(ack_ids) for process, ack_ids in grouped.items()}
