"""What one broker or controller says of itself: requests of Kafka's protocol to exactly that node.

Client libraries ask any broker for metadata; an observation is about one node, so each node is
asked over a connection of its own. Shapes: https://kafka.apache.org/protocol (Metadata 5,
ListOffsets 5, DescribeQuorum 0).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest_v5
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

import shalott.api as api

ASK_TIMEOUT_MS = 1500
LATEST = -1  # the time that stands for a log's end
UNCOMMITTED, COMMITTED = 0, 1  # how far the end goes: the high watermark, the last stable offset
REPLICAS = CompactArray(("replica", Int32), ("log_end", Int64), ("tags", TaggedFields))
METADATA_LOG = "__cluster_metadata"


class Quorum(NamedTuple):
    """Of the controllers, as the one says that leads them."""

    leader: int
    epoch: int
    high_watermark: int


class Partition(NamedTuple):
    """Of a topic, as a broker's copy of the metadata has it."""

    key: int
    leader: int
    replicas: list[int]
    isr: list[int]


class End(NamedTuple):
    """Of a partition's log, as its leader has it."""

    offset: int
    epoch: int


class DescribeQuorumResponse(Response):  # type: ignore[misc]
    API_KEY = 55
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("topics", CompactArray(
            ("topic", CompactString("utf-8")),
            ("partitions", CompactArray(
                ("partition", Int32),
                ("error_code", Int16),
                ("leader", Int32),
                ("epoch", Int32),
                ("high_watermark", Int64),
                ("voters", REPLICAS),
                ("observers", REPLICAS),
                ("tags", TaggedFields),
            )),
            ("tags", TaggedFields),
        )),
        ("tags", TaggedFields),
    )  # fmt: skip


class DescribeQuorumRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 55
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeQuorumResponse
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("topic", CompactString("utf-8")),
            ("partitions", CompactArray(("partition", Int32), ("tags", TaggedFields))),
            ("tags", TaggedFields),
        )),
        ("tags", TaggedFields),
    )  # fmt: skip


class DescribeQuorum(Request[DescribeQuorumRequest_v0]):  # type: ignore[misc]
    API_KEY = 55

    def build(
        self, request_struct_class: type[DescribeQuorumRequest_v0]
    ) -> DescribeQuorumRequest_v0:
        return request_struct_class([(METADATA_LOG, [(0, {})], {})], {})


class Ends(Request[OffsetRequest_v5]):  # type: ignore[misc]
    API_KEY = 2

    def __init__(self, topic: str, keys: Iterable[int], level: int) -> None:
        self._level, self._topics = level, [(topic, [(key, -1, LATEST) for key in keys])]

    def build(self, request_struct_class: type[OffsetRequest_v5]) -> OffsetRequest_v5:
        return request_struct_class(-1, self._level, self._topics)


class Wire:
    """Connections to nodes, one a port, made when they are needed."""

    def __init__(self) -> None:
        self._open: dict[api.Endpoint, AIOKafkaConnection] = {}

    async def quorum(self, at: api.Endpoint) -> Quorum | None:
        """None: the controller there does not lead, or knows of no leader."""
        told = await self._ask(at, DescribeQuorum())
        for _, partitions, _ in told.topics:
            for _, error, leader, epoch, high_watermark, *_ in partitions:
                return None if error else Quorum(leader, epoch, high_watermark)
        return None

    async def brokers(self, at: api.Endpoint) -> dict[int, api.Endpoint]:
        """Those that are let in, as a broker's copy of the metadata has it, and where."""
        told = await self._ask(at, MetadataRequest([]))
        return {broker[0]: api.Endpoint(*broker[1:3]) for broker in told.brokers}

    async def partitions(self, at: api.Endpoint, topic: str) -> list[Partition]:
        told = await self._ask(at, MetadataRequest([topic]))
        return [
            Partition(key, leader, replicas, isr)
            for _, _, _, partitions in told.topics
            for _, key, leader, replicas, isr, *_ in partitions
        ]

    async def ends(
        self, at: api.Endpoint, topic: str, keys: Iterable[int], level: int = UNCOMMITTED
    ) -> dict[int, End]:
        """Of those partitions that the broker leads by its own account."""
        told = await self._ask(at, Ends(topic, keys, level))
        return {
            key: End(offset, epoch)
            for _, partitions in told.topics
            for key, error, _, offset, epoch in partitions
            if not error
        }

    async def _ask(self, at: api.Endpoint, request: Request[RequestStruct]) -> Response:
        """Raises ClientError."""
        try:
            connection = self._open.get(at)
            if connection is None or not connection.connected():
                connection = self._open[at] = await create_conn(
                    at.host, at.port, request_timeout_ms=ASK_TIMEOUT_MS
                )
            return cast(Response, await connection.send(request))
        except (TimeoutError, KafkaError, OSError) as error:
            if (broken := self._open.pop(at, None)) is not None:
                broken.close()
            raise api.Definite(f"{at.host}:{at.port}: {type(error).__name__} {error}") from error

    async def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()
