"""ReadIndex: reads that are not stale, without an entry in the log.

A leader notes how far it has committed, asks a quorum whether it still leads by a heartbeat that is
sent after the read was asked for, and lets the read go when that much is applied. A new leader
knows what is committed only when it has committed an entry of its own term; reads wait for that.
"""

from __future__ import annotations

from shalott.broker.raft import election
from shalott.broker.raft.api import ReadFailed, ReadReady
from shalott.broker.raft.state import Read, State

UNCONFIRMED = -1


def handle_read(s: State, read_id: int) -> None:
    if s.role != "leader":
        s.emit(ReadFailed(read_id, s.leader))
        return
    s.reads.append(Read(read_id, UNCONFIRMED))
    begin_reads(s)


def begin_reads(s: State) -> None:
    """Send a heartbeat for the reads that wait, unless one for others is under way."""
    is_asking = any(read.round for read in s.reads)
    if s.role == "leader" and s.reads and not is_asking and knows_committed(s):
        election.send_heartbeats(s)
        round_answered(s)  # a group of one needs nobody's answer


def knows_committed(s: State) -> bool:
    """Whether it has committed an entry of its own term."""
    return s.commit_index > s.tenure_index


def round_begins(s: State) -> None:
    """A heartbeat is about to be sent: it will do for all reads that wait."""
    if not knows_committed(s):
        return
    for read in s.reads:
        if not read.round:
            read.round, read.index = s.round, s.commit_index


def round_answered(s: State) -> None:
    """Let go the reads whose heartbeat, or a later one, a quorum has answered."""
    rounds = sorted([s.round, *(p.round for p in s.progress.values())], reverse=True)
    confirmed = rounds[s.quorum - 1]
    ready = [read for read in s.reads if 0 < read.round <= confirmed]
    if ready:
        s.reads = [read for read in s.reads if read not in ready]
        for read in ready:
            s.emit(ReadReady(read.id, read.index))
        begin_reads(s)


def fail_all(s: State) -> None:
    reads, s.reads = s.reads, []
    for read in reads:
        s.emit(ReadFailed(read.id, s.leader if s.role != "leader" else ""))
