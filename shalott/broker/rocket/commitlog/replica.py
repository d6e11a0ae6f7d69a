"""Replica: what a system adds to a store: who may write, when a write counts, who the master is.

Three implementations, in broker/rocket: ha (master and slaves by configuration), dledger (Raft) and
replicas (controllers). Request processing (broker/rocket/processor) knows no more than this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NotRequired, Protocol, TypedDict

from shalott.broker.rocket.commitlog.api import Message, PutStage, Store

ReplicaRole = Literal["master", "slave", "none"]


class PutStatus(enum.Enum):
    """PutMessageStatus, those that a replica can end with."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"  # stored here: the outcome is unknown
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"  # stored here: the outcome is unknown
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"  # stored here: the outcome is unknown
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


class ReplicaClaim(TypedDict):
    """What a broker believes, for observations; nodes by name. Each system has keys of its own."""

    group: str
    role: ReplicaRole
    epoch: int
    master: str
    mirrors: list[str]
    synchronised: list[str]
    state: str
    agreed: NotRequired[bool]  # master-slave
    committed_index: NotRequired[int]  # DLedger
    end_index: NotRequired[int]
    sync_state_set: NotRequired[list[int]]  # controller
    sync_state_set_epoch: NotRequired[int]
    broker_id: NotRequired[int]
    max_offset: NotRequired[int]
    confirm_offset: NotRequired[int]


class HaConnectionInfo(TypedDict):
    """One slave, as its master sees it."""

    addr: str
    slave: NotRequired[str]
    slaveAckOffset: int
    diff: int
    inSync: bool
    transferredByteInSecond: int
    transferredBytes: NotRequired[int]
    transferFromWhere: int


class HaClientInfo(TypedDict, total=False):
    """A slave's own connection."""

    master: str  # the node, where it is known
    masterAddr: str
    maxOffset: int
    lastReadTimestamp: int
    lastWriteTimestamp: int
    transferredByteInSecond: int
    transferredBytes: int
    masterFlushOffset: int
    isActivated: bool
    reason: str


class HaStatus(TypedDict):
    """The body of GET_BROKER_HA_STATUS (907)."""

    node: NotRequired[str]  # which node says so
    master: bool
    masterCommitLogMaxOffset: int
    inSyncSlaveNums: int
    haConnectionInfo: list[HaConnectionInfo]
    haClientRuntimeInfo: NotRequired[HaClientInfo | None]
    refused: NotRequired[list[dict[str, str]]]


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

    def claim(self) -> ReplicaClaim: ...

    def ha_status(self) -> HaStatus: ...
