"""What became of every message of a log: is it there, once, at one offset, and what was sent.

A log keeps what it has, so a message that was acknowledged is in every final read. If it is in
none it is a ``lost-write``, whether its offset holds another message now or the log ends before it
(kafka.clj counts only the former, since its readers may just not have come so far); if it is in
some it is ``lost-on-node`` (jepsen-io/nats). Where a final read is not whole, an acknowledged
message that no client read is ``unseen``. A message that was read, and is gone though it
was never acknowledged, has ``vanished``: a reader acted on what the log then took back.

``duplicate``: one message at several offsets; ``stored-twice`` where its client had sent it so
often, which is the client's doing; ``committed-twice`` where it is a transaction's, of
which several commits were sent.
``inconsistent-offsets``: several messages at one offset, as senders and readers were told;
``shared-offset`` where two senders were. ``phantom``: a message that was read although its send had
certainly failed (G1a). ``unexpected``: no client sent it; ``too-early``: read before it was sent;
``corrupted``: its body failed the CRC.

What every node holds at the end, as its final reads tell it, and whether they can be trusted.

After the heal every queue is read at every node from offset 0 until a poll finds nothing more. A
queue's final read at a node is *whole* if those polls join up: each begins at or before the end of
what was read so far, and one that found nothing begins at that end. A node that says that its queue
begins later has nothing before that. Who left the cluster for good is not read. Only whole final
reads of all nodes prove that a message is gone; anything less may just not have been read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import Bools, Codes, Ints
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.logs.records import FAIL, NOWHERE, OK, LogHistory, Polls
from shalott.core.log_generator import GROW, NO_QUEUE


@dataclass(frozen=True, slots=True)
class Presence:
    """By send: what readers saw of it."""

    read: Bools  # by anybody, at any time
    at_end: Bools  # in a final read
    at_nodes: Ints  # in so many nodes' final reads
    lost: Bools  # acknowledged, and certainly gone
    unseen: Bools  # acknowledged, and not read
    on_some: Bools  # acknowledged, in a final read, and missing from another node's
    vanished: Bools  # read, never acknowledged, and certainly gone


def sent_by_record(log: LogHistory) -> Ints:
    """By record: the position of its send; -1 if there is none, -2 if it is damaged."""
    wanted = log.records.value
    sent = np.full(len(wanted), -1, dtype=np.int64)
    if len(log.sends.value):
        order = np.argsort(log.sends.value, kind="stable")
        values = log.sends.value[order]
        at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
        sent = np.where(values[at] == wanted, order[at], -1)
    return np.where(log.records.is_sound, sent, -2)


def presence(log: LogHistory, final: FinalReads, sent: Ints) -> Presence:
    count = len(log.sends.row)
    known = sent >= 0
    read = np.bincount(sent[known], minlength=count) > 0
    ending = known & final.is_final
    node = log.ops.node.codes[log.records.row[ending]].astype(np.int64)
    nodes = len(log.ops.node.names)
    pairs = np.unique(sent[ending] * nodes + node)
    at_nodes = np.bincount(pairs // nodes, minlength=count)
    at_end = at_nodes > 0
    names = log.ops.key.names
    whole_keys = [code for code in range(len(names)) if final.is_whole(names[code])]
    is_whole = np.isin(log.sends.key, whole_keys)
    acked = log.sends.is_acked
    taken = acked & ~at_end & _overwritten(log, sent)
    lost = acked & ~at_end & (is_whole | taken)
    return Presence(
        read=np.asarray(read),
        at_end=np.asarray(at_end),
        at_nodes=at_nodes,
        lost=lost,
        unseen=acked & ~read & ~lost,
        on_some=acked & at_end & is_whole & (at_nodes < len(final.nodes)),
        vanished=np.asarray(read & ~acked & ~at_end & is_whole),
    )


def _overwritten(log: LogHistory, sent: Ints) -> Bools:
    """By send: no client read it, and one read another message at its offset."""
    sends, records = log.sends, log.records
    read = np.zeros(len(sends.row), dtype=np.bool_)
    read[sent[sent >= 0]] = True
    width = np.int64(max(int(sends.offset.max(initial=0)), int(records.offset.max(initial=0))) + 2)
    places = sends.key.astype(np.int64) * width + sends.offset
    taken = np.isin(places, records.key.astype(np.int64) * width + records.offset)
    return np.asarray(taken & ~read & (sends.offset != NOWHERE))


@dataclass(frozen=True, slots=True)
class Placements:
    """What senders and readers were told: distinct (queue, offset, value), sorted by place."""

    key: Codes
    offset: Ints
    value: Ints
    row: Ints  # position in the operations of the first who was told
    is_sent: Bools  # a sender was told


def placements(log: LogHistory) -> Placements:
    sends, records = log.sends, log.records
    told = np.flatnonzero(sends.offset != NOWHERE)
    sound = np.flatnonzero(records.is_sound)
    key = np.concatenate((sends.key[told], records.key[sound])).astype(np.int32)
    offset = np.concatenate((sends.offset[told], records.offset[sound]))
    value = np.concatenate((sends.value[told], records.value[sound]))
    row = np.concatenate((sends.row[told], records.row[sound]))
    is_sent = np.concatenate((np.ones(len(told), np.bool_), np.zeros(len(sound), np.bool_)))
    order = np.lexsort((~is_sent, value, offset, key))
    key, offset, value = key[order], offset[order], value[order]
    first = np.ones(len(order), dtype=np.bool_)
    same = (key[1:] == key[:-1]) & (offset[1:] == offset[:-1]) & (value[1:] == value[:-1])
    first[1:] = ~same
    return Placements(key[first], offset[first], value[first], row[order][first],
                      is_sent[order][first])  # fmt: skip


def groups_of_several(*columns: Ints | Codes) -> list[Ints]:
    """Positions that agree in all columns, group by group, where there are two or more."""
    if not len(columns[0]):
        return []
    order = np.lexsort(columns[::-1])
    differs = np.zeros(len(order) - 1, dtype=np.bool_)
    for column in columns:
        differs |= column[order][1:] != column[order][:-1]
    parts = np.split(order, np.flatnonzero(differs) + 1)
    return [part for part in parts if len(part) > 1]


def kinds_of_copies(log: LogHistory, told: Placements, groups: list[Ints]) -> list[str]:
    """Of groups of places that hold one message: duplicate, stored-twice if its client had sent it
    so often, or committed-twice."""
    order = np.argsort(log.sends.value, kind="stable")
    values, again = log.sends.value[order], log.settling.again
    found = []
    for places in groups:
        at = int(np.searchsorted(values, told.value[places[0]]))
        is_known = at < len(values) and values[at] == told.value[places[0]]
        if is_known and log.sends.attempts[order[at]] >= len(places):
            found.append("stored-twice")
        elif (
            is_known
            and log.sends.is_transaction[order[at]]
            and (again is None or values[at] in again)
        ):
            found.append("committed-twice")
        else:
            found.append("duplicate")
    return found


def phantoms(log: LogHistory, sent: Ints) -> Ints:
    """Records whose send had certainly failed."""
    known = np.flatnonzero(sent >= 0)
    failed: Bools = log.sends.outcome[sent[known]] == FAIL
    return np.asarray(known[failed])


def too_early(log: LogHistory, sent: Ints) -> Ints:
    """Records that were read before their send began."""
    known = np.flatnonzero(sent >= 0)
    began_ns = log.ops.invoke_ns[log.sends.row[sent[known]]]
    early: Bools = log.ops.complete_ns[log.records.row[known]] < began_ns
    return np.asarray(known[early])


@dataclass(frozen=True, slots=True)
class FinalReads:
    """``missing``: why a (node, key)'s final read is not whole. ``is_final``: by record, whether it
    was read in the drain."""

    nodes: tuple[str, ...]
    keys: tuple[str, ...]
    missing: Mapping[tuple[str, str], str]
    is_final: Bools
    settled: bool

    def is_whole(self, key: str) -> bool:
        """Whether every node's final read of the queue is."""
        return not any((node, key) in self.missing for node in self.nodes)


