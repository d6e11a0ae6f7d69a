"""What every node holds at the end, as its final reads tell it, and whether they can be trusted.

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

from shalott.checkers.history.columns import Bools, Ints
from shalott.checkers.history.faults import Surroundings
from shalott.checkers.logs.records import NOWHERE, LogHistory, Polls


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
    """Look at the drain phase."""
    ops, polls = log.ops, log.polls
    served = tuple(ops.node.names[code] for code in np.unique(ops.node.codes))
    nodes = tuple(node for node in served if node not in around.left_out)
    used = np.unique(np.concatenate((log.sends.key, polls.key)))
    keys = tuple(ops.key.names[code] for code in used)
    drain, settle = around.phase("drain"), around.phase("settle")
    reason = "there was no drain" if drain is None else ""
    if drain is not None and drain.end_ns is None:
        reason = "the drain did not end"
    if not complete:
        reason = "the recording was cut short"
    begin_ns = 0 if drain is None else drain.begin_ns
    in_drain = ops.invoke_ns[polls.row] >= begin_ns if drain else np.zeros(len(polls.row), bool)
    missing = dict(_missing(log, nodes, keys, np.asarray(in_drain), reason))
    return FinalReads(
        nodes=nodes,
        keys=keys,
        missing=missing,
        is_final=np.repeat(np.asarray(in_drain, dtype=np.bool_), polls.count),
        settled=settle is None or settle.settled is not False,
    )


def _missing(
    log: LogHistory, nodes: Sequence[str], keys: Sequence[str], in_drain: Bools, reason: str
) -> Iterator[tuple[tuple[str, str], str]]:
    node_codes = log.ops.node.codes[log.polls.row]
    for node in nodes:
        at_node = in_drain & (node_codes == log.ops.node.names.index(node))
        for key in keys:
            if reason:
                yield (node, key), reason
                continue
            own = np.flatnonzero(at_node & (log.polls.key == log.ops.key.names.index(key)))
            gap = _why_not_whole(log.polls, log.records.offset, own)
            if gap:
                yield (node, key), gap


def _why_not_whole(polls: Polls, offset: Ints, own: Ints) -> str:
    """Of one queue at one node; "" if its polls read it from 0 to its end."""
    if not len(own):
        return "it was not read at the end"
    reach = 0
    for poll in own[np.lexsort((polls.count[own] == 0, polls.start[own]))]:
        start, first, count = int(polls.start[poll]), int(polls.first[poll]), int(polls.count[poll])
        if start > reach:
            return f"no client read on from offset {reach}"
        if polls.moved[poll] != NOWHERE:
            reach = max(reach, int(polls.moved[poll]) if polls.moved[poll] > start else 0)
            continue
        if not count:
            if start == reach:
                return ""
            continue
        reach = max(reach, int(offset[first : first + count].max()) + 1)
    return f"its end was not reached: it was read up to offset {reach}"
