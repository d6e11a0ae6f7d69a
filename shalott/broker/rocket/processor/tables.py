"""Tables: what a broker keeps besides messages: topics, subscription groups, consumers' offsets and
how far delayed messages were delivered.

A crash takes what was not written yet (table_files.py), and it was not promised: topics are learnt
again from the queues that the log has (``learn``), and a lost offset makes a group consume again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.rocket.processor.delay_tables import (
    DelayTables,
    TimerCheckpoint,
    decode_timer_checkpoint,
)
from shalott.broker.rocket.processor.table_files import (
    DELAYS,
    GROUPS,
    OFFSETS,
    TIMERS,
    TOPICS,
    TableFiles,
)
from shalott.broker.rocket.processor.topics import (
    DelayTable,
    GroupTable,
    OffsetTable,
    SubscriptionGroup,
    next_version,
    queues_of,
)
from shalott.broker.rocket.remoting.route_data import DataVersion, TopicConfig, TopicConfigs


class Tables:
    """Of one broker. Reads and writes are immediate, in memory; ``run`` writes the files.

    ``epoch`` gives the epoch of the master that this broker is: versions carry it.
    """

    def __init__(self, env: Env, epoch: Callable[[], int]) -> None:
        """Use ``open``."""
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, SubscriptionGroup] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        self.topics_version = DataVersion()
        self.groups_version = DataVersion()
        self.request_modes: dict[str, str] = {}  # by topic@group; in the file of groups
        self.forbidden: dict[str, dict[str, int]] = {}  # kept for an original
        self.offsets_version = DataVersion()
        self._env = env
        self._epoch = epoch
        self.files = TableFiles(env.disk, env.witness)
        self._touch = self.files.touch
        self.delayed = DelayTables(env, epoch, self.files.touch)
        self.files.contents = {
            TOPICS: lambda: msgspec.json.encode(self.topic_table()),
            GROUPS: lambda: msgspec.json.encode(self.group_table()),
            OFFSETS: lambda: msgspec.json.encode(self.offset_table()),
            DELAYS: lambda: msgspec.json.encode(self.delayed.delay_table()),
            TIMERS: lambda: self.delayed.timers_now().as_file(),
        }

    @classmethod
    async def open(
        cls, env: Env, *, own: Sequence[TopicConfig], epoch: Callable[[], int] = lambda: 0
    ) -> Tables:
        """What a former life left; the broker's ``own`` topics are always there.

        What can't be understood counts as absent: see above. Raises OSError.
        """
        tables = cls(env, epoch)
        files, delayed = tables.files, tables.delayed
        topics = await files.read_json(TOPICS, TopicConfigs)
        groups = await files.read_json(GROUPS, GroupTable)
        offsets = await files.read_json(OFFSETS, OffsetTable)
        delayed.delays = (await files.read_json(DELAYS, DelayTable)).offset_table
        delayed.timers = await files.read(TIMERS, decode_timer_checkpoint, TimerCheckpoint)
        tables.topics, tables.topics_version = topics.topic_config_table, topics.data_version
        tables.groups, tables.groups_version = groups.subscription_group_table, groups.data_version
        tables.forbidden = groups.forbidden_table
        tables.request_modes = groups.request_modes or {}
        tables.offsets, tables.offsets_version = offsets.offset_table, offsets.data_version
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

    def delete_topic(self, name: str) -> None:
        """And what groups consumed of it."""
        if self.topics.pop(name, None) is not None:
            self._topics_changed()
        of_topic = [key for key in self.offsets if key.partition("@")[0] == name]
        self._forget_offsets(of_topic)

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
            known = SubscriptionGroup(group_name=name)
            self.put_group(known)
        return known

    def put_group(self, group: SubscriptionGroup) -> None:
        self.groups[group.group_name] = group
        self.groups_version = self._next(self.groups_version)
        self._touch(GROUPS)

    def delete_group(self, name: str, *, with_offsets: bool) -> None:
        if self.groups.pop(name, None) is not None:
            self.groups_version = self._next(self.groups_version)
            self._touch(GROUPS)
        if with_offsets:
            of_group = [key for key in self.offsets if key.partition("@")[2] == name]
            self._forget_offsets(of_group)

    def group_table(self) -> GroupTable:
        return GroupTable(
            subscription_group_table=dict(self.groups),
            data_version=self.groups_version,
            forbidden_table=self.forbidden,
            request_modes=dict(self.request_modes) or msgspec.UNSET,
        )

    def replace_groups(self, table: GroupTable) -> None:
        if table.data_version != self.groups_version:
            self.groups = dict(table.subscription_group_table)
            self.groups_version = table.data_version
            self.forbidden = table.forbidden_table
            self.request_modes = table.request_modes or {}
            self._touch(GROUPS)

    # -- consumers' offsets ------------------------------------------------------------------------

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.offsets.get(f"{topic}@{group}", {}).get(queue_id)

    def put_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.offsets_version = self._next(self.offsets_version)
        self._touch(OFFSETS)

    def _forget_offsets(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.offsets[key]
        if keys:
            self.offsets_version = self._next(self.offsets_version)
            self._touch(OFFSETS)

    def offset_table(self) -> OffsetTable:
        return OffsetTable(
            offset_table={key: dict(queues) for key, queues in self.offsets.items()},
            data_version=self.offsets_version,
        )

    def replace_offsets(self, table: OffsetTable) -> None:
        """Take a master's, also if it is older, as upstream does (KB-RKT-05)."""
        self.offsets = {key: dict(queues) for key, queues in table.offset_table.items()}
        self.offsets_version = table.data_version
        self._touch(OFFSETS)

    def limit_offset(self, group: str, topic: str, queue_id: int, end: int) -> None:
        """A group can't have consumed what is not there any more (KB-RKT-35)."""
        offset = self.offset(group, topic, queue_id)
        if offset is not None and offset > end:
            self.put_offset(group, topic, queue_id, end)

    # -- files -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what changes until cancelled."""
        await self.files.run()

    async def save(self) -> None:
        """Write all that changed, at an orderly end."""
        await self.files.save()

    def _next(self, version: DataVersion) -> DataVersion:
        return next_version(version, self._epoch(), self._env.clock.wall_ns() // 1_000_000)
