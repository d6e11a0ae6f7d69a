"""Where the last whole message of a log ends (truncateInvalidMsg).

A slave appends what frames bring, and a frame's border may lie within a message. Before such a log
gets messages of its own the incomplete one must go. Source: AutoSwitchHAService.truncateInvalidMsg.

The search must begin at the border of a message. The end of what is dispatched is one. Upstream
once took the log's end less what was left to dispatch; dispatch stops at the confirm offset, so
that was a place beyond, often the very end, and nothing was cut, or in the midst of a message, and
whole ones were (KB-RKT-14).
"""

from __future__ import annotations

from broker.commitlog import codec
from broker.commitlog.api import Log, Store
from broker.env import Env

READ_BYTES = 1 << 18
ENDLESS = (1 << 63) - 1


def search_start(env: Env, store: Store) -> int:
    """A border between two messages, from which all that follows is looked at."""
    if env.has_bug("KB-RKT-14"):  # KB-RKT-14: truncate_wrong_start
        behind = max(0, store.confirm_offset - store.dispatched_offset)
        return store.log.max_offset - behind
    return store.dispatched_offset


async def end_of_whole_messages(log: Log, start: int, *, until: int = ENDLESS) -> int:
    """The end of the last whole message that lies between ``start``, a border, and ``until``."""
    start = max(start, log.min_offset)
    data, base = b"", start
    while True:
        while data and (size := _message_size(data, start - base, start)):
            if start + size > until:
                return start
            start += size
        wanted = _wanted(data, start - base)
        data, base = data[start - base :], start
        more = await log.read(base + len(data), wanted)
        if not more:
            return start
        data += more


def _wanted(data: bytes, at: int) -> int:
    """How many bytes more the message at ``at`` may need."""
    if len(data) - at < codec.START.size:
        return READ_BYTES
    total = codec.START.unpack_from(data, at)[0]
    return max(READ_BYTES, int(total) - (len(data) - at))


def _message_size(data: bytes, at: int, offset: int) -> int:
    """Of the whole message, or filler, at ``at``; 0 if there is none yet, or never."""
    if len(data) - at < codec.START.size:
        return 0
    total, magic = codec.START.unpack_from(data, at)
    if total < codec.START.size or total > len(data) - at:
        return 0
    if magic == codec.MAGIC_BLANK:
        return int(total)
    if magic not in (codec.MAGIC_V1, codec.MAGIC_V2):
        return 0
    return int(total) if codec.is_valid(data, at, total, offset) else 0
