"""What becomes of a proposal: DLedger's result codes, and what a broker makes of them.

Sources: dledger/protocol/DLedgerResponseCode.java (reference 2.3.2), the put path of
store/dledger/DLedgerCommitLog.java (2.3.6).
"""

from __future__ import annotations

import enum

from broker.errors import BrokerError, DiskFull
from broker.raft.group import Busy, NotLeader, ProposalLost, ProposalTimeout
from broker.rocketmq.replica import PutStatus


class DLedgerCode(enum.IntEnum):
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    LOAD_SNAPSHOT_ERROR = 507
    INSTALL_SNAPSHOT_ERROR = 508


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
