"""What etcd's manual says may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shalott.api import DocumentedLoss

if TYPE_CHECKING:
    from shalott_etcd.system import EtcdParameters

MANUAL = "https://etcd.io/docs/latest/op-guide/configuration"


def documented_losses(asked: EtcdParameters) -> Sequence[DocumentedLoss]:
    if not asked.unsafe_no_fsync:
        return ()
    return (
        DocumentedLoss(
            name="unsynced",
            text="a majority lost its power, and nothing had been synced",
            manual=MANUAL,
            closed_by="--no-unsafe-no-fsync",
            effects=("loses-unsynced",),
            hits="majority",
            before_ms=None,
        ),
    )
