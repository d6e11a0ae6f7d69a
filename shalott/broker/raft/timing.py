"""When a member next needs to be told the time: the earliest moment at which a tick changes more
than its clock. A shell that sleeps until then misses nothing, and a quiet group costs nothing.
"""

from __future__ import annotations

from shalott.broker.raft import election, leading
from shalott.broker.raft.api import PushType
from shalott.broker.raft.state import Progress, State

RETRY_MS = 10  # what could be sent now and was not: entries that a disk did not have, say


def due_ms(s: State) -> int:
    """A moment that is over already means: at once."""
    if s.role != "leader":
        return s.wake_ms
    due = s.heartbeat_ms + election.heartbeat_due_ms(s)
    if s.quorum > 1:
        heard = sorted((p.heard_ms for p in s.progress.values()), reverse=True)
        due = min(due, heard[s.quorum - 2] + s.settings.leak_ms)
    if s.transfer_to:
        due = min(due, s.transfer_ends_ms)
    for p in s.progress.values():
        due = min(due, _dispatcher_due_ms(s, p))
    return due


def _dispatcher_due_ms(s: State, p: Progress) -> int:
    """When ``leading.dispatch`` would do something."""
    settings = s.settings
    if p.state != PushType.APPEND:
        if (p.next_index < s.log.first_index) != (p.state == PushType.INSTALL_SNAPSHOT):
            return s.now_ms + RETRY_MS
        return p.asked_ms + leading.patience(p.state) * settings.push_timeout_ms
    due = p.inflight[0][1] + settings.push_timeout_ms if p.inflight else None
    has_room = len(p.inflight) < settings.max_inflight_pushes
    if has_room and not p.loading and p.next_index <= s.log.last_index:
        retry = s.now_ms + RETRY_MS
        return retry if due is None else min(due, retry)
    return p.commit_pushed_ms + settings.commit_push_interval_ms if due is None else due
