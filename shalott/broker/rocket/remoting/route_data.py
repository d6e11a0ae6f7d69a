"""JSON bodies about routes: what a broker registers, and what clients are told.

After remoting/protocol/route/** and remoting/protocol/body/**. Written as standard JSON: the ids of
brokers are text as keys of an object, which older clients take as well. Java's are read too
(java_json.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.remoting.java_json import decode_java_json

MASTER_ID = 0
PERM_READ, PERM_WRITE = 4, 2
DEFAULT_TOPIC = "TBW102"  # its queues are the model of a topic that is created by being sent to

T = TypeVar("T")


class BadBody(BrokerError):
    """A body is not the JSON that it should be."""


class DataVersion(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Of a broker's topics. ``state_version`` is the epoch of the master that has them."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


class TopicConfig(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """One topic of a broker."""

    topic_name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigs(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """All topics of a broker. ``deleted_topics``: where its log ended when they were, which our
    slaves ask for; an original says nothing of it."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    deleted_topics: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class RegisterBody(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """What a broker registers."""

    topic_config_serialize_wrapper: TopicConfigs = TopicConfigs()
    filter_server_list: list[str] = []


class QueueData(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A topic's queues at one broker group."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerData(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A broker group: addresses by id, 0 being the master's."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRoute(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The body of the answer to 105."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = {}

    def master(self, broker_name: str) -> str | None:
        """Where this route says the group's master is."""
        for group in self.broker_datas:
            if group.broker_name == broker_name:
                return group.broker_addrs.get(MASTER_ID)
        return None


class ClusterInfo(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The body of the answer to 106."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class TopicList(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The body of the answer to 206."""

    topic_list: Sequence[str]


def encode_body(body: msgspec.Struct) -> bytes:
    return msgspec.json.encode(body)


def decode_body(data: bytes, shape: type[T]) -> T:
    """Raises BadBody."""
    try:
        return decode_java_json(data, shape)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body can't be understood: {error}") from error


def body_crc(data: bytes) -> int:
    """As the header of a registration has it: 31 bits."""
    return crc32(data) & 0x7FFFFFFF
