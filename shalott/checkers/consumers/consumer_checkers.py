"""The checkers of the workload ``consume``: what consumers were promised, each by itself.

``PROMISES`` is the list, for documents and reports. All checkers of one run read its history once,
together (consume_case.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shalott.checkers.checker import Checker, Result
from shalott.checkers.consumers.cancellation import cancel
from shalott.checkers.consumers.consume_case import Promise, PromiseChecker, Reader
from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.consumers.consumer_fates import consumer_fates
from shalott.checkers.consumers.consumer_liveness import consumer_liveness
from shalott.checkers.consumers.exclusivity import exclusive, single_active
from shalott.checkers.consumers.lifetimes import max_length, ttl
from shalott.checkers.consumers.prefetch import prefetch
from shalott.checkers.consumers.priorities import consumer_priority, priority
from shalott.checkers.consumers.purging import purge
from shalott.checkers.consumers.queue_order import queue_order
from shalott.checkers.consumers.redeliveries import acked_again, delivered_at_once, redelivered_flag
from shalott.core.history import History

PROMISES: Final = (
    Promise(
        name="acked-again",
        promise="What a consumer acknowledged is not delivered again, but after a failover that"
        " came before the mirrors knew.",
        source="RabbitMQ, Consumer Acknowledgements and Publisher Confirms; Classic Queue"
        " Mirroring, Non-graceful Master Failure (L9)",
        judge=acked_again,
    ),
    Promise(
        name="redelivered-flag",
        promise="A master flags what it delivers again.",
        source="AMQP 0-9-1, basic.deliver, redelivered; RabbitMQ, Reliability Guide",
        judge=redelivered_flag,
    ),
    Promise(
        name="delivered-once-at-a-time",
        promise="A message that is not settled is with one consumer.",
        source="RabbitMQ, AMQP 0-9-1 Model Explained; Consumer Acknowledgements, Automatic"
        " Requeueing of Deliveries",
        judge=delivered_at_once,
    ),
    Promise(
        name="queue-order",
        promise="What is before another message in the queue is delivered before it, also after a"
        " requeue.",
        source="RabbitMQ, Queues, Message Ordering; Consumer Acknowledgements, Negative"
        " Acknowledgement and Requeuing of Deliveries; AMQP 0-9-1, 4.7",
        judge=queue_order,
    ),
    Promise(
        name="single-active",
        promise="Of single active consumers one is served, and another only when it has left.",
        source="RabbitMQ, Consumers, Single Active Consumer",
        judge=single_active,
    ),
    Promise(
        name="exclusive",
        promise="An exclusive consumer is the only one of its queue.",
        source="AMQP 0-9-1, basic.consume, exclusive; RabbitMQ, Consumers, Exclusivity",
        judge=exclusive,
    ),
    Promise(
        name="prefetch",
        promise="Never more unsettled deliveries with a consumer, or on a channel, than its limit.",
        source="AMQP 0-9-1, basic.qos; RabbitMQ, Consumer Prefetch",
        judge=prefetch,
    ),
    Promise(
        name="ttl",
        promise="A message expires neither early nor never.",
        source="RabbitMQ, Time-To-Live and Expiration",
        judge=ttl,
    ),
    Promise(
        name="max-length",
        promise="A queue holds no more ready messages than it may.",
        source="RabbitMQ, Queue Length Limit",
        judge=max_length,
    ),
    Promise(
        name="purge",
        promise="What was ready when its queue was purged does not come out of it.",
        source="AMQP 0-9-1, queue.purge",
        judge=purge,
    ),
    Promise(
        name="priority",
        promise="A message is not delivered while one of higher priority waits.",
        source="RabbitMQ, Classic Queues Support Priorities",
        judge=priority,
    ),
    Promise(
        name="consumer-priority",
        promise="A consumer is served only while those of higher priority have no room.",
        source="RabbitMQ, Consumer Priorities",
        judge=consumer_priority,
    ),
    Promise(
        name="consumer-liveness",
        promise="No consumer is idle while messages wait for it, from some time after the heal on.",
        source="RabbitMQ, Queues; the plan's time stuck_after_ms",
        judge=consumer_liveness,
    ),
    Promise(
        name="cancel",
        promise="A cancelled consumer gets nothing more, and one that asked for it is cancelled at"
        " a failover.",
        source="AMQP 0-9-1, basic.cancel; RabbitMQ, Consumer Cancel Notification; Classic Queue"
        " Mirroring, Cancelling Consumers upon Failover",
        judge=cancel,
    ),
)


@dataclass(frozen=True, slots=True)
class ConsumerFates:
    """What became of every message and of every delivery (checkers/consumers/consumer_fates.py)."""

    reader: Reader
    name: str = "consumer-fates"

    def check(self, history: History) -> Result:
        """As the other promises are checked; only a loss needs the whole history again."""
        promise = Promise(
            name=self.name,
            promise="Nothing that was acknowledged to its publisher is lost to its consumers.",
            source="RabbitMQ, Reliability Guide; Consumer Acknowledgements and Publisher Confirms",
            judge=lambda case: consumer_fates(case, history),
        )
        return PromiseChecker(promise, self.reader).check(history)


def consumer_checkers(rules: ConsumeRules) -> Sequence[Checker]:
    reader = Reader(rules)
    return (ConsumerFates(reader), *(PromiseChecker(promise, reader) for promise in PROMISES))
