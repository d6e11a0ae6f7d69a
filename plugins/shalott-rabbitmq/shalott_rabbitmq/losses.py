"""What RabbitMQ's manual says may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shalott.api import DocumentedLoss

if TYPE_CHECKING:
    from shalott_rabbitmq.system import Parameters

MANUAL = "https://www.rabbitmq.com/docs/classic-queues"


def documented_losses(asked: Parameters) -> Sequence[DocumentedLoss]:
    """Classic queues are for where data safety is no priority: nobody else has what they have."""
    if asked.queue_type != "classic":
        return ()
    return (
        DocumentedLoss(
            name="unsynced",
            text="the one node that had it lost its power before it was on its disk",
            manual=MANUAL,
            closed_by="--queue-type quorum",
            effects=("loses-unsynced",),
            before_ms=None,
        ),
    )
