"""purge: what was ready when a queue was purged does not come out of it afterwards.

Source: AMQP 0-9-1, queue.purge: "removes all messages from a queue which are not awaiting
acknowledgment".

Theory. A message was certainly ready if it was confirmed before the purge was asked for, and comes
for the first time, without a flag, more than ``LATE_NS`` after it was answered: what was on its way
to a consumer comes sooner, unless a limit of its channel holds it back. Only where one master ruled
from the confirm to the delivery: a mirror that is promoted may have heard of the message and not of
the purge.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.redeliveries import LATE_NS
from shalott.checkers.consumers.rows import OK
from shalott.checkers.history.columns import NEVER, Ints


def purge(case: Case) -> Finding:
    """What was purged is gone.

    Source: in the module's docstring.
    """
    answered = [each for each in case.rows.purges if each.end_ns != NEVER]
    late = [_delivered_after(case, each.queue, each.begin_ns, each.end_ns) for each in answered]
    found = np.unique(np.concatenate(late)) if late else np.zeros(0, dtype=np.int64)
    published = case.rows.published.index[case.rows.deliveries.message[found]]
    return Finding(
        judged=len(answered),
        anomalies=anomaly_of(
            case, "purged-delivered", found, [published], "delivered after their queue was purged"
        ),
        counts={"purged-delivered-count": len(found)},
    )


def _delivered_after(case: Case, code: int, begin_ns: int, end_ns: int) -> Ints:
    """First deliveries of what was ready in the queue before it was purged."""
    published, deliveries = case.rows.published, case.rows.deliveries
    own = np.flatnonzero((published.queue == code) & (published.ack == OK) & (case.first >= 0))
    own = own[published.complete_ns[own] < begin_ns]
    first = case.first[own]
    since = case.calm.ruled.at(published.queue[own], published.complete_ns[own])
    kept = (since == case.ruled[first]) & (since >= 0) & ~deliveries.flagged[first]
    kept &= (case.quiet[first] >= 0) & (
        case.quiet[first] == case.calm.quiet.at(published.queue[own], np.full(len(own), end_ns))
    )
    shared = np.append(case.rows.consumers.shared, False)[deliveries.consumer[first]]
    kept &= (deliveries.begin_ns[first] > end_ns + LATE_NS) & ~shared
    return np.asarray(first[kept])
