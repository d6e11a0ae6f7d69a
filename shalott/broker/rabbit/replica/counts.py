"""Counts: what clients have done with a queue since this process serves it, as RabbitMQ's
message_stats count it (rabbit_core_metrics.erl).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Messages. ``redeliver``: those of the deliveries and gets that are marked so."""

    publish: int = 0
    deliver: int = 0
    deliver_no_ack: int = 0
    get: int = 0
    get_no_ack: int = 0
    get_empty: int = 0
    redeliver: int = 0
    ack: int = 0

    def delivered(self, *, no_ack: bool, redelivered: bool) -> None:
        self.deliver += not no_ack
        self.deliver_no_ack += no_ack
        self.redeliver += redelivered

    def got(self, *, no_ack: bool, redelivered: bool) -> None:
        self.get += not no_ack
        self.get_no_ack += no_ack
        self.redeliver += redelivered

    def told(self) -> dict[str, int]:
        """By the names of the management API."""
        return {
            "publish": self.publish,
            "deliver": self.deliver,
            "deliver_no_ack": self.deliver_no_ack,
            "get": self.get,
            "get_no_ack": self.get_no_ack,
            "get_empty": self.get_empty,
            "deliver_get": self.deliver + self.deliver_no_ack + self.get + self.get_no_ack,
            "redeliver": self.redeliver,
            "ack": self.ack,
        }
