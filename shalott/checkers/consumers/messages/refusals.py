"""Acknowledgements that a server refused though they were right.

A server that has settled more than it was asked to does not know a delivery any more that its
client settles later, and closes the channel: 406, unknown delivery tag. Where the client settled
nothing twice, and nothing that it had not been given, the mistake is the server's.

Source: AMQP 0-9-1, basic.ack, delivery-tag and multiple (up to and including the tag); RabbitMQ,
Consumer Acknowledgements, Client Errors: Double Acking and Unknown Tags.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.base import OPERATIONS_MAX, Anomaly
from shalott.checkers.consumers.case.case import Case

UNKNOWN_TAG = "unknown delivery tag"


def refused_acks(case: Case) -> list[Anomaly]:
    """One anomaly for all channels that were closed like that without a reason."""
    channels, rows = case.rows.channels, case.rows.settlements
    closed = [code for code, why in enumerate(channels.error) if UNKNOWN_TAG in why]
    wrong = [code for code in closed if _settled_rightly(case, code)]
    if not wrong:
        return []
    last = [int(rows.index[rows.channel == code][-1]) for code in wrong]
    names = [channels.name[code] for code in wrong]
    return [
        Anomaly(
            kind="refused-ack",
            summary=f"{len(wrong)} channels were closed for an unknown delivery tag, though their"
            f" clients settled only what was theirs to settle: {', '.join(names[:3])}",
            operations=tuple(last[:OPERATIONS_MAX]),
            detail={"count": len(wrong), "channels": names[:100]},
        )
    ]


def _settled_rightly(case: Case, code: int) -> bool:
    """Whether each row of the channel settled something that had not been settled."""
    rows, by = case.rows.settlements, case.rows.deliveries.settled.by
    own = np.flatnonzero((rows.channel == code) & ((rows.tag > 0) | (rows.upto > 0)))
    return len(own) > 0 and bool(np.isin(own, by).all())
