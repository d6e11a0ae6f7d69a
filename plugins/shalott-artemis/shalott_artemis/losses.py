"""What Artemis' manual says may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shalott.api import DocumentedLoss

if TYPE_CHECKING:
    from shalott_artemis.system import ArtemisParameters

MANUAL = "https://activemq.apache.org/components/artemis/documentation/latest"


def documented_losses(asked: ArtemisParameters) -> Sequence[DocumentedLoss]:
    found = []
    if asked.guard == "none":
        found.append(
            DocumentedLoss(
                name="parted",
                text="a pair that was cut was active on both sides, and one of them is given up",
                manual=f"{MANUAL}/network-isolation.html",
                closed_by="--guard lock",
                effects=("cuts-links", "suspends"),
                after_ms=10_000,  # until the two have found each other again
                successor="another",
            )
        )
    if not asked.journal_sync:
        found.append(
            DocumentedLoss(
                name="unsynced",
                text="it was not on the journal's disk when the power went",
                manual=f"{MANUAL}/persistence.html",
                closed_by="--journal-sync",
                effects=("loses-unsynced",),
                before_ms=None,
            )
        )
    return found
