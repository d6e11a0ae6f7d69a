"""Transactions of RocketMQ's clients: which sends are some, and how our own client ends them.

A message of one is stored where no consumer reads ("half"). Its producer then says commit or
rollback, or says nothing and is asked by the broker later, and may say then that it does not know
yet. What its sender decided follows from the message's value, so that any producer of the group
knows it when it is asked, as an application would know by its database.

Our own client awaits the answers to its ends, and says at every question what was decided, also
when a broker had already accepted it. So the ``Book`` of a run's clients knows two things more
than a library does: for which messages more than one commit was sent (only those may be there
twice: a broker that fails between the message and its note asks again), and of which a decision was
accepted after an earlier one had been, which no broker may do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from shalott.broker.rocket.remoting.client import Unanswered
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.clients.rocketmq.rocket_client import UNIQUE_KEY, RocketClient, RocketError, Sent
from shalott.clients.rocketmq.stored_messages import Malformed, decode_messages
from shalott.core.message_body import decode_body
from shalott.core.rng import draw_float

COMMIT, ROLLBACK, UNKNOWN = 0x8, 0xC, 0
PRODUCER_GROUP, PRODUCERS = "PGROUP", "shalott-transactions"
BEAT_S = 1.0
_ROLLBACKS, _LATER, _HESITATING = 0.25, 0.5, 0.2  # shares of transactions


class Decision(msgspec.Struct, frozen=True):
    """``told``: at once, or when a broker asks."""

    decision: Literal["commit", "rollback"]
    told: Literal["now", "later"]

    @property
    def commits(self) -> bool:
        return self.decision == "commit"


@dataclass(frozen=True, slots=True)
class Transactions:
    """``share`` of all sends; ``key`` of the random stream that says which, by message."""

    share: float = 0.0
    key: int = 0

    def of(self, value: int) -> Decision | None:
        """None: it is sent as any other."""
        drawn = [draw_float(self.key, 3 * value + place) for place in range(3)]
        if drawn[0] >= self.share:
            return None
        return Decision(
            decision="rollback" if drawn[1] < _ROLLBACKS else "commit",
            told="later" if drawn[2] < _LATER else "now",
        )

    def hesitates(self, value: int) -> bool:
        """Whether the first question is answered by "unknown"."""
        return draw_float(self.key, 3 * value + 2) < _HESITATING


@dataclass(slots=True)
class Book:
    """What all clients of a run were told of their ends, by the messages' values; and in which
    queues messages were acknowledged."""

    commits: dict[int, int] = field(default_factory=dict)  # how many were sent
    asked: dict[int, None] = field(default_factory=dict)
    accepted: dict[int, None] = field(default_factory=dict)
    twice: dict[int, None] = field(default_factory=dict)  # accepted after it had been
    used: dict[str, None] = field(default_factory=dict)

    def told(self) -> Mapping[str, list[int]]:
        again = [value for value, count in self.commits.items() if count > 1]
        return {"again": again, "twice": list(self.twice)}


class EndTransaction(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """37, and what 39 has of it."""

    producer_group: str = PRODUCERS
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int = UNKNOWN
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str = ""


@dataclass(slots=True)
class Producer:
    """The transactions of one client. ``name``: as its heartbeats have it."""

    client: RocketClient
    transactions: Transactions
    book: Book
    name: str
    _beats: dict[str, float] = field(default_factory=dict)  # address -> when

    async def beat(self, address: str) -> None:
        """Be known to a broker as a producer of the group, if it can be told."""
        now_s = asyncio.get_running_loop().time()
        if self.client.is_connected(address) and now_s < self._beats.get(address, 0) + BEAT_S:
            return
        self._beats[address] = now_s
        groups = {"producerDataSet": [{"groupName": PRODUCERS}], "consumerDataSet": []}
        body = msgspec.json.encode({"clientID": self.name, **groups})
        with contextlib.suppress(RocketError):
            await self.client.ask(address, RequestCode.HEART_BEAT, _Empty(), body=body)

    async def end(
        self, address: str, value: int, sent: Sent, decision: Decision, timeout_ms: float
    ) -> None:
        """Say what was decided, and wait for the answer. That there is none matters not: the broker
        asks."""
        try:
            log_offset = int(sent.message_id[-16:], 16)
        except ValueError:
            return
        end = EndTransaction(
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=log_offset,
            commit_or_rollback=COMMIT if decision.commits else ROLLBACK,
            msg_id=f"{value:032X}",
            transaction_id=f"{value:032X}",
        )
        was_accepted = self._begin(value, decision)
        try:
            answer = await self.client.ask(
                address, RequestCode.END_TRANSACTION, end, timeout_ms=timeout_ms
            )
        except RocketError:
            return
        self._ended(value, was_accepted, answer)

    def pushed(self, address: str, question: Command) -> None:
        """Answer a broker that asks: its connection is there."""
        if question.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            [message] = decode_messages(question.body)
            asked = msgspec.convert(question.ext, EndTransaction, strict=False)
        except (Malformed, ValueError):
            return
        value = decode_body(message.body)
        decision = None if value is None else self.transactions.of(value)
        if value is None or decision is None or message.properties.get(UNIQUE_KEY) != asked.msg_id:
            return
        hesitates = self.transactions.hesitates(value) and value not in self.book.asked
        self.book.asked[value] = None
        outcome = UNKNOWN if hesitates else COMMIT if decision.commits else ROLLBACK
        end = msgspec.structs.replace(
            asked,
            producer_group=PRODUCERS,
            commit_or_rollback=outcome,
            from_transaction_check=True,
        )
        if hesitates:
            self.client.tell(address, RequestCode.END_TRANSACTION, end, lambda _: None)
            return
        was_accepted = self._begin(value, decision)

        def answered(answer: Command | Unanswered) -> None:
            if isinstance(answer, Command):
                self._ended(value, was_accepted, answer)

        self.client.tell(address, RequestCode.END_TRANSACTION, end, answered)

    def _begin(self, value: int, decision: Decision) -> bool:
        """Whether a decision had been accepted before this one is said."""
        if decision.commits:
            self.book.commits[value] = self.book.commits.get(value, 0) + 1
        return value in self.book.accepted

    def _ended(self, value: int, was_accepted: bool, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        self.book.accepted[value] = None
        if was_accepted:
            self.book.twice[value] = None


class _Empty(msgspec.Struct):
    """A header without fields."""
