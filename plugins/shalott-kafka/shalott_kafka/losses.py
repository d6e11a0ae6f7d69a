"""What Kafka's manual says may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shalott.api import DocumentedLoss, Effect

if TYPE_CHECKING:
    from shalott_kafka.settings import KafkaParameters

MANUAL = "https://kafka.apache.org/documentation/"
FAILS: tuple[Effect, ...] = ("ends-processes", "suspends", "cuts-links")


def documented_losses(asked: KafkaParameters) -> Sequence[DocumentedLoss]:
    found = []
    if asked.acks == "1":
        found.append(
            DocumentedLoss(
                name="acks-1",
                text="a leader acknowledged what its successor had not copied",
                manual=f"{MANUAL}#producerconfigs_acks",
                closed_by="--acks all",
                effects=FAILS,
                before_ms=asked.replica_lag_ms,
                after_ms=asked.session_timeout_ms,
                successor="another",
            )
        )
    if asked.unclean_election:
        found.append(
            DocumentedLoss(
                name="unclean",
                text="a copy that was out of sync became the leader",
                manual=f"{MANUAL}#design_uncleanleader",
                closed_by="--no-unclean-election",
                effects=FAILS,
                before_ms=None,
                successor="another",
            )
        )
    if asked.flush_messages != 1:
        alone = asked.min_insync_replicas == 1
        found.append(
            DocumentedLoss(
                name="unsynced",
                text="those in sync had it in memory when they lost their power",
                manual=f"{MANUAL}#design_filesystem",
                closed_by="--flush-messages 1",
                effects=("loses-unsynced",),
                hits="master" if alone else "majority",
                before_ms=None,
            )
        )
    return found
