"""What becomes of a proposal: DLedger's result codes, and what a broker makes of them.

Sources: dledger/protocol/DLedgerResponseCode.java and the put path of
store/dledger/DLedgerCommitLog.java; docs/protocols.md 5.2, 5.6.
"""

from __future__ import annotations

from shalott.broker.base.errors import BrokerError, DiskFull
from shalott.broker.raft.codes import RaftCode
from shalott.broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout
from shalott.broker.rocket.commitlog.replica import PutStatus


def status_of(code: RaftCode) -> PutStatus:
    match code:
        case RaftCode.SUCCESS:
            return PutStatus.PUT_OK
        case (
            RaftCode.INCONSISTENT_LEADER
            | RaftCode.NOT_LEADER
            | RaftCode.LEADER_NOT_READY
            | RaftCode.LEADER_TRANSFERRING
            | RaftCode.DISK_FULL
        ):
            return PutStatus.SERVICE_NOT_AVAILABLE
        case RaftCode.WAIT_QUORUM_ACK_TIMEOUT:
            return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        case RaftCode.LEADER_PENDING_FULL:
            return PutStatus.OS_PAGE_CACHE_BUSY
        case _:
            return PutStatus.UNKNOWN_ERROR


def code_of(error: BrokerError) -> RaftCode:
    """Of what a Raft group raised. A proposal that another leader's entry replaced (TERM_CHANGED)
    does not exist, and upstream's client hears of it as of a member that is not the leader.
    """
    match error:
        case NotLeader() | ProposalLost():
            return RaftCode.NOT_LEADER
        case Busy():
            is_full = "LEADER_PENDING_FULL" in str(error)
            return RaftCode.LEADER_PENDING_FULL if is_full else RaftCode.LEADER_TRANSFERRING
        case ProposalTimeout():
            return RaftCode.WAIT_QUORUM_ACK_TIMEOUT
        case DiskFull():
            return RaftCode.DISK_FULL
        case _:
            return RaftCode.DISK_ERROR
