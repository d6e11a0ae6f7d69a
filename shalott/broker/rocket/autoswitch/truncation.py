"""Cutting a log: where its last whole message ends, and what must not be interrupted.

A slave appends what frames bring, and a frame's border may lie within a message. Before such a log
gets messages of its own the incomplete one must go. Source: AutoSwitchHAService.truncateInvalidMsg.

The search must begin at the border of a message. The end of what is dispatched is one. Upstream
once took the log's end less what was left to dispatch; dispatch stops at the confirm offset, so
that was a place beyond, often the very end, and nothing was cut, or in the midst of a message, and
whole ones were (KB-RKT-14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

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


# -- what must not be interrupted ------------------------------------------------------------------


T = TypeVar("T")


async def uninterrupted(work: Coroutine[object, object, T]) -> T:
    """The result of ``work``. A caller that cancels this waits until ``work`` is done."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved: it is the canceller's business no more
        raise


def is_cancelled() -> bool:
    """Whether the task that asks was told to end. It may not have heard: what it waits for takes
    the cancellation first, and may end with an error of its own instead (a TaskGroup does, if one
    of its tasks failed)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
