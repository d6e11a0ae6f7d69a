"""The checkers of the workload ``consume``: what consumers were promised, each by itself.

``PROMISES`` is the list, for documents and reports. All checkers of one run read its history once,
together (case.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shalott.checkers.base import Checker, Result
from shalott.checkers.consumers.case import Reader
from shalott.checkers.consumers.finding import Promise, PromiseChecker
from shalott.checkers.consumers.leaving import cancel
from shalott.checkers.consumers.redeliveries import (
    acked_again,
    delivered_at_once,
    redelivered_flag,
)
from shalott.checkers.consumers.rules import ConsumeRules
from shalott.checkers.consumers.stories import consumer_fates
from shalott.harness.core.history import History

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
    """What became of every message and of every delivery (checkers/consumers/fates.py)."""

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
    """Fresh ones for one run."""
    reader = Reader(rules)
    return (ConsumerFates(reader), *(PromiseChecker(promise, reader) for promise in PROMISES))
