"""Replica: what a system adds to a store: who may write, when a write counts, who the master is.

Three implementations, in broker/rocket: ha (master and slaves by configuration), dledger (Raft) and
replicas (controllers). Request processing (broker/rocket/processor) knows no more than this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shalott.broker.rocket.commitlog.api import Message, PutStage, Store

ReplicaRole = Literal["master", "slave", "none"]


class PutStatus(enum.Enum):
    """PutMessageStatus, those that a replica can end with."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  # stored here: nobody knows
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"  # stored here: nobody knows
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"  # stored here: nobody knows
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


@dataclass(frozen=True, slots=True)
class PutResult:
    """``stage`` is None when nothing was appended: the messages certainly do not exist.

    ``holders``: which other brokers are known to have them, by id, where there is a SyncStateSet.
    """

    status: PutStatus
    stage: PutStage | None = None
    reason: str = ""
    holders: tuple[int, ...] | None = None


class Replica(Protocol):
    """This broker's share in its replication group."""

    on_change: Callable[[], None]  # the node sets it before ``start``; call it, synchronously,
    # after every change of role, broker id, epoch or master: the node registers anew at once

    @property
    def store(self) -> Store: ...

    @property
    def role(self) -> ReplicaRole: ...

    @property
    def broker_id(self) -> int:
        """Under which it registers at name servers: 0 is the master; -1: not at all now."""
        ...

    @property
    def epoch(self) -> int:
        """Of the master that it is or follows: a term, a master epoch, 0 where there is none."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def put(self, messages: list[Message]) -> PutResult:
        """Append messages of one (topic, queue) and wait until they count, or until time is up."""
        ...

    async def readable(self) -> bool:
        """Whether this broker may answer reads now; a system with ReadIndex asks its quorum."""
        ...

    def claim(self) -> dict[str, Any]:
        """What it believes, for observations.

        {"group", "role", "epoch", "master", "mirrors": [...], "synchronised": [...], "state"} and
        the keys of its own system; nodes by name.
        """
        ...

    def ha_status(self) -> dict[str, Any]:
        """The body of GET_BROKER_HA_STATUS (907)."""
        ...
