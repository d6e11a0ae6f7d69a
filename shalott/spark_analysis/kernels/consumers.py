"""What queues' consumers got, queue by queue: checkers/consumers, in the columns of CONSUMED."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shalott.checkers.consumers.consume_case import Case
from shalott.checkers.consumers.consumer_fates import (
    CONSUMED,
    DEAD_LETTERED,
    DOUBTFUL,
    DRAINED,
    LOST,
    UNSURE,
    message_fates,
)
from shalott.checkers.consumers.consumer_liveness import consumer_liveness
from shalott.checkers.consumers.queue_order import queue_order
from shalott.checkers.consumers.redeliveries import Pairs, causes, judge_pairs
from shalott.checkers.consumers.rows import OK
from shalott.checkers.history.columns import Ints
from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX, Row

Tables = dict[str, list[Row]]


def consume_rows(run: str, case: Case) -> Tables:
    """Rows of CONSUMED, UNDRAINED, REDELIVERIES, REDELIVERY_CAUSES, ORDER and CONSUMER_GAPS."""
    undrained = case.once(message_fates).undrained
    pairs = case.once(judge_pairs).pairs
    return {
        "consumed_messages": list(_consumed(run, case, pairs)),
        "undrained": [{"run": run, "queue": name, "why": why} for name, why in undrained.items()],
        "redeliveries": list(_again(run, case, pairs)),
        "redelivery_causes": [
            {"run": run, "kind": "consume", "lane": "", "cause": cause, "deliveries": count}
            for cause, count in causes(case, pairs).items()
            if count
        ],
        "order": list(_order(run, case)),
        "consumer_gaps": list(_gaps(run, case)),
    }


def _consumed(run: str, case: Case, pairs: Pairs) -> Iterator[Row]:
    fates, published, deliveries = (
        case.once(message_fates),
        case.rows.published,
        case.rows.deliveries,
    )
    size = len(case.rows.queues)
    is_judged = fates.fate >= 0
    seen = (CONSUMED, DRAINED, DEAD_LETTERED, UNSURE)
    open_queues = [name in fates.undrained for name in case.rows.queues]
    # In a queue that was not emptied it may be lost: the report says so of all such queues.
    is_lost = (fates.fate == LOST) | (
        (fates.fate == DOUBTFUL) & np.array([*open_queues, False], np.bool_)[published.queue]
    )
    of_queue = deliveries.queue[pairs.again]

    def count(codes: Ints) -> Ints:
        return np.bincount(codes[codes >= 0], minlength=size)

    counts = {
        "attempts": count(published.queue),
        "acknowledged": count(published.queue[published.ack == OK]),
        "deliveries": count(deliveries.queue[~deliveries.taken]),
        "again": count(of_queue),
        "again_unflagged": count(of_queue[~deliveries.flagged[pairs.again]]),
        "consumed": count(published.queue[fates.fate == CONSUMED]),
        "drained": count(published.queue[fates.fate == DRAINED]),
        "dead_lettered": count(published.queue[fates.fate == DEAD_LETTERED]),
        "unsure": count(published.queue[fates.fate == UNSURE]),
        "gone": count(published.queue[is_judged & ~np.isin(fates.fate, seen)]),
        "lost": count(published.queue[is_lost]),
    }
    used = np.flatnonzero(counts["attempts"] + count(deliveries.queue))
    for code in used.tolist():
        own_lost = np.flatnonzero(is_lost & (published.queue == code))
        own_again = pairs.again[of_queue == code]
        yield {
            "run": run, "kind": "consume", "lane": case.rows.queues[code], "skipped": 0,
            **{name: int(found[code]) for name, found in counts.items()},
            "lost_operations": _first(published.index[own_lost]), "skipped_operations": [],
            "again_operations": _first(deliveries.index[own_again]),
        }  # fmt: skip


def _first(indexes: Ints) -> list[int]:
    return [int(index) for index in np.unique(indexes)[:OPERATIONS_MAX]]


def _again(run: str, case: Case, pairs: Pairs) -> Iterator[Row]:
    deliveries = case.rows.deliveries
    again = deliveries.queue[pairs.again]
    bare = again[~deliveries.flagged[pairs.again]]
    for code in np.unique(deliveries.queue[deliveries.queue >= 0]).tolist():
        own = (deliveries.queue == code) & (deliveries.message >= 0)
        times = np.bincount(deliveries.message[own]) if own.any() else np.zeros(1, np.int64)
        yield {
            "run": run, "kind": "consume", "lane": case.rows.queues[code],
            "deliveries": int((deliveries.queue == code).sum()),
            "again": int((again == code).sum()), "unflagged": int((bare == code).sum()),
            "by_one_master": None, "most": int(times.max()),
        }  # fmt: skip


def _order(run: str, case: Case) -> Iterator[Row]:
    found = queue_order(case)
    if not found.anomalies:
        yield _order_row(run, "", "", found.judged, 0, ())
    for anomaly in found.anomalies:
        lane = str(anomaly.detail.get("queue") or "")
        count = int(anomaly.detail.get("count", 1))
        yield _order_row(run, lane, anomaly.kind, found.judged, count, anomaly.operations)


def _order_row(
    run: str, lane: str, breach: str, judged: int, count: int, operations: tuple[int, ...]
) -> Row:
    return {
        "run": run, "kind": "consume", "lane": lane, "breach": breach, "judged": judged,
        "count": count, "operations": list(operations[:OPERATIONS_MAX]),
    }  # fmt: skip


def _gaps(run: str, case: Case) -> Iterator[Row]:
    """While consumers of a queue were there, how long none of them was given anything."""
    deliveries, consumers = case.rows.deliveries, case.rows.consumers
    stuck = [anomaly.detail["queue"] for anomaly in consumer_liveness(case).anomalies]
    for code in np.unique(consumers.queue[consumers.queue >= 0]).tolist():
        own = consumers.queue == code
        begin_ns = int(consumers.begin_ns[own].min())
        end_ns = int(np.minimum(consumers.end_ns[own], case.around.end_ns).max())
        came_ns = deliveries.at_ns[(deliveries.queue == code) & ~deliveries.taken]
        name = case.rows.queues[code]
        yield gap_row(run, "consume", name, came_ns, begin_ns, end_ns, stuck.count(name))


def gap_row(
    run: str, kind: str, lane: str, came_ns: Ints, begin_ns: int, end_ns: int, stuck: int
) -> Row:
    """The longest stretch from ``begin_ns`` to ``end_ns`` in which nothing came."""
    inside = np.sort(came_ns[(came_ns > begin_ns) & (came_ns < end_ns)])
    edges = np.concatenate(([begin_ns], inside, [max(begin_ns, end_ns)]))
    worst = int(np.argmax(np.diff(edges)))
    return {
        "run": run, "kind": kind, "lane": lane, "deliveries": len(came_ns),
        "longest_ns": int(edges[worst + 1] - edges[worst]),
        "begin_ns": int(edges[worst]), "end_ns": int(edges[worst + 1]),
        "stuck": stuck, "skipped": 0, "skipped_operations": [],
    }  # fmt: skip
