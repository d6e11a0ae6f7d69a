"""As much of a Kafka broker's protocol as its clients' tests ask for."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2
from aiokafka.protocol.coordination import FindCoordinatorResponse_v1
from aiokafka.protocol.group import (
    JoinGroupResponse_v5,
    LeaveGroupRequest_v1,
    LeaveGroupResponse_v1,
)
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.offset import OffsetResponse_v5
from aiokafka.protocol.produce import ProduceResponse_v7
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnResponse_v0,
    InitProducerIdResponse_v0,
)

from shalott_kafka.client import TOPIC
from shalott_kafka.protected import EndTxnResponse5, ProduceRequest12, ProduceResponse12
from shalott_kafka.wire import DescribeQuorumResponse

PRODUCE, ENDS, METADATA, FIND, VERSIONS, BEGIN, ADD, END, QUORUM = 0, 2, 3, 10, 18, 22, 24, 26, 55
JOIN, LEAVE, ID_REQUIRED, CONCURRENT = 11, 13, 79, 51
FLEXIBLE = {(QUORUM, 0), (PRODUCE, 12), (END, 5)}
SPOKEN = {PRODUCE: 7, ENDS: 5, METADATA: 5, VERSIONS: 0, QUORUM: 0}
SILENT, CLOSES = "silent", "closes"


@dataclass
class Broker:
    """Speaks as much of Kafka's protocol as is asked for here. ``produced``: what a send gets."""

    produced: object = 0
    port: int = 0
    sent: int = 0
    quorum: tuple[object, ...] = (0, [], {})
    spoken: Mapping[int, int] = field(default_factory=lambda: SPOKEN)
    asked: list[tuple[int, bytes]] = field(default_factory=list)
    _open: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, version, correlation = struct.unpack(">hhi", request[:8])
                self.asked.append((key, request))
                answer = self.answer(key)
                if answer == CLOSES:
                    writer.close()
                    return
                if answer != SILENT:
                    assert isinstance(answer, bytes)
                    tags = b"\0" if (key, version) in FLEXIBLE else b""
                    whole = struct.pack(">i", correlation) + tags + answer
                    writer.write(struct.pack(">i", len(whole)) + whole)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def answer(self, key: int) -> object:
        if key == VERSIONS:
            told = [(each, version, version) for each, version in self.spoken.items()]
            return ApiVersionResponse_v0(0, told).encode()
        if key == METADATA:
            partitions: list[tuple[object, ...]] = [(0, 0, 1, [1, 2], [1], [])]
            brokers = [(1, "127.0.0.1", self.port, None)]
            return MetadataResponse_v5(
                0, brokers, "cluster", 1, [(0, TOPIC, False, partitions)]
            ).encode()
        if key == ENDS:
            return OffsetResponse_v5(0, [(TOPIC, [(0, 0, -1, 9, 4), (1, 6, -1, -1, -1)])]).encode()
        if key == QUORUM:
            return DescribeQuorumResponse(*self.quorum).encode()
        self.sent += 1
        if not isinstance(self.produced, int):
            return self.produced
        return ProduceResponse_v7([(TOPIC, [(0, self.produced, 7, -1, 0)])], 0).encode()


def with_broker(broker: Broker, do: Callable[[int], object]) -> object:
    async def scenario() -> object:
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        async with server:
            broker.port = server.sockets[0].getsockname()[1]
            doing = do(broker.port)
            assert asyncio.iscoroutine(doing)
            try:
                return await doing
            finally:
                for writer in broker._open:
                    writer.close()

    return asyncio.run(scenario())


@dataclass
class Coordinator(Broker):
    """Speaks the transactions' version 2, and raises the epoch with each end."""

    epoch: int = 0
    busy: int = 0  # so many sends come before the transaction before theirs has ended everywhere

    def answer(self, key: int) -> object:
        if key == FIND:
            return FindCoordinatorResponse_v1(0, 0, "", 1, "127.0.0.1", self.port).encode()
        if key == BEGIN:
            return InitProducerIdResponse_v0(0, 0, 9, self.epoch).encode()
        if key == ADD:
            return AddPartitionsToTxnResponse_v0(0, [(TOPIC, [(0, 0)])]).encode()
        if key == PRODUCE:
            self.busy -= 1
            told = (0, CONCURRENT if self.busy >= 0 else 0, 7, -1, 0, [], None, {})
            return ProduceResponse12([(TOPIC, [told], {})], 0, {}).encode()
        if key == END:
            self.epoch += 1
            return EndTxnResponse5(0, 0, 9, self.epoch, {}).encode()
        return super().answer(key)

    def stored(self) -> list[tuple[int, int, int]]:
        """Of each batch: who sent it, in which epoch, and its number."""
        batches = []
        for key, request in self.asked:
            if key == PRODUCE:
                body = BytesIO(request)
                RequestHeader_v2.SCHEMA.decode(body)
                [(_, [(_, batch, _)], _)] = ProduceRequest12.decode(body).topics
                batches.append(struct.unpack(">qhi", batch[43:57]))
        return batches


@dataclass
class CrowdedGroup(Coordinator):
    """Waits for a member that does not come."""

    joins: int = 0
    left: list[str] = field(default_factory=list)

    def answer(self, key: int) -> object:
        if key == JOIN:
            self.joins += 1
            told = JoinGroupResponse_v5(0, ID_REQUIRED, -1, "", "", "m-1", []).encode()
            return told if self.joins == 1 else SILENT
        if key == LEAVE:
            body = BytesIO(self.asked[-1][1])
            RequestHeader_v1.SCHEMA.decode(body)
            self.left.append(LeaveGroupRequest_v1.decode(body).member_id)
            return LeaveGroupResponse_v1(0, 0).encode()
        return super().answer(key)
