"""Who had which queue, from when to when, and how it ended.

A tenure is a consumer of a queue (``consume``), or a queue that was a member's (``group``). Those
of one block of the picture are packed into rows: a consumer takes a row that is free, a queue of a
group has rows of its own, more than one if two members had it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.history.columns import Ints
from shalott.harness.report import draw
from shalott.harness.report.consumer_deliveries import Deliveries
from shalott.harness.report.consumer_rows import Rows


@dataclass(frozen=True, slots=True)
class Tenure:
    """``block``: the queue, or the group. ``holder``: the consumer, or the member. Times in ns."""

    block: str
    holder: str
    queue: str
    begin_ns: int
    end_ns: int
    ended: str
    error: str
    node: str
    index: int  # of the history
    note: str  # what else is to be known of it


@dataclass(frozen=True, slots=True)
class Placed:
    """A tenure's row in its block."""

    tenure: int  # position among the tenures
    row: int


def tenures_of(rows: Rows, end_ns: int) -> list[Tenure]:
    own = rows.of("assignment" if rows.kind == "group" else "consumer")
    found = [_tenure(rows.kind, row, end_ns) for row in rows.table.take(own).to_pylist()]
    return sorted(found, key=lambda one: (one.block, one.begin_ns, one.index))


def _tenure(kind: str, row: dict[str, object], end_ns: int) -> Tenure:
    end = row["complete_ns"]
    is_group = kind == "group"
    return Tenure(
        block=str((row["x_group"] if is_group else row["key"]) or ""),
        holder=str(row["x_member" if is_group else "x_consumer"] or ""),
        queue=str(row["key"] or ""),
        begin_ns=int(str(row["invoke_ns"])),
        end_ns=end_ns if end is None else int(str(end)),
        ended=str(row["x_ended"] or ""),
        error=str((None if is_group else row["x_error"]) or row["error"] or ""),
        node=str(row["node"] or ""),
        index=int(str(row["index"])),
        note=_note(row, is_group=is_group),
    )


def _note(row: dict[str, object], *, is_group: bool) -> str:
    if is_group:
        where = "" if row["offset"] is None else f"from offset {row['offset']:,}"
        return f"{where} ({row['x_why']})" if where and row["x_why"] else where
    parts = []
    if row["x_prefetch"] is not None:
        parts.append(f"prefetch {row['x_prefetch']}" if row["x_prefetch"] else "no prefetch limit")
    if row["x_no_ack"]:
        parts.append("acknowledges nothing")
    if row["x_active_ns"] is None:
        parts.append("was never told that it consumes")
    return ", ".join(parts)


def of_deliveries(kind: str, tenures: Sequence[Tenure], found: Deliveries) -> Ints:
    """For each delivery the position of the tenure that it came to; -1 if there is none.

    Names are unique, but a member may have a queue more than once: the latest that had begun.
    """
    names = [_holding(kind, one.holder, one.queue) for one in tenures]
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}
    begins = np.array([one.begin_ns for one in tenures], dtype=np.int64)
    keys = np.array([place[name] for name in names], dtype=np.int64)
    if not len(keys) or not len(found):
        return np.full(len(found), -1, dtype=np.int64)
    wanted = _codes_of_deliveries(kind, place, found)
    order = np.lexsort((begins, keys))
    # One list of times for all: each key's lie apart from those of the key before.
    span = int(max(begins.max(), found.begin_ns.max())) + 1
    line = keys[order] * span + begins[order]
    at = np.searchsorted(line, wanted * span + found.begin_ns, side="right") - 1
    at = np.maximum(at, 0)
    same = keys[order][at] == wanted
    return np.where(same, order[at], -1)


def _holding(kind: str, holder: str, queue: str) -> tuple[str, str]:
    return (holder, queue if kind == "group" else "")


def _codes_of_deliveries(kind: str, place: dict[tuple[str, str], int], found: Deliveries) -> Ints:
    holders, queues = found.holder, found.queue
    table = np.full((len(holders.names) + 1, len(queues.names) + 1), -1, dtype=np.int64)
    for h, holder in enumerate(holders.names):
        for q, queue in enumerate(queues.names):
            table[h, q] = place.get(_holding(kind, holder, queue), -1)
    return np.asarray(table[holders.codes, queues.codes])


def packed(
    kind: str, tenures: Sequence[Tenure], members: Sequence[int], gap_ns: float
) -> list[Placed]:
    """The tenures of one block (positions ``members``) in rows, from the top."""
    lanes: dict[str, list[int]] = {}
    for position in members:
        lanes.setdefault(tenures[position].queue if kind == "group" else "", []).append(position)
    placed, first = [], 0
    for lane in sorted(lanes, key=_natural):
        own = lanes[lane]
        spans = [(float(tenures[p].begin_ns), float(tenures[p].end_ns)) for p in own]
        # Who follows at once on another's queue stands in the same row: that is no overlap.
        rows = draw.pack_rows(spans, gap_ns if kind == "consume" else 0)
        placed += [Placed(position, first + row) for position, row in zip(own, rows, strict=True)]
        first += max(rows) + 1
    return placed


def _natural(name: str) -> tuple[str, int, str]:
    """q/2 before q/10."""
    head, _, tail = name.rpartition("/")
    return (head, int(tail), "") if tail.isdigit() else (name, -1, name)


def counted(which: Ints, count: int) -> Ints:
    """How many deliveries came to each of ``count`` tenures."""
    return np.bincount(which[which >= 0], minlength=count).astype(np.int64)
