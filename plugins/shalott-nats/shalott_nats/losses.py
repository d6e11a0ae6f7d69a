"""What NATS' manual says may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shalott.api import DocumentedLoss

if TYPE_CHECKING:
    from shalott_nats.system import NatsParameters

MANUAL = "https://docs.nats.io/nats-concepts/jetstream"


def documented_losses(asked: NatsParameters) -> Sequence[DocumentedLoss]:
    """A quorum of memories acknowledges, and files are synced so often."""
    every = asked.sync_interval
    if every == "always":
        return ()
    number = float(every.rstrip("ms"))
    unit_ms = {"ms": 1, "s": 1000, "m": 60_000}[every.lstrip("0123456789")]
    return (
        DocumentedLoss(
            name="unsynced",
            text="a majority lost its power before it synced what it had acknowledged",
            manual=f"{MANUAL}#replication-and-sync-behavior",
            closed_by="--sync-interval always",
            effects=("loses-unsynced",),
            hits="majority",
            before_ms=number * unit_ms,
        ),
    )
