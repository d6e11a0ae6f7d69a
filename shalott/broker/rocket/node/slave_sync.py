"""SlaveSync: a slave copies from its master what the log does not carry: topics, subscription
groups, consumers' offsets and delay offsets, and where timers stand (upstream: SlaveSynchronize).

Every ``slave_sync_interval_ms``, and at once when the master changes. What arrives after this
broker became something else, or follows another, is discarded: it would undo what is newer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shalott.broker.base.env import wait_ms
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import AddressBook
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.delay_tables import decode_timer_checkpoint
from shalott.broker.rocket.processor.topics import TIMER_TOPIC, DelayTable, GroupTable, OffsetTable
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.route_data import TopicConfigs

log = logging.getLogger("shalott.broker.slave_sync")

TIMEOUT_MS = 3000
AGAIN_MS = 1000

T = TypeVar("T")


class SlaveSync:
    """Of one broker. ``topics_changed`` is called when other topics were copied."""

    def __init__(
        self,
        broker: Broker,
        book: AddressBook,
        client: RemotingClient,
        *,
        interval_ms: int,
        topics_changed: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._book = book
        self._client = client
        self._interval_ms = interval_ms
        self._topics_changed = topics_changed
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """The role or the master may be another."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            master = self._master()
            copied = True
            if master:
                try:
                    await self._copy(master)
                except BrokerError as error:
                    log.info("nothing copied from %s: %s", master, error)
                    copied = False
            interval_ms = self._interval_ms
            await wait_ms(self._changed, interval_ms if copied else min(AGAIN_MS, interval_ms))

    def _master(self) -> str:
        """Whom to copy from; "" if this is no slave or knows none."""
        if self._broker.replica.role != "slave":
            return ""
        return str(self._broker.replica.claim()["master"] or "")

    async def _copy(self, master: str) -> None:
        """Raises BrokerError."""
        tables = self._broker.tables
        topics = await self._get(master, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigs)
        if topics is None:
            return
        end = self._broker.store.log.max_offset
        deleted = {topic: min(at, end) for topic, at in self._deleted(topics).items()}
        if tables.replace_topics(topics):
            self._topics_changed()
        await self._broker.store.deleted.add(deleted)
        offsets = await self._get(master, RequestCode.GET_ALL_CONSUMER_OFFSET, OffsetTable)
        if offsets is not None:
            tables.replace_offsets(offsets)
        delays = await self._get(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayTable)
        if delays is not None:
            tables.delayed.replace_delays(delays)
        groups = await self._get(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable)
        if groups is not None:
            tables.replace_groups(groups)
        if self._broker.store.reader.queue_range(TIMER_TOPIC, 0)[1]:
            await self._copy_timers(master)

    def _deleted(self, table: TopicConfigs) -> dict[str, int]:
        """Which topics the master deleted, and where. An original tells by what it has no more; but
        after a failover that may be what it never heard of."""
        if table.deleted_topics is not msgspec.UNSET:
            return table.deleted_topics
        known, end = self._broker.tables, self._broker.store.log.max_offset
        before, after = known.topics_version, table.data_version
        if before.state_version != after.state_version or after.counter <= before.counter:
            return {}
        return {name: end for name in known.topics if name not in table.topic_config_table}

    async def _copy_timers(self, master: str) -> None:
        """An original with its timers off has no checkpoint of them."""
        answer = await self._ask(master, RequestCode.GET_TIMER_CHECK_POINT)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            self._broker.tables.delayed.replace_timers(decode_timer_checkpoint(answer.body))
        except ValueError as error:
            raise BrokerError(f"GET_TIMER_CHECK_POINT: {error}") from error

    async def _get(self, master: str, code: RequestCode, shape: type[T]) -> T | None:
        """None if this broker does not follow that master any more."""
        answer = await self._ask(master, code)
        if answer is None:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(f"{code.name} is refused: {answer.remark}")
        try:
            return decode_java_json(answer.body, shape)
        except msgspec.DecodeError as error:
            raise BrokerError(f"{code.name}: {error}") from error

    async def _ask(self, master: str, code: RequestCode) -> Command | None:
        """Its answer; None if this broker does not follow that master any more."""
        epoch = self._broker.replica.epoch
        address = self._book.address_of(master, "remoting")
        answer = await self._client.invoke(address, Command(code=code), TIMEOUT_MS)
        if self._master() != master or self._broker.replica.epoch != epoch:
            return None
        self._broker.env.witness("copies", epoch)
        return answer
