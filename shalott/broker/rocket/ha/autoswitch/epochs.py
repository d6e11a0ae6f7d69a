"""Epochs: which master wrote which part of a log, as pure functions on lists of entries.

An entry <epoch, start> says that the bytes from ``start`` up to the next entry's start were written
by the master of ``epoch``. After store/ha/autoswitch/EpochFileCache.java; docs/protocols.md 2.3,
2.5. The idea is Kafka's leader epoch cache (KIP-101).

What must hold, so that truncation at the consistent point leaves equal bytes: a byte lies under the
epoch of the master that wrote it first, at every replica. Then two logs that have the same byte
under the same epoch are equal up to it, as in Raft. Upstream breaks this in two places, which taken
together let different bytes survive under one entry (KB-RKT-A):

- a slave adds an entry for an epoch of which it only heard in a heartbeat (client.py: here only
  bytes bring an entry);
- an entry is refused when it starts where the last one starts, so what a new master then writes
  is filed under an older epoch (and if the epoch is its own, it can't be found at all: KB-RKT-21).
  Here the new entry takes the place of the last, which is empty and so says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shalott.broker.rocket.ha.autoswitch.packets import EpochStart

ENDLESS = (1 << 63) - 1  # the end of the last entry, as upstream has it
NO_POINT = -1


@dataclass(frozen=True, slots=True)
class EpochRange:
    """An entry with its end, which is the next entry's start."""

    epoch: int
    start_offset: int
    end_offset: int = ENDLESS


Entries = tuple[EpochStart, ...]


def ranges(entries: Sequence[EpochStart], end_offset: int = ENDLESS) -> tuple[EpochRange, ...]:
    """Entries with ends; ``end_offset`` is the log's. None for a log without an epoch."""
    ends = [*(entry.start_offset for entry in entries), end_offset][1:]
    return tuple(
        EpochRange(entry.epoch, entry.start_offset, end)
        for entry, end in zip(entries, ends, strict=True)
    )


def appended(entries: Entries, entry: EpochStart, *, keeps_empty: bool = False) -> Entries | None:
    """``entries`` and ``entry``, None if it does not fit: its epoch must be greater than the last,
    its start not smaller. An empty last entry gives way; with ``keeps_empty``, as upstream, the
    new one is refused instead.
    """
    if not entries:
        return (entry,)
    last = entries[-1]
    if entry.epoch <= last.epoch or entry.start_offset < last.start_offset:
        return None
    if entry.start_offset > last.start_offset:
        return (*entries, entry)
    return None if keeps_empty else (*entries[:-1], entry)


def without_suffix(entries: Entries, offset: int) -> Entries:
    """Without the entries of bytes at ``offset`` or later."""
    return tuple(entry for entry in entries if entry.start_offset < offset)


def without_epochs(entries: Entries, epoch: int) -> Entries:
    """Without the entries of ``epoch`` and later ones."""
    return tuple(entry for entry in entries if entry.epoch < epoch)


def at_offset(entries: Sequence[EpochStart], offset: int) -> EpochRange | None:
    """The entry of the byte at ``offset``: the last one that starts there or before."""
    for each in reversed(ranges(entries)):
        if each.start_offset <= offset:
            return each
    return None


def of_epoch(entries: Sequence[EpochStart], epoch: int) -> EpochRange | None:
    return next((each for each in ranges(entries) if each.epoch == epoch), None)


def consistent_point(local: Sequence[EpochRange], other: Sequence[EpochRange]) -> int:
    """Up to where two logs are equal: the end of what they have in common of the newest epoch
    that both have, with the same start. NO_POINT if there is none.
    """
    theirs = {each.epoch: each for each in other}
    for mine in reversed(local):
        found = theirs.get(mine.epoch)
        if found is not None and found.start_offset == mine.start_offset:
            return min(mine.end_offset, found.end_offset)
    return NO_POINT
