"""Sound histories of transactions that are corrupted in the midst of their own traffic.

Each corruption looks for a victim that proves it whatever else there is: a read that another one
contradicts, a write that was read, a read behind a write that it must have seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace

from tests.checkers.transactions.histories import History, Transaction

STALE = ("G-single-item", "G-single-item-process", "G-single-item-realtime")


@dataclass(frozen=True, slots=True)
class Read:
    """The micro-operation ``place`` of the transaction ``at``, and what it saw of others."""

    at: int
    place: int
    key: str
    seen: tuple[Hashable, ...]


def _reads(history: History) -> Iterator[Read]:
    for at, each in enumerate(history):
        for place, (f, key, value) in enumerate(each.mops if each.type == "ok" else ()):
            if f == "r":
                alone = () if value is None else (value,)
                yield Read(at, place, key, value if isinstance(value, tuple) else alone)


def _writers(history: History) -> dict[tuple[str, Hashable], int]:
    return {
        (key, value): at
        for at, each in enumerate(history)
        for key, values in each.writes.items()
        for value in values
    }


def _touched_once(who: Transaction, key: str) -> bool:
    return sum(mop[1] == key for mop in who.mops) == 1


def _with(history: History, read: Read, value: Hashable) -> list[Transaction]:
    who = history[read.at]
    mops = (*who.mops[: read.place], ("r", read.key, value), *who.mops[read.place + 1 :])
    return [*history[: read.at], replace(who, mops=mops), *history[read.at + 1 :]]


def _is_list(history: History, read: Read) -> bool:
    return isinstance(history[read.at].mops[read.place][2], tuple)


def repeated(history: History) -> Iterator[list[Transaction]]:
    """A list has an element twice."""
    for read in _reads(history):
        if read.seen and _is_list(history, read):
            yield _with(history, read, (*read.seen, read.seen[0]))


def swapped(history: History) -> Iterator[list[Transaction]]:
    """A list has two elements in another order than another reader saw."""
    reads = list(_reads(history))
    for read in reads:
        others = [each for each in reads if each.key == read.key and each.at != read.at]
        if len(read.seen) > 1 and any(len(each.seen) > 1 for each in others):
            yield _with(history, read, (read.seen[1], read.seen[0], *read.seen[2:]))


def lost(history: History) -> Iterator[list[Transaction]]:
    """A list lacks its first element, which another reader saw."""
    reads = list(_reads(history))
    for read in reads:
        others = [each for each in reads if each.key == read.key and each.at != read.at]
        if len(read.seen) > 1 and any(each.seen for each in others):
            yield _with(history, read, read.seen[1:])


def aborted(history: History) -> Iterator[list[Transaction]]:
    """Who wrote what another read is said to have failed."""
    writers = _writers(history)
    for read in _reads(history):
        for value in read.seen:
            at = writers[read.key, value]
            if at != read.at and history[at].type == "ok":
                yield [*history[:at], replace(history[at], type="fail"), *history[at + 1 :]]


def stale(history: History) -> Iterator[list[Transaction]]:
    """A read does not see what was written and had returned before it was called."""
    writers = _writers(history)
    for read in _reads(history):
        who = history[read.at]
        if not read.seen or not _touched_once(who, read.key):
            continue
        first = history[writers[read.key, read.seen[0]]]
        if first.type == "ok" and first.ret is not None and first.ret < who.call:
            yield _with(history, read, () if _is_list(history, read) else None)


def forgetful(history: History) -> Iterator[list[Transaction]]:
    """A read does not see what its own transaction has just written."""
    for read in _reads(history):
        before = [mop for mop in history[read.at].mops[: read.place] if mop[1] == read.key]
        if before and before[-1][0] != "r":
            left: Hashable = read.seen[:-1] if _is_list(history, read) else None
            yield _with(history, read, left)


# What each must be found as: one of these.
CORRUPTIONS: dict[str, tuple[Callable[[History], Iterator[list[Transaction]]], tuple[str, ...]]] = {
    "repeated": (repeated, ("duplicate-elements",)),
    "swapped": (swapped, ("incompatible-order",)),
    "lost": (lost, ("incompatible-order",)),
    "aborted": (aborted, ("G1a",)),
    "stale": (stale, STALE),
    "forgetful": (forgetful, ("internal",)),
}


def corrupted(name: str, history: History, rng: random.Random) -> list[Transaction] | None:
    """One victim of it, if there is one."""
    found = list(CORRUPTIONS[name][0](history))
    return rng.choice(found) if found else None
