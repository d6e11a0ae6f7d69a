"""Where the last whole message of a log ends (truncateInvalidMsg).

A slave appends what frames bring, and a frame's border may lie within a message. Before such a log
gets messages of its own the incomplete one must go. Source: AutoSwitchHAService.truncateInvalidMsg.

The search must begin at the border of a message. The end of what is dispatched is one. Upstream
once took the log's end less what was left to dispatch; dispatch stops at the confirm offset, so
that was a place beyond, often the very end, and nothing was cut, or in the midst of a message, and
whole ones were (KB-RKT-14).
"""

from __future__ import annotations

from shalott.broker.base.env import Env
from shalott.broker.rocket.commitlog.api import MessageLog
from shalott.broker.rocket.commitlog.store import MessageStore

SCAN_BYTES = 1 << 18
ENDLESS = (1 << 63) - 1


def search_start(env: Env, store: MessageStore) -> int:
    """A border between two messages, from which all that follows is looked at."""
    if env.has_bug("KB-RKT-14"):  # KB-RKT-14: truncate_wrong_start
        behind = max(0, store.confirm_offset - store.dispatched_offset)
        return store.log.max_offset - behind
    return store.dispatched_offset


async def end_of_whole_messages(log: MessageLog, start: int, *, until: int = ENDLESS) -> int:
    """The end of the last whole message that lies between ``start``, a border, and ``until``."""
    position = max(start, log.min_offset)
    while True:
        scanned = await log.scan(position, min(log.max_offset, until), SCAN_BYTES)
        if scanned.next == position:
            return position
        position = scanned.next
