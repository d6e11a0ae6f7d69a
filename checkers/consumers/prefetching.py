"""prefetch: never more unsettled deliveries with a consumer than its limit.

Source: AMQP 0-9-1, basic.qos; RabbitMQ, Consumer Prefetch: "the value defines the max number of
unacknowledged deliveries that are permitted on a channel"; with global false it is "applied
separately to each new consumer on the channel", with true "shared across all consumers" of it.

Theory. What the client has read and not settled is at most what the broker has sent and not seen
settled: a settlement counts from when it was sent, and what is still on its way to the client does
not count. So the client's count, right after it has read a delivery, proves the broker's. A
failover gives a consumer a new window beside the deliveries of the old master, and nobody but the
channel's node knows when: only deliveries of one quiet stretch count together; of a channel's
limit, such in which every queue was quiet.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.case import Case
from shalott.checkers.consumers.finding import Finding, anomaly_of
from shalott.checkers.consumers.settling import AUTO
from shalott.checkers.history.columns import Ints


def prefetch(case: Case) -> Finding:
    """Never more unsettled deliveries with a consumer, or on a channel, than its limit.

    Source: in the module's docstring.
    """
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    limit = np.append(consumers.prefetch, 0)[deliveries.consumer]
    shared = np.append(consumers.shared, False)[deliveries.consumer]
    counts = (limit > 0) & ~deliveries.taken & (deliveries.settled.kind != AUTO)
    own = np.flatnonzero(counts & ~shared & (case.quiet >= 0))
    over = [_over(case, own, deliveries.consumer[own], case.quiet[own], limit[own])]
    together = np.flatnonzero(counts & shared)
    everywhere = np.full(len(together), len(case.rows.queues))
    quiet = case.calm.quiet.at(everywhere, deliveries.at_ns[together])
    together, quiet = together[quiet >= 0], quiet[quiet >= 0]
    over.append(_over(case, together, deliveries.channel[together], quiet, limit[together]))
    found = np.sort(np.concatenate(over))
    return Finding(
        judged=len(own) + len(together),
        anomalies=anomaly_of(
            case, "prefetch", found, [consumers.index[deliveries.consumer[found]]],
            "delivered beyond the limit of unsettled deliveries",
        ),
        counts={"prefetch-exceeded-count": len(found)},
    )  # fmt: skip


def _over(case: Case, own: Ints, holder: Ints, stretch: Ints, limit: Ints) -> Ints:
    """The deliveries that made too many with their holder, a consumer or a channel."""
    if not len(own):
        return own
    number, rank = ranks(holder, stretch)
    at_ns = case.rows.deliveries.at_ns[own]
    settled = settled_before(case, own, number, at_ns)
    return own[rank + 1 - settled > limit]


def ranks(holder: Ints, stretch: Ints) -> tuple[Ints, Ints]:
    """Of rows in order of time: a number for each pair of holder and stretch, and how many rows of
    that pair came before."""
    width = int(stretch.max()) + 1
    key = holder * width + stretch
    distinct, number = np.unique(key, return_inverse=True)
    order = np.argsort(number, kind="stable")
    begin = np.concatenate(([0], np.cumsum(np.bincount(number, minlength=len(distinct)))))[:-1]
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - begin[number[order]]
    return number, rank


def settled_before(case: Case, own: Ints, number: Ints, at_ns: Ints) -> Ints:
    """How many deliveries of the same number had been settled, by what was sent before."""
    sent_ns = case.rows.deliveries.settled.sent_ns[own]
    last_ns = int(at_ns.max()) + 1
    width = last_ns + 2
    sent = np.sort(number * width + np.minimum(sent_ns, last_ns))
    begin = np.searchsorted(sent, number * width)
    return np.searchsorted(sent, number * width + at_ns) - begin
