"""consumer-liveness: no consumer is left idle while messages wait for it.

Source: RabbitMQ, Consumers: a subscribed consumer is pushed messages as they become available, as
long as it has room; nothing is promised of how soon while the cluster is disturbed. So the time
begins with the heal, with the queue's last change of masters or end of a synchronisation, with the
consumer, and with its room, whichever is last; what the harness stood still is taken off.

Theory. A consumer was *idle* from one delivery to the next, or to when it left, if its client had
room for more and says so by what it had settled with an answer. A message was ready from its
confirm, or from when it was back, until it came out. Where both go together for longer than the
plan allows, the consumer was stuck. Among single active consumers only one is served: there
everybody must have been idle. A broker that an alarm keeps from reading a connection does not hear
that its client is gone, and goes on to serve its consumers: their queues are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.consumers.consume_case import Case, Finding, by_channel, by_consumer
from shalott.checkers.consumers.intervals import S, Stretch, without
from shalott.checkers.consumers.redeliveries import read_pairs
from shalott.checkers.consumers.rows import OK, RECOVER, REQUEUE
from shalott.checkers.history.columns import NEVER, Ints
from shalott.checkers.history.faults import stalled_ns

MS = 1_000_000
UNNOTICED_NS = 5 * S  # so long a broker may take a closed channel for open
STUCK_MAX = 32


@dataclass(frozen=True, slots=True)
class Idle:
    """A consumer had room and was given nothing."""

    consumer: int
    begin_ns: int
    end_ns: int


def consumer_liveness(case: Case) -> Finding:
    """No consumer is idle while messages wait for it.

    Source: in the module's docstring.
    """
    heal, settle = case.around.phase("heal"), case.around.phase("settle")
    consumers = case.rows.consumers
    if heal is None or heal.end_ns is None:
        return Finding(notes=["Nothing was healed: no consumer can be said to be stuck."])
    if settle is not None and settle.settled is False:
        return Finding(notes=["The cluster did not settle: no consumer can be said to be stuck."])
    present = [
        code
        for code in range(len(consumers))
        if consumers.active_ns[code] < NEVER and _last_ns(case, code) > heal.end_ns
        if int(consumers.queue[code]) not in case.once(_unheard)
    ]
    idle = {code: _idle(case, code, heal.end_ns) for code in present}
    ready = case.once(_waits)
    anomalies: list[Anomaly] = []
    for code in present:
        for each in idle[code]:
            parts = _all_idle(case, each, idle) if _only_one_served(case, code) else [each]
            for part in parts:
                anomalies += _stuck(case, part, ready)
    return Finding(
        judged=len(present),
        anomalies=anomalies[:STUCK_MAX],
        counts={
            "stuck-consumer-count": len({str(a.detail["consumer"]) for a in anomalies}),
            "stuck-count": len(anomalies),
        },
    )


def _unheard(case: Case) -> dict[int, None]:
    """Queues with a consumer whose client was gone before its connection was unblocked."""
    ops, consumers = case.ops, case.rows.consumers
    gone = ops.f.equal("blocked") & ops.type.equal("info")
    clients = dict.fromkeys(ops.process[gone].tolist())
    own = np.flatnonzero(consumers.index >= 0)
    process = ops.process[np.searchsorted(ops.index, consumers.index[own])]
    return {
        int(consumers.queue[code]): None
        for code, one in zip(own, process.tolist(), strict=True)
        if one in clients
    }


def _last_ns(case: Case, code: int) -> int:
    """Until when the consumer was there for sure."""
    consumers, channel = case.rows.consumers, int(case.rows.consumers.channel[code])
    stays_ns = int(min(consumers.leaving_ns[code], consumers.end_ns[code], case.around.end_ns))
    return min(stays_ns, int(case.rows.channels.alive_ns[channel]) if channel >= 0 else -1)


def _idle(case: Case, code: int, healed_ns: int) -> list[Idle]:
    """When a consumer had room, and was given nothing for longer than allowed."""
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    own = case.once(by_consumer).of(code)
    start_ns = max(healed_ns, int(consumers.active_ns[code]), _steady_ns(case, code))
    stop_ns = _last_ns(case, code)
    came_ns = deliveries.at_ns[own]
    inside = came_ns[(came_ns > start_ns) & (came_ns < stop_ns)]
    edges = np.concatenate(([start_ns], inside, [stop_ns]))
    allowed_ns = case.rules.stuck_after_ms * MS
    found: list[Idle] = []
    for place in np.flatnonzero(np.diff(edges) > allowed_ns):
        begin_ns, end_ns = int(edges[place]), int(edges[place + 1])
        begin_ns = max(begin_ns, _room_ns(case, code, begin_ns))
        charged_ns = end_ns - begin_ns - stalled_ns(case.around.stalls, begin_ns, end_ns, S)
        if charged_ns > allowed_ns:
            found.append(Idle(code, begin_ns, end_ns))
    return found


def _steady_ns(case: Case, code: int) -> int:
    """Since when the consumer's queue has had its master, and served."""
    queue = case.rows.queues[case.rows.consumers.queue[code]]
    kinds = ("role", "promoted", "sync_started", "sync_done", "synchronised")
    told = (e.run_ns for e in case.events if e.group == queue and e.kind in kinds)
    return max(told, default=0)


