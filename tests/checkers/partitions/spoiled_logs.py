"""Histories of partitions spoiled: one anomaly planted on purpose, or anything at all.

A planting returns whether it found a place. It says only that its own kind must be found: one wrong
answer is often wrong in several ways.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.checkers.partitions.simulated_logs import Operation, Pairs, Poll, Send

Planting = Callable[[list[Operation], random.Random], bool]


def _done(operations: list[Operation], *types: str) -> list[Operation]:
    """Operations on data that ended, in the order of their ends."""
    ended = [op for op in operations if op.ended is not None and op.f in ("send", "poll", "txn")]
    return sorted((op for op in ended if op.type in types), key=lambda op: op.ended or 0)


def _polled_pairs(operations: list[Operation]) -> Iterator[tuple[Operation, int, Pairs]]:
    for op in _done(operations, "ok"):
        for poll in op.polls():
            for key, pairs in poll.by_key.items():
                yield op, key, pairs


def _acknowledged(operations: list[Operation]) -> list[Send]:
    return [send for op in _done(operations, "ok") for send in op.sends()]


def _without(operations: list[Operation], key: int, value: int) -> None:
    for op in operations:
        for poll in op.polls():
            if key in poll.by_key:
                poll.by_key[key] = [pair for pair in poll.by_key[key] if pair[1] != value]


def _end_of(operations: list[Operation], key: int) -> int:
    offsets = [offset for _, k, pairs in _polled_pairs(operations) if k == key
               for offset, _ in pairs]  # fmt: skip
    return max((offset for offset in offsets if offset is not None), default=-1)


def lose(operations: list[Operation], rng: random.Random) -> bool:
    ends = {key: _end_of(operations, key) for key in {s.key for s in _acknowledged(operations)}}
    known = [s for s in _acknowledged(operations) if (s.offset or 0) < ends[s.key]]
    if not known:
        return False
    lost = rng.choice(known)
    _without(operations, lost.key, lost.value)
    return True


def hide(operations: list[Operation], rng: random.Random) -> bool:
    """The newest acknowledged message of a key is never polled."""
    sends = _acknowledged(operations)
    newest = [send for send in sends if send.offset == _end_of(operations, send.key)]
    if not newest:
        return False
    hidden = rng.choice(newest)
    _without(operations, hidden.key, hidden.value)
    return True


def double(operations: list[Operation], rng: random.Random) -> bool:
    """A message stands at the end of the log once more."""
    places = [each for each in _polled_pairs(operations) if each[2]]
    if not places:
        return False
    op, key, pairs = rng.choice(places)
    poll = Poll({key: [(_end_of(operations, key) + 5, rng.choice(pairs)[1])]})
    op.mops.append(poll)
    return True


def contradict(operations: list[Operation], rng: random.Random) -> bool:
    """One client polls something else at an offset than others."""
    sends = _acknowledged(operations)
    places = [each for each in _polled_pairs(operations) if each[2]]
    if not places or not sends:
        return False
    _, key, pairs = rng.choice(places)
    at = rng.randrange(len(pairs))
    others = [s.value for s in sends if s.key == key and s.value != pairs[at][1]]
    if not others or len(_seen(operations, key, pairs[at][0])) < 2:
        return False
    pairs[at] = (pairs[at][0], rng.choice(others))
    return True


def _seen(operations: list[Operation], key: int, offset: int | None) -> list[int]:
    """What believable entries say of an offset."""
    shown = [send.value for op in _done(operations, "ok") for send in op.sends()
             if send.key == key and send.offset == offset]  # fmt: skip
    return shown + [value for _, k, pairs in _polled_pairs(operations) if k == key
                    for at, value in pairs if at == offset]  # fmt: skip


def poll_aborted(operations: list[Operation], rng: random.Random) -> bool:
    failed = [send for op in _done(operations, "fail") for send in op.sends()]
    readers = [op for op in _done(operations, "ok") if op.polls()]
    if not failed or not readers:
        return False
    send = rng.choice(failed)
    pairs = rng.choice(readers).polls()[0].by_key.setdefault(send.key, [])
    pairs.append((send.offset, send.value))
    return True


def poll_own(operations: list[Operation], rng: random.Random) -> bool:
    writers = [op for op in _done(operations, "ok", "info") if op.f == "txn" and op.sends()]
    writers = [op for op in writers if not op.silent]
    if not writers:
        return False
    op = rng.choice(writers)
    send = rng.choice(op.sends())
    op.mops.append(Poll({send.key: [(send.offset, send.value)]}))
    return True


def poll_unsent(operations: list[Operation], rng: random.Random) -> bool:
    places = [each for each in _polled_pairs(operations) if each[2]]
    if not places:
        return False
    _, key, pairs = rng.choice(places)
    pairs.append((_end_of(operations, key) + 1, 1_000_000))
    return True


def _runs(operations: list[Operation], length: int) -> list[tuple[Operation, int, Pairs]]:
    return [
        each for each in _polled_pairs(operations)
        if len(each[2]) >= length and each[1] not in each[0].moved
    ]  # fmt: skip


def skip_within(operations: list[Operation], rng: random.Random) -> bool:
    runs = [each for each in _runs(operations, 3) if _is_known(operations, each[1], each[2][1])]
    if not runs:
        return False
    del rng.choice(runs)[2][1]
    return True


def _is_known(operations: list[Operation], key: int, pair: tuple[int | None, int]) -> bool:
    """Whether its place would be known without one of those that polled it."""
    return len(_seen(operations, key, pair[0])) > 1


def turn_within(operations: list[Operation], rng: random.Random) -> bool:
    runs = _runs(operations, 2)
    if not runs:
        return False
    pairs = rng.choice(runs)[2]
    pairs[0], pairs[1] = pairs[1], pairs[0]
    return True


def _continued(operations: list[Operation]) -> list[tuple[Operation, int, Pairs, Pairs]]:
    """A poll and the same process's next one of the key, with no assignment between them."""
    found = []
    last: dict[tuple[int, int], Pairs] = {}
    for op in sorted((op for op in operations if op.ended), key=lambda op: op.ended or 0):
        if op.f in ("assign", "subscribe"):
            last = {place: pairs for place, pairs in last.items() if place[0] != op.process}
        keys = {key for poll in op.polls() for key in poll.by_key if op.polled(key)}
        for key in keys:
            before, pairs = last.get((op.process, key)), op.polled(key)
            if before:
                first = next(poll.by_key[key] for poll in op.polls() if poll.by_key.get(key))
                found.append((op, key, before, first))
            if op.type == "ok":
                last[op.process, key] = pairs
    return found


