"""Tables: what a broker keeps besides messages: topics, subscription groups, consumers' offsets and
delay offsets, each in a JSON file under ``config`` (upstream: ConfigManager and its subclasses);
and where its timers stand.

Files are written behind: topics and groups at once, offsets every five seconds, as upstream does.
A crash takes what was not written, and nobody was promised it: topics are learnt again from the
queues that the log has (``learn``), and a lost offset makes a group consume again. So a disk that
takes no table stops nothing; it is tried again. A file that makes no sense counts for nothing, and
its former content, in ``.bak``, stands in for it, as upstream has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.files import FORMER, read_file, replace_file
from shalott.broker.rocket.processor.timer_checkpoint import (
    TimerCheckpoint,
    decode_timer_checkpoint,
)
from shalott.broker.rocket.processor.topics import (
    DelayTable,
    GroupTable,
    OffsetTable,
    SubscriptionGroup,
    next_version,
    queues_of,
)
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.route_data import DataVersion, TopicConfig, TopicConfigs

log = logging.getLogger("shalott.broker.tables")

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U")
OFFSETS_INTERVAL_S = 5.0  # flushConsumerOffsetInterval
WAIT_S_MIN = 0.001
AGAIN_S = 1.0  # after a disk that took nothing

TOPICS = "config/topics.json"
GROUPS = "config/subscriptionGroup.json"
OFFSETS = "config/consumerOffset.json"
DELAYS = "config/delayOffset.json"
TIMERS = "config/timercheck"
BEHIND = (OFFSETS, DELAYS, TIMERS)  # written every so often


class Tables:
    """Of one broker. Reads and writes are immediate, in memory; ``run`` writes the files.

    ``epoch`` gives the epoch of the master that this broker is: versions carry it.
    """

    def __init__(self, env: Env, epoch: Callable[[], int]) -> None:
        """Use ``open``."""
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, SubscriptionGroup] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        self.delays: dict[int, int] = {}
        self.timers = TimerCheckpoint()
        self.topics_version = DataVersion()
        self.groups_version = DataVersion()
        self.offsets_version = DataVersion()
        self._env = env
        self._epoch = epoch
        self._dirty: dict[str, None] = {}
        self._rubbish: dict[str, None] = {}  # files whose content must not become the former one
        self._changed = asyncio.Event()

    @classmethod
    async def open(
        cls, env: Env, *, own: Sequence[TopicConfig], epoch: Callable[[], int] = lambda: 0
    ) -> Tables:
        """What a former life left; the broker's ``own`` topics are always there.

        What can't be understood counts as absent: see above. Raises OSError.
        """
        tables = cls(env, epoch)
        topics = await tables._read(TOPICS, TopicConfigs)
        groups = await tables._read(GROUPS, GroupTable)
        offsets = await tables._read(OFFSETS, OffsetTable)
        delays = await tables._read(DELAYS, DelayTable)
        tables.topics, tables.topics_version = topics.topic_config_table, topics.data_version
        tables.groups, tables.groups_version = groups.subscription_group_table, groups.data_version
        tables.offsets, tables.offsets_version = offsets.offset_table, offsets.data_version
        tables.delays = delays.offset_table
        tables.timers = await tables._read_with(TIMERS, decode_timer_checkpoint, TimerCheckpoint)
        tables.topics |= {topic.topic_name: topic for topic in own}
        return tables

    # -- topics ------------------------------------------------------------------------------------

    def put_topic(self, config: TopicConfig) -> None:
        self.topics[config.topic_name] = config
        self._topics_changed()

    def learn(self, queues: list[tuple[str, int]], default_queues: int) -> bool:
        """See that every (topic, queue) of the log has its topic; whether that was news.

        A new master may not have heard of its predecessor's last topics (KB-RKT-36): it has their
        messages, so it has them.
        """
        news = False
        for topic, queue_id in queues:
            known = self.topics.get(topic)
            if known is not None and queue_id < queues_of(known):
                continue
            count = max(queue_id + 1, 1 if topic.startswith("%") else default_queues)
            self.topics[topic] = TopicConfig(
                topic_name=topic, read_queue_nums=count, write_queue_nums=count
            )
            news = True
        if news:
            self._topics_changed()
        return news

    def topic_table(self) -> TopicConfigs:
        return TopicConfigs(topic_config_table=dict(self.topics), data_version=self.topics_version)

    def replace_topics(self, table: TopicConfigs) -> bool:
        """Take a master's; whether it was another."""
        if table.data_version == self.topics_version:
            return False
        self.topics = dict(table.topic_config_table)
        self.topics_version = table.data_version
        self._touch(TOPICS)
        return True

    def _topics_changed(self) -> None:
        self.topics_version = self._next(self.topics_version)
        self._touch(TOPICS)

    # -- subscription groups -----------------------------------------------------------------------

    def group(self, name: str) -> SubscriptionGroup:
        """The group, made if need be, as upstream's default does it."""
        known = self.groups.get(name)
        if known is None:
            known = self.groups[name] = SubscriptionGroup(group_name=name)
            self.groups_version = self._next(self.groups_version)
            self._touch(GROUPS)
        return known

    def group_table(self) -> GroupTable:
        return GroupTable(
            subscription_group_table=dict(self.groups), data_version=self.groups_version
        )

    def replace_groups(self, table: GroupTable) -> None:
        if table.data_version != self.groups_version:
            self.groups = dict(table.subscription_group_table)
            self.groups_version = table.data_version
            self._touch(GROUPS)

    # -- consumers' offsets ------------------------------------------------------------------------

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def put_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.offsets_version = self._next(self.offsets_version)
        self._touch(OFFSETS)

    def offset_table(self) -> OffsetTable:
        return OffsetTable(
            offset_table={key: dict(queues) for key, queues in self.offsets.items()},
            data_version=self.offsets_version,
        )

    def replace_offsets(self, table: OffsetTable) -> None:
        """Take a master's, whatever it says, as upstream does (KB-RKT-05)."""
        self.offsets = {key: dict(queues) for key, queues in table.offset_table.items()}
        self.offsets_version = table.data_version
        self._touch(OFFSETS)

    def limit_offset(self, group: str, topic: str, queue_id: int, end: int) -> None:
        """A group can't have consumed what is not there any more (KB-RKT-35)."""
        offset = self.offset(group, topic, queue_id)
        if offset is not None and offset > end:
            self.put_offset(group, topic, queue_id, end)

    # -- delayed messages --------------------------------------------------------------------------

    def put_delay(self, level: int, offset: int) -> None:
        self.delays[level] = offset
        self._touch(DELAYS)

    def delay_table(self) -> DelayTable:
        return DelayTable(offset_table=dict(self.delays))

    def replace_delays(self, table: DelayTable) -> None:
        if table.offset_table != self.delays:
            self.delays = dict(table.offset_table)
            self._touch(DELAYS)

    def put_timers(self, read_ms: int, queue_offset: int) -> None:
        """Where this master stands with messages that have a time of their own."""
        known = self.timers
        if (read_ms, queue_offset) != (known.read_ms, known.queue_offset):
            version = self._next(known.version)
            self.timers = TimerCheckpoint(read_ms, 0, queue_offset, queue_offset, version)
            self._touch(TIMERS)

    def replace_timers(self, checkpoint: TimerCheckpoint) -> None:
        """Take a master's."""
        if checkpoint != self.timers:
            self.timers = checkpoint
            self._touch(TIMERS)

    def limit_timers(self, end: int) -> None:
        """The queue of timers ends there: what comes next was never seen by anybody."""
        if self.timers.queue_offset > end:
            self.put_timers(self.timers.read_ms, end)

    # -- files -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what changes until cancelled."""
        offsets_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            late = any(path in self._dirty for path in BEHIND)
            try:
                # Never nothing: a timer may fire a rounding error before its time.
                wait_s = max(WAIT_S_MIN, offsets_at - loop.time())
                async with asyncio.timeout(wait_s if late else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            due = [path for path in (TOPICS, GROUPS) if path in self._dirty]
            if loop.time() >= offsets_at:
                due += [path for path in BEHIND if path in self._dirty]
                offsets_at = loop.time() + OFFSETS_INTERVAL_S
            if not await self._save(due):
                await asyncio.sleep(AGAIN_S)

    async def save(self) -> None:
        """Write all that changed, at an orderly end."""
        await self._save(list(self._dirty))

    async def _read(self, path: str, shape: type[T]) -> T:
        return await self._read_with(path, lambda data: decode_java_json(data, shape), shape)

    async def _read_with(
        self, path: str, decode: Callable[[bytes], U], empty: Callable[[], U]
    ) -> U:
        """The file's content, or its former one, or an empty table."""
        for candidate in (path, path + FORMER):
            data = await read_file(self._env.disk, candidate)
            if data is None:
                continue
            try:
                table = decode(data)
            except ValueError as error:  # a DecodeError is one
                log.warning("%s can't be understood and counts as absent: %s", candidate, error)
                self._rubbish[candidate] = None
                continue
            if candidate != path:
                log.warning("%s is read instead of %s", candidate, path)
            return table
        return empty()

    async def _save(self, paths: list[str]) -> bool:
        """Whether the disk took them all; what it did not take stays to be written."""
        for path in paths:
            self._dirty.pop(path, None)
            sound = path not in self._rubbish
            try:
                await replace_file(self._env.disk, path, self._content(path), keep_former=sound)
                self._rubbish.pop(path, None)
            except OSError as error:
                log.warning("%s can't be written: %s", path, error.strerror or error)
                self._dirty[path] = None
                return False
        return True

    def _content(self, path: str) -> bytes:
        if path == TIMERS:
            return self.timers.as_file()
        tables: dict[str, Callable[[], msgspec.Struct]] = {
            TOPICS: self.topic_table,
            GROUPS: self.group_table,
            OFFSETS: self.offset_table,
            DELAYS: self.delay_table,
        }
        return msgspec.json.encode(tables[path]())

    def _touch(self, path: str) -> None:
        self._dirty[path] = None
        self._changed.set()

    def _next(self, version: DataVersion) -> DataVersion:
        return next_version(version, self._epoch(), self._env.clock.wall_ns() // 1_000_000)