def _room_ns(case: Case, code: int, at_ns: int) -> int:
    """Since when, from ``at_ns`` on, the consumer had certainly room."""
    consumers, deliveries = case.rows.consumers, case.rows.deliveries
    limit = int(consumers.prefetch[code])
    if not limit or consumers.no_ack[code]:
        return at_ns
    shared, channel = bool(consumers.shared[code]), int(consumers.channel[code])
    own = case.once(by_channel).of(channel) if shared else case.once(by_consumer).of(code)
    own = own[deliveries.at_ns[own] <= at_ns]
    needed = len(own) - limit + 1  # so many must have been settled
    if needed <= 0:
        return at_ns
    done_ns = np.sort(deliveries.settled.done_ns[own])
    return max(at_ns, int(done_ns[needed - 1]))


def _only_one_served(case: Case, code: int) -> bool:
    return case.queue_rules(int(case.rows.consumers.queue[code])).single_active


def _all_idle(case: Case, idle: Idle, others: dict[int, list[Idle]]) -> list[Idle]:
    """The parts of it in which every other consumer that may have been there was idle too."""
    consumers = case.rows.consumers
    parts: list[Stretch] = [(idle.begin_ns, idle.end_ns)]
    for code in np.flatnonzero(consumers.queue == consumers.queue[idle.consumer]):
        begin_ns, end_ns = int(consumers.begin_ns[code]), int(consumers.end_ns[code])
        if code == idle.consumer or begin_ns == NEVER:
            continue
        own = [(each.begin_ns, each.end_ns) for each in others.get(int(code), [])]
        parts = without(parts, without([(begin_ns, min(end_ns, NEVER - 1))], own))
    return [Idle(idle.consumer, begin_ns, end_ns) for begin_ns, end_ns in parts]


@dataclass(frozen=True, slots=True)
class _Waits:
    """Messages that were ready from one time to another, and then came out."""

    queue: Ints
    begin_ns: Ints
    end_ns: Ints
    delivery: Ints  # how it came out
    index: Ints  # what made it ready


def _waits(case: Case) -> _Waits:
    published, deliveries = case.rows.published, case.rows.deliveries
    own = np.flatnonzero((published.ack == OK) & (case.first >= 0))
    first = case.first[own]
    pairs = case.once(read_pairs)
    settled, channels = deliveries.settled, case.rows.channels
    given_back = (settled.kind[pairs.before] == REQUEUE) | (settled.kind[pairs.before] == RECOVER)
    done_ns = np.where(given_back, settled.done_ns[pairs.before], NEVER)
    end_ns = np.append(channels.end_ns, NEVER)[deliveries.channel[pairs.before]]
    over_ns = np.where(
        end_ns < NEVER, np.minimum(end_ns, NEVER - UNNOTICED_NS) + UNNOTICED_NS, NEVER
    )
    back_ns = np.where(given_back, done_ns, over_ns)
    again = back_ns < NEVER
    came = pairs.again[again]
    return _Waits(
        queue=np.concatenate((published.queue[own], deliveries.queue[came])),
        begin_ns=np.concatenate((published.complete_ns[own], back_ns[again])),
        end_ns=np.concatenate((deliveries.begin_ns[first], deliveries.begin_ns[came])),
        delivery=np.concatenate((first, came)),
        index=np.concatenate((published.index[own], deliveries.index[pairs.before[again]])),
    )


def _stuck(case: Case, idle: Idle, ready: _Waits) -> list[Anomaly]:
    consumers = case.rows.consumers
    both_ns = np.minimum(ready.end_ns, idle.end_ns) - np.maximum(ready.begin_ns, idle.begin_ns)
    allowed_ns = case.rules.stuck_after_ms * MS
    allowed_ns += stalled_ns(case.around.stalls, idle.begin_ns, idle.end_ns, S)
    waits = (ready.queue == consumers.queue[idle.consumer]) & (both_ns > allowed_ns)
    found = np.flatnonzero(waits)
    if not len(found):
        return []
    name, queue = consumers.name[idle.consumer], case.rows.queues[consumers.queue[idle.consumer]]
    shown = found[: OPERATIONS_MAX // 2 - 1]
    indexes = np.stack(
        (ready.index[shown], case.rows.deliveries.index[ready.delivery[shown]]), axis=1
    )
    return [
        Anomaly(
            kind="stuck",
            summary=f"{name} was given nothing for {(idle.end_ns - idle.begin_ns) / S:.1f} s from"
            f" {idle.begin_ns / S:.1f} s on, though it had room, and {len(found)} messages waited"
            f" in {queue} for {int(both_ns[found].max()) / S:.1f} s of it",
            operations=(int(consumers.index[idle.consumer]), *map(int, indexes.ravel())),
            detail={
                "consumer": name,
                "queue": queue,
                "count": len(found),
                "begin_ns": idle.begin_ns,
                "end_ns": idle.end_ns,
            },
        )
    ]