def skip_between(operations: list[Operation], rng: random.Random) -> bool:
    places = [
        (op, key, pairs) for op, key, _, pairs in _continued(operations)
        if len(pairs) >= 2 and _is_known(operations, key, pairs[0])
    ]  # fmt: skip
    if not places:
        return False
    del rng.choice(places)[2][0]
    return True


def turn_between(operations: list[Operation], rng: random.Random) -> bool:
    places = _continued(operations)
    if not places:
        return False
    _, _, before, pairs = rng.choice(places)
    pairs.insert(0, before[-1])
    return True


def turn_sends_within(operations: list[Operation], rng: random.Random) -> bool:
    places = []
    for op in _done(operations, "ok"):
        sends = op.sends()
        places += [(a, b) for a, b in zip(sends, sends[1:], strict=False) if a.key == b.key]
    if not places:
        return False
    _swap(*rng.choice(places))
    return True


def _swap(a: Send, b: Send) -> None:
    a.value, a.offset, b.value, b.offset = b.value, b.offset, a.value, a.offset


def turn_sends_between(operations: list[Operation], rng: random.Random) -> bool:
    """Two operations of one process are told with each other's sends of a key."""
    places = []
    last: dict[tuple[int, int], list[Send]] = {}
    for op in sorted((op for op in operations if op.ended), key=lambda op: op.ended or 0):
        if op.f in ("assign", "subscribe"):
            last = {place: sends for place, sends in last.items() if place[0] != op.process}
        for key in {send.key for send in op.sends()} if op.type == "ok" else ():
            sends = [send for send in op.sends() if send.key == key]
            if before := last.get((op.process, key)):
                places.append((before[-1], sends[0]))
            last[op.process, key] = sends
    if not places:
        return False
    _swap(*rng.choice(places))
    return True