def final_reads(log: LogHistory, around: Surroundings, complete: bool) -> FinalReads:
    ops, polls = log.ops, log.polls
    served = tuple(ops.node.names[code] for code in np.unique(ops.node.codes))
    nodes = tuple(node for node in served if node not in around.left_out)
    keys = tuple(ops.key.names[code] for code in _used_keys(log))
    drain, settle = around.phase("drain"), around.phase("settle")
    reason = "there was no drain" if drain is None else ""
    if drain is not None and drain.end_ns is None:
        reason = "the drain did not end"
    if not complete:
        reason = "the recording was cut short"
    begin_ns = 0 if drain is None else drain.begin_ns
    in_drain = ops.invoke_ns[polls.row] >= begin_ns if drain else np.zeros(len(polls.row), bool)
    missing = dict(_missing(log, nodes, keys, np.asarray(in_drain), begin_ns, reason))
    return FinalReads(
        nodes=nodes,
        keys=keys,
        missing=missing,
        is_final=np.repeat(np.asarray(in_drain, dtype=np.bool_), polls.count),
        settled=settle is None or settle.settled is not False,
    )


def _used_keys(log: LogHistory) -> Ints:
    """Of all queues that clients used. One that an operator added, and where nothing was
    acknowledged, may be gone with the master that had it."""
    sends, is_added = log.sends, log.ops.f.equal(GROW)
    counts = (sends.outcome == OK) | ~np.isin(sends.key, log.ops.key.codes[is_added])
    return np.unique(np.concatenate((sends.key[counts], log.polls.key)))


