"""Topics' names, the topics of the system, and the tables that brokers keep besides topics, as
brokers send them to each other (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GET_ALL_CONSUMER_OFFSET,
GET_ALL_DELAY_OFFSET) and as they lie in files.

Names of fields are those of upstream's JSON. Every table has a DataVersion: a copier compares that
and takes the whole. The table of topics is in broker/rocket/remoting/route_data.py.
"""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.commitlog.due_times import SCHEDULE_TOPIC
from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.remoting.route_data import (
    DEFAULT_TOPIC,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
)

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
    """One consumer group. Brokers heed ``consume_enable``, ``retry_queue_nums`` and
    ``retry_max_times``; the rest is kept for who set it."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, object] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[object] | None | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, str] = {}


class GroupTable(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """SubscriptionGroupWrapper."""

    subscription_group_table: dict[str, SubscriptionGroup] = {}
    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, int]] = {}
    # Of ours, where there are any: "topic@group" that does not pull.
    request_modes: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


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


# -- system topics ---------------------------------------------------------------------------------
# Topics that every broker has from its first start on, and names that no other may have.
#
# After common/topic/TopicValidator.java and broker/topic/TopicConfigManager.java, with the counts
# of queues and permissions that a started 5.3.3 tells. An original's name server takes a broker
# that it does not know for a broken one if it comes with one topic only, so these are registered
# with the others. Nothing is stored in most of them here: POP and tracing are not
# there.


PERM_INHERIT = 1  # of the template of topics that are made by themselves
SCHEDULE_QUEUES = 18  # one a level of delay
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_PREFIX = "rmq_sys_"
CLUSTER_QUEUES = 16
REVIVE_QUEUES = 8

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
LAID_ASIDE_TOPIC, _TRACE = "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC"
_SELF_TEST, _BENCHMARK, _MOVED = "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT"

# Of these two an original may have none; their names are taken all the same.
_NAMES_ONLY = (LAID_ASIDE_TOPIC, _TRACE)
# What a client stores there would be taken for a broker's own. Upstream lets anybody write to the
# timers' topic, and what is no timer there stops all that comes behind it.
NOT_FOR_CLIENTS = (
    *(SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, LAID_ASIDE_TOPIC, _SELF_TEST, _MOVED, TIMER_TOPIC),
)


def revive_topic(config: BrokerConfig) -> str:
    """What is popped and acknowledged (flights.py)."""
    return f"{SYSTEM_PREFIX}REVIVE_LOG_{config.cluster_name}"


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Of a broker of this cluster and group."""
    cluster, group = config.cluster_name, config.broker_name
    both = PERM_READ | PERM_WRITE
    return [
        _topic(DEFAULT_TOPIC, config.default_queues, both | PERM_INHERIT),
        _topic(_SELF_TEST, 1, both),
        _topic(_BENCHMARK, 1024, both),
        _topic(_MOVED, 1, both),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES, both),
        _topic(HALF_TOPIC, 1, both),
        _topic(OP_TOPIC, 1, both),
        _topic(TIMER_TOPIC, 1, both),
        _topic(revive_topic(config), REVIVE_QUEUES, both),
        _topic(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{group}", 1, PERM_INHERIT),
        _topic(f"{cluster}_REPLY_TOPIC", 1, both),
        _topic(cluster, CLUSTER_QUEUES, both | PERM_INHERIT),
        _topic(group, 1, both | PERM_INHERIT),
    ]


def is_system_topic(name: str, config: BrokerConfig) -> bool:
    """Whether no other topic may have this name at such a broker."""
    if name.startswith(SYSTEM_PREFIX) or name in _NAMES_ONLY:
        return True
    return any(name == topic.topic_name for topic in system_topics(config))


def _topic(name: str, queues: int, perm: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
