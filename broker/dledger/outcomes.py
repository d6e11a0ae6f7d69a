"""What becomes of a proposal: DLedger's result codes, and what a broker makes of them.

Sources: dledger/protocol/DLedgerResponseCode.java (reference 2.3.2), the put path of
store/dledger/DLedgerCommitLog.java (2.3.6).
"""

from __future__ import annotations

from broker.errors import BrokerError, DiskFull
from broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout
from broker.remoting.codes import DLedgerCode
from broker.rocketmq.replica import PutStatus


def status_of(code: DLedgerCode) -> PutStatus:
    match code:
        case DLedgerCode.SUCCESS:
            return PutStatus.PUT_OK
        case (
            DLedgerCode.INCONSISTENT_LEADER
            | DLedgerCode.NOT_LEADER
            | DLedgerCode.LEADER_NOT_READY
            | DLedgerCode.LEADER_TRANSFERRING
            | DLedgerCode.DISK_FULL
        ):
            return PutStatus.SERVICE_NOT_AVAILABLE
        case DLedgerCode.WAIT_QUORUM_ACK_TIMEOUT:
            return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        case DLedgerCode.LEADER_PENDING_FULL:
            return PutStatus.OS_PAGE_CACHE_BUSY
        case _:
            return PutStatus.UNKNOWN_ERROR


def code_of(error: BrokerError) -> DLedgerCode:
    """Of what a Raft group raised. A proposal that another leader's entry replaced (TERM_CHANGED)
    does not exist, and upstream's client hears of it as of a member that is not the leader.
    """
    match error:
        case NotLeader() | ProposalLost():
            return DLedgerCode.NOT_LEADER
        case Busy():
            is_full = "LEADER_PENDING_FULL" in str(error)
            return DLedgerCode.LEADER_PENDING_FULL if is_full else DLedgerCode.LEADER_TRANSFERRING
        case ProposalTimeout():
            return DLedgerCode.WAIT_QUORUM_ACK_TIMEOUT
        case DiskFull():
            return DLedgerCode.DISK_FULL
        case _:
            return DLedgerCode.DISK_ERROR
