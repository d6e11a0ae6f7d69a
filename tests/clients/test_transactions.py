"""Our own client's transactions at our own broker: how they end, and what the book says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from shalott.broker.rocket.config import BrokerConfig, parse_address
from shalott.broker.rocket.processor.delays import deliver_delayed
from shalott.clients.rocketmq.rocket_client import TRANSACTION, Queue, RocketClient
from shalott.clients.rocketmq.transactions import (
    PRODUCER_GROUP,
    PRODUCERS,
    Book,
    Decision,
    Producer,
    Transactions,
)
from shalott.core.message_body import decode_body, encode_body
from tests.world.clock.turns import passes
from tests.world.rocket.broker import World, in_world

pytestmark = pytest.mark.unit

COMMIT, ROLLBACK, LATER, HESITATING = range(4)
HALF = {TRANSACTION: "true", PRODUCER_GROUP: PRODUCERS}
QUICK = BrokerConfig(transaction_timeout_ms=500, transaction_check_interval_ms=1000)


@dataclass(frozen=True, slots=True)
class Told(Transactions):
    """What each of the values above is."""

    def of(self, value: int) -> Decision | None:
        return Decision(
            decision="rollback" if value == ROLLBACK else "commit",
            told="later" if value >= LATER else "now",
        )

    def hesitates(self, value: int) -> bool:
        return value == HESITATING


class Driver:
    def __init__(self, it: World) -> None:
        self.it, self.book = it, Book()
        self.client = RocketClient([], dial=parse_address, on_push=lambda *of: self.pushed(*of))
        self.producer = Producer(self.client, Told(1.0), self.book, "c")
        self.pushed = self.producer.pushed

    async def transact(self, value: int) -> None:
        await self.producer.beat(self.it.address)
        sent = await self.client.send(
            self.it.address,
            Queue("t", "", 0),
            encode_body(value, 12),
            unique_key=f"{value:032X}",
            properties=HALF,
        )
        decision = self.producer.transactions.of(value)
        assert decision is not None
        if decision.told == "now":
            await self.producer.end(self.it.address, value, sent, decision, 1000)

    async def seen(self) -> list[int | None]:
        return [decode_body(body) for body in await self.it.bodies()]


def driving(test: Callable[[Driver], Awaitable[None]]) -> None:
    async def main(it: World) -> None:
        driver, checks = Driver(it), asyncio.create_task(deliver_delayed(it.broker))
        try:
            await test(driver)
        finally:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)
            await driver.client.close()

    in_world(main, config=QUICK)


def test_what_is_decided_at_once_is_not_asked_for() -> None:
    async def test(it: Driver) -> None:
        for value in (COMMIT, ROLLBACK):
            await it.transact(value)
        assert await it.seen() == [COMMIT]
        await passes(20)
        assert it.book.told() == {"again": [], "twice": []} and it.book.asked == {}

    driving(test)


def test_a_broker_that_asks_is_told_and_asks_again_who_does_not_know_yet() -> None:
    async def test(it: Driver) -> None:
        await it.transact(HESITATING)
        await it.transact(LATER)
        await passes(6)
        assert await it.seen() == [LATER, HESITATING]  # who was asked again comes last
        assert it.book.told() == {"again": [], "twice": []}

    driving(test)


def test_a_broker_that_forgets_what_it_accepted_is_in_the_book() -> None:
    async def test(it: Driver) -> None:
        await it.transact(LATER)
        await passes(3)
        halves = it.it.broker.halves
        halves.decided.clear()
        halves.halves_end, it.it.broker.tables.offsets = 0, {}
        await passes(3)
        assert it.book.told() == {"again": [LATER], "twice": [LATER]}

    driving(test)
