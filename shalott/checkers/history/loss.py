"""The anatomy of loss: in what shape, through which node and around which fault messages were lost.

The shape is the evidence. When a replica that had confirmed messages is wiped by another that had
not seen them, what is lost is a contiguous run in the order of acknowledgement (Jepsen's RabbitMQ
analysis of 2014: 234 of 239 lost messages form one tail); scattered single losses point elsewhere.
Prefix, middle and suffix are those of the NATS queue checker (jepsen-io/nats), here by queue and by
writing process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np

from shalott.checkers.history.columns import Bools, Codes, Ints, Operations, by_group
from shalott.checkers.history.faults import Fault

POSITIONS = ("prefix", "middle", "suffix", "whole")  # whole: nothing of it survived


LossDetail = dict[str, Any]  # the anatomy of a loss, as results.json keeps it; {}: none


class FaultWindow(TypedDict):
    window: str
    acknowledged: int
    lost: int


# What is told of a run of losses: where, how long, who acknowledged it, and why.
LossStory = TypedDict(
    "LossStory",
    {
        "queue": str,
        "node": str,
        "acknowledged-by": list[str],
        "length": int,
        "first": int,
        "last": int,
        "begin_ns": int,
        "end_ns": int,
        "window": str,
        "cause": str,
        "why": str,
        "evidence": NotRequired[Mapping[str, object]],
        "steps": list[dict[str, object]],
        "operations": list[int],
    },
)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The acknowledged messages of all queues, sorted by group and then by acknowledgement.

    A group is a queue, or a queue and the node that the publish went through.
    """

    row: Ints  # position in the operations
    queue: Codes
    group: Ints
    by_node: bool
    at_ns: Ints  # when it was acknowledged
    is_lost: Bools


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of one group that were acknowledged one after the other, all of them lost."""

    queue: str
    node: str  # "" if the publishes of all nodes were counted
    begin: int  # positions in Acknowledged
    end: int
    begin_ns: int  # acknowledgement of the first and of the last
    end_ns: int

    @property
    def length(self) -> int:
        return self.end - self.begin


def acknowledged_messages(
    ops: Operations, rows: Ints, is_lost: Bools, *, by_node: bool = False
) -> Acknowledged:
    """``rows``: positions of the acknowledged enqueues in the operations."""
    queue, at_ns = ops.key.codes[rows], ops.complete_ns[rows]
    group = queue.astype(np.int64)
    if by_node:
        group = group * len(ops.node.names) + ops.node.codes[rows]
    order = np.lexsort((rows, at_ns))
    order = order[by_group(group[order])]
    return Acknowledged(
        row=rows[order],
        queue=queue[order],
        group=group[order],
        by_node=by_node,
        at_ns=at_ns[order],
        is_lost=is_lost[order],
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """Every maximal run of losses, as columns: positions in Acknowledged."""

    begin: Ints
    end: Ints

    @property
    def lengths(self) -> Ints:
        return self.end - self.begin

    def longest(self, ops: Operations, acked: Acknowledged, count: int) -> list[Run]:
        """The longest ones, longest first."""
        order = np.argsort(-self.lengths, kind="stable")[:count]
        return [
            _run(ops, acked, int(begin), int(end))
            for begin, end in zip(self.begin[order], self.end[order], strict=True)
        ]


def lost_runs(acked: Acknowledged) -> Runs:
    return Runs(*_stretches(acked.is_lost, acked.group))


def _run(ops: Operations, acked: Acknowledged, begin: int, end: int) -> Run:
    return Run(
        queue=ops.key.names[acked.queue[begin]],
        node=ops.node.names[ops.node.codes[acked.row[begin]]] if acked.by_node else "",
        begin=begin,
        end=end,
        begin_ns=int(acked.at_ns[begin]),
        end_ns=int(acked.at_ns[end - 1]),
    )


def _stretches(mask: Bools, group: Ints) -> tuple[Ints, Ints]:
    """Begins and ends of the stretches where ``mask`` holds within one group."""
    changes = np.flatnonzero((mask[1:] != mask[:-1]) | (group[1:] != group[:-1])) + 1
    edges = np.concatenate(([0], changes, [len(mask)]))
    begins, ends = edges[:-1], edges[1:]
    held = mask[begins]
    return begins[held], ends[held]


def positions_by_group(group: Ints | Codes, order: Ints, is_lost: Bools) -> dict[int, list[int]]:
    """Lost messages of each group that lost any, as counts in order of POSITIONS.

    ``order`` sorts the messages within their group.
    """
    if not is_lost.any():
        return {}
    sorted_by_group = np.lexsort((order, group))
    groups, lost = group[sorted_by_group], is_lost[sorted_by_group]
    begins = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    ends = np.concatenate((begins[1:], [len(groups)]))
    totals = np.add.reduceat(lost.astype(np.int64), begins)
    result: dict[int, list[int]] = {}
    for begin, end, total in zip(begins, ends, totals, strict=True):
        if total:
            result[int(groups[begin])] = _positions(lost[begin:end], int(total))
    return result


def _positions(lost: Bools, total: int) -> list[int]:
    if total == len(lost):
        return [0, 0, 0, total]
    kept = np.flatnonzero(~lost)
    prefix, suffix = int(kept[0]), int(len(lost) - 1 - kept[-1])
    return [prefix, total - prefix - suffix, suffix, 0]


def counts_by_node(ops: Operations, acked: Acknowledged) -> dict[str, dict[str, int]]:
    """By the node that the publish went through: how many were acknowledged, how many are lost."""
    codes = ops.node.codes[acked.row]
    size = len(ops.node.names)
    total = np.bincount(codes, minlength=size)
    lost = np.bincount(codes[acked.is_lost], minlength=size)
    return {
        name: {"acknowledged": int(total[code]), "lost": int(lost[code])}
        for code, name in enumerate(ops.node.names)
        if total[code]
    }


def counts_by_fault_window(faults: Sequence[Fault], acked: Acknowledged) -> list[FaultWindow]:
    """By the faults in force at the acknowledgement, or the last one that had ended before it."""
    edges = sorted({edge for fault in faults for edge in (fault.invoke_ns, fault.end_ns + 1)})
    window = np.searchsorted(np.array(edges, dtype=np.int64), acked.at_ns, side="right")
    total = np.bincount(window, minlength=len(edges) + 1)
    lost = np.bincount(window[acked.is_lost], minlength=len(edges) + 1)
    merged: dict[str, FaultWindow] = {}
    for number in np.flatnonzero(total):
        at_ns = edges[number - 1] if number else -1
        label = window_label(faults, at_ns)
        row = merged.setdefault(label, {"window": label, "acknowledged": 0, "lost": 0})
        row["acknowledged"] += int(total[number])
        row["lost"] += int(lost[number])
    return list(merged.values())


def window_label(faults: Sequence[Fault], at_ns: int) -> str:
    """Where an instant lies among the faults, in words."""
    during = [fault for fault in faults if fault.invoke_ns <= at_ns <= fault.end_ns]
    if during:
        return "during " + ", ".join(fault.name for fault in during)
    before = [fault for fault in faults if fault.end_ns < at_ns]
    if before:
        return "after " + max(before, key=lambda fault: fault.end_ns).name
    return "before the first fault" if faults else "no fault"
