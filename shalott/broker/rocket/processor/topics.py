"""Topics' names, and the tables that brokers keep besides topics
(broker/rocket/remoting/route_data.py has those): as brokers send them to each other
(GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET), and as they lie
in files.

Names of fields are those of upstream's JSON. Every table has a DataVersion: who copies it compares
that and takes the whole.
"""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.remoting.route_data import DataVersion, TopicConfig

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
DEAD_LETTER_QUEUES = 1  # DLQ_NUMS_PER_GROUP
TOPIC_LENGTH_MAX = 127


def next_version(version: DataVersion, state_version: int, now_ms: int) -> DataVersion:
    """After one more change, by a master of the epoch ``state_version``."""
    return DataVersion(state_version=state_version, timestamp=now_ms, counter=version.counter + 1)


def queues_of(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


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
