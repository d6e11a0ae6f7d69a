"""prefetch: never more unsettled deliveries with a consumer than its limit.

Source: AMQP 0-9-1, basic.qos; RabbitMQ, Consumer Prefetch: "the value defines the max number of
unacknowledged deliveries that are permitted on a channel"; with global false it is "applied
separately to each new consumer on the channel", with true "shared across all consumers" of it.

Theory. What the client has read and not settled is at most what the broker has sent and not seen
settled: a settlement counts from when it was sent, and what is still on its way to the client does
not count. So the client's count, right after it has read a delivery, proves the broker's. A
failover gives a consumer a new window beside the deliveries of the old master, and none but the
channel's node knows when: only deliveries of one quiet stretch count together; of a channel's
limit, such in which every queue was quiet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.consumers.consume_case import Case, Finding, anomaly_of
from shalott.checkers.consumers.rows import AUTO
from shalott.checkers.history.columns import Bools, Ints


@dataclass(frozen=True, slots=True)
class Windows:
    """Deliveries that count against a limit of their holder's, in order of time."""

    row: Ints  # positions in the deliveries
    number: Ints  # of the holder, a consumer or a channel, in one quiet stretch
    rank: Ints  # how many of that came before
    limit: Ints


def prefetch(case: Case) -> Finding:
    """Never more unsettled deliveries with a consumer, or on a channel, than its limit.

    Source: in the module's docstring.
    """
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    own, shared = case.once(own_windows), _shared_windows(case)
    found = np.sort(
        np.concatenate(
            (
                _over(case, own, case.once(own_settled)),
                _over(case, shared, settled_in(case, shared)),
            )
        )
    )
    return Finding(
        judged=len(own.row) + len(shared.row),
        anomalies=anomaly_of(
            case, "prefetch", found, [consumers.index[deliveries.consumer[found]]],
            "delivered beyond the limit of unsettled deliveries",
        ),
        counts={"prefetch-exceeded-count": len(found)},
    )  # fmt: skip


def own_windows(case: Case) -> Windows:
    """Those of consumers with a limit of their own."""
    deliveries = case.rows.deliveries
    limit, shared = _limits(case)
    own = np.flatnonzero((limit > 0) & ~shared & (case.quiet >= 0))
    return Windows(own, *ranks(deliveries.consumer[own], case.quiet[own]), limit[own])


def _shared_windows(case: Case) -> Windows:
    """Those of channels with a limit for all their consumers together."""
    deliveries = case.rows.deliveries
    limit, shared = _limits(case)
    own = np.flatnonzero((limit > 0) & shared)
    everywhere = np.full(len(own), len(case.rows.queues))
    quiet = case.calm.quiet.at(everywhere, deliveries.at_ns[own])
    own, quiet = own[quiet >= 0], quiet[quiet >= 0]
    return Windows(own, *ranks(deliveries.channel[own], quiet), limit[own])


def _limits(case: Case) -> tuple[Ints, Bools]:
    """Of each delivery the limit that it counts against, 0 if none, and whether it is shared."""
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    limit = np.append(consumers.prefetch, 0)[deliveries.consumer]
    counts = ~deliveries.taken & (deliveries.settled.kind != AUTO)
    return np.where(counts, limit, 0), np.append(consumers.shared, False)[deliveries.consumer]


def _over(case: Case, windows: Windows, settled_by: Tally) -> Ints:
    """The deliveries that made too many."""
    if not len(windows.row):
        return windows.row
    at_ns = case.rows.deliveries.at_ns[windows.row]
    settled = settled_by.before(windows.number, at_ns)
    return np.asarray(windows.row[windows.rank + 1 - settled > windows.limit])


def ranks(holder: Ints, stretch: Ints) -> tuple[Ints, Ints]:
    """Of rows in order of time: a number for each pair of holder and stretch, and how many rows of
    that pair came before."""
    width = int(stretch.max(initial=0)) + 1
    key = holder * width + stretch
    distinct, number = np.unique(key, return_inverse=True)
    order = np.argsort(number, kind="stable")
    begin = np.concatenate(([0], np.cumsum(np.bincount(number, minlength=len(distinct)))))[:-1]
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - begin[number[order]]
    return number, rank


@dataclass(frozen=True, slots=True)
class Tally:
    keys: Ints
    width: int

    @classmethod
    def of(cls, number: Ints, at_ns: Ints, last_ns: int) -> Tally:
        """``last_ns``: no instant counts beyond it."""
        width = last_ns + 2
        return cls(np.sort(number * width + np.minimum(at_ns, last_ns + 1)), width)

    def before(self, number: Ints, at_ns: Ints) -> Ints:
        """How many of each number lie before an instant."""
        begin = np.searchsorted(self.keys, number * self.width)
        until = np.minimum(at_ns, self.width - 1)
        return np.searchsorted(self.keys, number * self.width + until) - begin


def settled_in(case: Case, windows: Windows) -> Tally:
    deliveries = case.rows.deliveries
    last_ns = int(deliveries.at_ns.max(initial=0)) + 1
    return Tally.of(windows.number, deliveries.settled.sent_ns[windows.row], last_ns)


def own_settled(case: Case) -> Tally:
    """Those of consumers with a limit of their own."""
    return settled_in(case, case.once(own_windows))
