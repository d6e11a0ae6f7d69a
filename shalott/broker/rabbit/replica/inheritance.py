"""Inheritance: what a mirror leaves to the master that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field

from shalott.broker.rabbit.amqp.queue_protocol import Publish
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica.confirms import DurableMarks


@dataclass(slots=True)
class Inheritance:
    """What a promoted mirror hands to the master that it becomes; empty for one that starts as
    master.

    ``seen``: messages that came by GM and not yet from their channel (published, confirmed,
    discarded or refused). ``owed``: confirms that are due when the message is durable.
    ``deliveries``: what came from channels only.
    """

    seen: dict[int, str] = field(default_factory=dict)
    owed: dict[int, tuple[Pid, int]] = field(default_factory=dict)
    marks: DurableMarks = field(default_factory=DurableMarks)
    senders: tuple[Pid, ...] = ()
    deliveries: list[Publish] = field(default_factory=list)