def poll_each_other(operations: list[Operation], rng: random.Random) -> bool:
    """The writer polls what its reader sends."""
    by_value = {(s.key, s.value): op for op in _done(operations, "ok") for s in op.sends()}
    places = [
        (by_value[key, value], op)
        for op, key, pairs in _polled_pairs(operations) if op.sends()
        for _, value in pairs
        if (key, value) in by_value and by_value[key, value] is not op
    ]  # fmt: skip
    if not places:
        return False
    writer, reader = rng.choice(places)
    send = rng.choice(reader.sends())
    writer.f = "txn"
    writer.mops.append(Poll({send.key: [(send.offset, send.value)]}))
    return True


def poll_the_future(operations: list[Operation], rng: random.Random) -> bool:
    """What was polled is sent when the poll has ended."""
    ends = [
        (op, send)
        for op in _done(operations, "ok") for send in op.sends()
    ]  # fmt: skip
    polls = [op for op in _done(operations, "ok") if op.f == "poll"]
    places = [
        (poll, send) for poll in polls[:40] for op, send in ends
        if (poll.ended or 0) < op.called and poll.process != op.process
    ]  # fmt: skip
    if not places:
        return False
    poll, send = rng.choice(places)
    poll.polls()[-1].by_key.setdefault(send.key, []).append((send.offset, send.value))
    return True


PLANTINGS: dict[str, Planting] = {
    "lost-write": lose,
    "unseen": hide,
    "duplicate": double,
    "inconsistent-offsets": contradict,
    "G1a": poll_aborted,
    "precommitted-read": poll_own,
    "unexpected": poll_unsent,
    "int-poll-skip": skip_within,
    "int-nonmonotonic-poll": turn_within,
    "poll-skip": skip_between,
    "nonmonotonic-poll": turn_between,
    "int-nonmonotonic-send": turn_sends_within,
    "nonmonotonic-send": turn_sends_between,
    "G1c": poll_each_other,
    "G1c-realtime": poll_the_future,
}


def spoil(operations: list[Operation], rng: random.Random, times: int) -> None:
    """Changes anything: what was polled, offsets, types, which operations there are."""
    for _ in range(times):
        if not operations:
            return
        op = rng.choice(operations)
        drawn = rng.random()
        if op.ended is None:
            continue
        op.silent = False
        if drawn < 0.1:
            operations.remove(op)
        elif drawn < 0.2:
            op.type = rng.choice(["ok", "fail", "info"])
        elif op.mops:
            _spoil_mop(rng.choice(op.mops), rng)


def _spoil_mop(mop: Send | Poll, rng: random.Random) -> None:
    if isinstance(mop, Send):
        mop.offset = rng.choice([None, rng.randrange(20)])
        mop.value = rng.choice([mop.value, rng.randrange(1, 30)])
        return
    key = rng.randrange(3)
    pairs = mop.by_key.setdefault(key, [])
    drawn = rng.random()
    if not pairs or drawn < 0.3:
        offset = rng.choice([None, rng.randrange(20)])
        pairs.insert(rng.randint(0, len(pairs)), (offset, rng.randrange(1, 30)))
    elif drawn < 0.6:
        del pairs[rng.randrange(len(pairs))]
    else:
        rng.shuffle(pairs)