def _missing(
    log: LogHistory,
    nodes: Sequence[str],
    keys: Sequence[str],
    in_drain: Bools,
    begin_ns: int,
    reason: str,
) -> Iterator[tuple[tuple[str, str], str]]:
    node_codes = log.ops.node.codes[log.polls.row]
    for node in nodes:
        at_node = in_drain & (node_codes == log.ops.node.names.index(node))
        for key in keys:
            if reason:
                yield (node, key), reason
                continue
            own = np.flatnonzero(at_node & (log.polls.key == log.ops.key.names.index(key)))
            gap = _why_not_whole(log.polls, own)
            if gap and not _is_absent(log, node, key, begin_ns):
                yield (node, key), gap


def _is_absent(log: LogHistory, node: str, key: str, begin_ns: int) -> bool:
    """Whether the node said to the last that it has no such queue: then it holds nothing of it."""
    ops = log.ops
    asked = ops.f.equal("poll") & ops.node.equal(node) & ops.key.equal(key)
    own = np.flatnonzero(asked & (ops.invoke_ns >= begin_ns))
    return bool(len(own)) and ops.error.names[ops.error.codes[own[-1]]].startswith(NO_QUEUE)


def _why_not_whole(polls: Polls, own: Ints) -> str:
    """Of one queue at one node; "" if its polls read it from 0 to its end."""
    if not len(own):
        return "it was not read at the end"
    reach = 0
    is_empty = polls.stand == polls.start
    for poll in own[np.lexsort((is_empty[own], polls.start[own]))]:
        start = int(polls.start[poll])
        if start > reach:
            return f"no client read on from offset {reach}"
        if polls.moved[poll] != NOWHERE:
            reach = max(reach, int(polls.moved[poll]) if polls.moved[poll] > start else 0)
            continue
        if is_empty[poll]:
            if start == reach:
                return ""
            continue
        reach = max(reach, int(polls.stand[poll]))
    return f"its end was not reached: it was read up to offset {reach}"
