"""Topics, subscription groups and consumers' offsets: three tables, as brokers send them to each
other (GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GET_ALL_CONSUMER_OFFSET) and to name
servers, and as they lie in files.

Names of fields are those of upstream's JSON. Every table has a DataVersion: who copies it compares
that and takes the whole.
"""

from __future__ import annotations

import msgspec

PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1  # of the template of topics that are made by themselves
AUTO_CREATE_TOPIC = "TBW102"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
TOPIC_LENGTH_MAX = 127


class DataVersion(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Of one table. ``state_version`` is the epoch of the master that made the last change."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, state_version: int, now_ms: int) -> DataVersion:
        return DataVersion(state_version=state_version, timestamp=now_ms, counter=self.counter + 1)


class TopicConfig(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One topic."""

    topic_name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    @property
    def queues(self) -> int:
        return max(self.read_queue_nums, self.write_queue_nums)


class TopicTable(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """TopicConfigSerializeWrapper."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class SubscriptionGroup(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One consumer group, as far as brokers heed it."""

    group_name: str
    consume_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16


class GroupTable(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """SubscriptionGroupWrapper."""

    subscription_group_table: dict[str, SubscriptionGroup] = {}
    data_version: DataVersion = DataVersion()


class OffsetTable(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """ConsumerOffsetSerializeWrapper: "topic@group" -> queue id -> the next offset to consume."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion = DataVersion()


class DelayTable(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """DelayOffsetSerializeWrapper: delay level -> the next offset to deliver."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion = DataVersion()


def retry_topic(group: str) -> str:
    return group if group.startswith(RETRY_PREFIX) else f"{RETRY_PREFIX}{group}"


def dead_letter_topic(group: str) -> str:
    return group if group.startswith(DLQ_PREFIX) else f"{DLQ_PREFIX}{group}"


def is_valid_topic(topic: str) -> bool:
    """What upstream's TopicValidator lets through: letters, digits and -_|% ."""
    return (
        0 < len(topic) <= TOPIC_LENGTH_MAX
        and topic.isascii()
        and all(letter.isalnum() or letter in "-_|%" for letter in topic)
    )
