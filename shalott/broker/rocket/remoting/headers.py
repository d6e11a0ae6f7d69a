"""Headers of requests and answers as typed structs, from and to a command's ext fields.

Names on the wire are upstream's (remoting/protocol/header/**): camel case, one letter in
SEND_MESSAGE_V2. Everything is text there; booleans come as "true" from Java and as "1" from C++. A
field that is None is not sent; one that we don't know is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from shalott.broker.base.errors import BrokerError

T = TypeVar("T", bound=msgspec.Struct)


class BadHeader(BrokerError):
    """A field is missing, or is not what it should be."""


def from_ext(ext: Mapping[str, str], header: type[T]) -> T:
    """Raises BadHeader."""
    try:
        return msgspec.convert(ext, header, strict=False)
    except msgspec.ValidationError as error:
        raise BadHeader(f"the header can't be understood: {error}") from error


def to_ext(header: msgspec.Struct) -> dict[str, str]:
    """As Java writes it."""
    fields = msgspec.to_builtins(header)
    return {
        name: value if type(value) is str else _text(value)
        for name, value in fields.items()
        if value is not None
    }


def _text(value: int | bool) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


# -- clients to brokers ----------------------------------------------------------------------------

_SEND_V2_LETTERS: Mapping[str, str] = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "consume_retry_times": "l",
    "batch": "m",
    "broker_name": "n",
}


class SendMessageV2(msgspec.Struct, kw_only=True, frozen=True, rename=_SEND_V2_LETTERS):
    """310, and 320 with ``batch``."""

    producer_group: str
    topic: str
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 4
    queue_id: int
    sys_flag: int = 0
    born_timestamp: int
    flag: int = 0
    properties: str | None = None
    reconsume_times: int = 0
    unit_mode: bool = False
    consume_retry_times: int | None = None
    batch: bool = False
    broker_name: str | None = None


class SendResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Answers a send. ``queue_offset`` is the first message's of a batch."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None


PULL_COMMIT_OFFSET, PULL_SUSPEND, PULL_SUBSCRIPTION = 1, 2, 4  # bits of sys_flag


class PullMessage(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """11."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int = PULL_SUBSCRIPTION
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str | None = "*"
    sub_version: int = 0
    expression_type: str | None = "TAG"


class PullResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Answers a pull, with any code."""

    suggest_which_broker_id: int = 0
    next_begin_offset: int
    min_offset: int
    max_offset: int


class ConsumerOffset(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """14 and, with ``commit_offset``, 15."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int | None = None


class QueueOfTopic(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """30, 31 and, with ``timestamp`` (ms), 29."""

    topic: str
    queue_id: int
    timestamp: int | None = None


class CreateTopic(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """17. An original refuses one that leaves anything out but ``order``. ``perm``: PERM_READ and
    PERM_WRITE."""

    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: int
    write_queue_nums: int
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False


class Offset(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Answers 14, 29, 30 and 31."""

    offset: int


# -- to name servers -------------------------------------------------------------------------------


class RegisterBroker(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """103. Without ``heartbeat_timeout_millis`` the name server's own timeout counts; a body whose
    ``body_crc32`` is 0 is not checked.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: int
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = msgspec.field(default=0, name="bodyCrc32")


class RegisterBrokerResult(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Answers 103: to a slave, where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class RouteOfTopic(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """105."""

    topic: str


class QueryDataVersion(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """322; the broker's version is in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str


class DataVersionChanged(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Answers 322; what the name server has is in the body."""

    changed: bool


class KeyValue(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """100, and without ``value`` 101 and 102."""

    namespace: str
    key: str
    value: str | None = None


class BrokerOfName(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """205 and 327."""

    broker_name: str
