"""Topics that every broker has from its first start on, and names that nobody may give to another.

After common/topic/TopicValidator.java and broker/topic/TopicConfigManager.java, with the counts of
queues and permissions that a started 5.3.3 tells. An original's name server takes a broker that it
does not know for a broken one if it comes with one topic only, so these are registered with the
others. Nothing is stored in most of them here: transactions, POP and tracing are not there.
"""

from __future__ import annotations

from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.remoting.route_data import (
    DEFAULT_TOPIC,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
)

PERM_INHERIT = 1  # of the template of topics that are made by themselves
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_QUEUES = 18  # one a level of delay
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_PREFIX = "rmq_sys_"
CLUSTER_QUEUES = 16
REVIVE_QUEUES = 8

_HALF, _OP_HALF = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_CHECKED_TOO_OFTEN, _TRACE = "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC"
_SELF_TEST, _BENCHMARK, _MOVED = "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT"

# Of these two an original may have none; their names are taken all the same.
_NAMES_ONLY = (_CHECKED_TOO_OFTEN, _TRACE)
# What a client stores there would be taken for a broker's own. Upstream lets anybody write to the
# timers' topic, and what is no timer there stops all that comes behind it.
NOT_FOR_CLIENTS = (
    *(SCHEDULE_TOPIC, _HALF, _OP_HALF, _CHECKED_TOO_OFTEN, _SELF_TEST, _MOVED, TIMER_TOPIC),
)


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
        _topic(_HALF, 1, both),
        _topic(_OP_HALF, 1, both),
        _topic(TIMER_TOPIC, 1, both),
        _topic(f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}", REVIVE_QUEUES, both),
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
