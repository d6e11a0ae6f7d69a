"""Consumers that leave: what they are given afterwards, those that should have left, and those
that should not.

Source: AMQP 0-9-1, basic.cancel: after it the server sends no more messages for that consumer,
except those that were under way before cancel-ok; RabbitMQ's guides Consumers, Cancellation, and
Consumer Cancel Notification; Classic Queue Mirroring, Cancelling Consumers upon Failover: clients
that consume with x-cancel-on-ha-failover are cancelled then.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.checker import Anomaly
from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.intervals import S
from shalott.checkers.consumers.quiet_times import SLACK_NS
from shalott.checkers.history.columns import NEVER, Bools, Ints

GONE = ("cancelled", "cancelled-by-server")
TOLD_NS = 5 * S  # so long after a new master rules, consumers of the old one know of it


def cancel(case: Case) -> Finding:
    """A cancelled consumer gets nothing more; one that asked for it is cancelled at a failover; and
    no other by the server, as long as its queue is there.

    Source: in the module's docstring.
    """
    late = np.flatnonzero(served_after_leaving(case))
    driven_out = [each for each in range(len(case.rows.consumers)) if _has_no_cause(case, each)]
    kept = np.flatnonzero(_served_after_failover(case))
    consumers = case.rows.consumers
    ended = np.isin(np.array(consumers.ended), GONE)
    return Finding(
        judged=int(ended.sum()) + int(consumers.cancel_on_failover.sum()),
        anomalies=[
            *anomaly_of(case, "to-cancelled", late, [_rows(case, late)],
                        "delivered to a consumer that had been cancelled"),
            *anomaly_of(case, "not-cancelled", kept, [_rows(case, kept)],
                        "delivered after a failover to a consumer that was to be cancelled by it"),
            *(_driven_out(case, consumer) for consumer in driven_out),
        ],
        counts={
            "cancelled-consumer-count": int(ended.sum()),
            "to-cancelled-count": len(late),
            "not-cancelled-count": len(kept),
            "cancelled-for-nothing-count": len(driven_out),
        },
    )  # fmt: skip


def _has_no_cause(case: Case, consumer: int) -> bool:
    """Whether the server cancelled it though nothing had happened to its queue while it was there.

    A queue that expires is no cause: it does so when it has had no consumer for a while.
    """
    consumers = case.rows.consumers
    if consumers.ended[consumer] != "cancelled-by-server":
        return False
    queue, end_ns = int(consumers.queue[consumer]), int(consumers.end_ns[consumer])
    since_ns = int(consumers.active_ns[consumer])
    if queue < 0 or since_ns == NEVER:
        return False
    causes = [*case.calm.troubles]
    causes += [(c.begin_ns, c.end_ns) for c in case.rows.changes if c.queue == queue and c.gone]
    causes += [
        (event.run_ns - SLACK_NS, event.run_ns + TOLD_NS)
        for event in case.events
        if event.group in ("", case.rows.queues[queue])
        and (event.kind == "crashed" or event.detail.get("started_as") == "promoted")
    ]
    return not any(begin <= end_ns and until >= since_ns for begin, until in causes)


def _driven_out(case: Case, consumer: int) -> Anomaly:
    consumers = case.rows.consumers
    queue = case.rows.queues[consumers.queue[consumer]]
    return Anomaly(
        kind="cancelled-for-nothing",
        summary=f"{consumers.name[consumer]} was cancelled by the server, though no client had"
        f" deleted {queue} and its master was the same",
        operations=(int(consumers.index[consumer]),),
        detail={"consumer": consumers.name[consumer], "queue": queue},
    )


def _rows(case: Case, deliveries: Ints) -> Ints:
    return case.rows.consumers.index[case.rows.deliveries.consumer[deliveries]]


def served_after_leaving(case: Case) -> Bools:
    """Deliveries to consumers whose end their client had seen: on one channel nothing overtakes."""
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    ended = np.array([name in GONE for name in consumers.ended], dtype=np.bool_)
    end_ns = np.append(np.where(ended, consumers.end_ns, NEVER), NEVER)
    return np.asarray(deliveries.at_ns > end_ns[deliveries.consumer])


def _served_after_failover(case: Case) -> Bools:
    """Deliveries by another master than the one at which a consumer began that wanted to end."""
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    active_ns = np.where(consumers.active_ns == NEVER, -1, consumers.active_ns)
    first = np.append(case.calm.ruled.at(consumers.queue, active_ns), -1)
    wanted = np.append(consumers.cancel_on_failover, False)[deliveries.consumer]
    began = first[deliveries.consumer]
    now = case.ruled
    since_ns = case.calm.ruled.begin_of(now) + TOLD_NS
    moved = (began >= 0) & (now > began) & _another_master(case, began, now)
    return np.asarray(wanted & moved & (deliveries.at_ns > since_ns) & ~deliveries.taken)


def _another_master(case: Case, before: Ints, now: Ints) -> Bools:
    """Whether a master took the queue over between two ruled stretches: not each gap is one."""
    turns = np.array(
        sorted(
            event.run_ns
            for event in case.events
            if event.role == "master" and event.kind == "role" and event.group in case.rows.queues
        ),
        dtype=np.int64,
    )
    queues = case.calm.ruled.place
    groups = [
        np.array(
            sorted(
                event.run_ns
                for event in case.events
                if event.kind == "role" and event.role == "master" and event.group == name
            ),
            dtype=np.int64,
        )
        for name in case.rows.queues
    ]
    found = np.zeros(len(now), dtype=np.bool_)
    if not len(turns):
        return found
    for place in np.flatnonzero((before >= 0) & (now > before)):
        own = groups[int(queues[now[place]])]
        begin, end = case.calm.ruled.end[before[place]], case.calm.ruled.begin[now[place]]
        found[place] = bool(((own >= begin) & (own <= end)).any())
    return found
