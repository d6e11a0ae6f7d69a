"""What Kafka's answers mean to its client, and what its nodes say of themselves."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

import pytest
from aiokafka import TopicPartition
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

import shalott.api as api
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott_kafka.client import TOPIC, KafkaClient, outcome_of, within
from shalott_kafka.protected import EndTxnResponse5, ProduceRequest12, ProduceResponse12
from shalott_kafka.settings import KafkaParameters, check, lay_out, missing, properties
from shalott_kafka.system import KafkaSystem
from shalott_kafka.wire import DescribeQuorumResponse, End, Partition, Quorum, Wire

pytestmark = pytest.mark.unit

PRODUCE, ENDS, METADATA, FIND, VERSIONS, BEGIN, ADD, END, QUORUM = 0, 2, 3, 10, 18, 22, 24, 26, 55
JOIN, LEAVE, ID_REQUIRED, CONCURRENT = 11, 13, 79, 51
FLEXIBLE = {(QUORUM, 0), (PRODUCE, 12), (END, 5)}
SPOKEN = {PRODUCE: 7, ENDS: 5, METADATA: 5, VERSIONS: 0, QUORUM: 0}
SILENT, CLOSES = "silent", "closes"
PLAIN = KafkaParameters(acks="1", idempotence=False, transactions=False)
SEND = (("send", 0, 42),)
NONE_ACKED, NOT_LEADER, TIMED_OUT, TOO_FEW, TOO_FEW_AFTER = -1, 6, 7, 19, 20


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


def send(produced: object, asked: KafkaParameters = PLAIN) -> tuple[object, Broker]:
    broker = Broker(produced)

    async def do(port: int) -> object:
        client = KafkaClient("127.0.0.1", port, timeout_ms=400, asked=asked)
        try:
            return await client.transact(SEND, {})
        finally:
            await client.close()

    return with_broker(broker, do), broker


def test_a_send_tells_its_offset() -> None:
    answers, broker = send(0)
    assert answers == [(7, 42)] and broker.sent == 1


@pytest.mark.parametrize(
    ("produced", "error"),
    [
        (TOO_FEW, api.Definite),
        (NOT_LEADER, api.Definite),
        (TOO_FEW_AFTER, api.Indefinite),
        (TIMED_OUT, api.Indefinite),
        (SILENT, api.Indefinite),
        (CLOSES, api.Indefinite),
        (NONE_ACKED, api.Indefinite),
    ],
)
def test_a_send_that_went_wrong_is_sent_once(
    produced: object, error: type[api.ClientError]
) -> None:
    with pytest.raises(error):
        send(produced)


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


def two_transactions(broker: Broker) -> object:
    async def do(port: int) -> object:
        asked = KafkaParameters(transaction_version="2")
        client = KafkaClient("127.0.0.1", port, timeout_ms=2000, asked=asked)
        try:
            return [await client.transact(SEND, {}) for _ in range(2)]
        finally:
            await client.close()

    return with_broker(broker, do)


def test_a_transaction_waits_for_the_one_before() -> None:
    broker = Coordinator(spoken=SPOKEN | {PRODUCE: 12, FIND: 1, BEGIN: 0, END: 5}, busy=1)
    assert two_transactions(broker) == [[(7, 42)], [(7, 42)]]
    assert broker.stored() == [(9, 0, 0), (9, 0, 0), (9, 1, 0)]


def test_each_transaction_of_version_2_has_an_epoch_of_its_own() -> None:
    broker = Coordinator(spoken=SPOKEN | {PRODUCE: 12, FIND: 1, BEGIN: 0, END: 5})
    assert two_transactions(broker) == [[(7, 42)], [(7, 42)]]
    assert broker.stored() == [(9, 0, 0), (9, 1, 0)]
    assert [key for key, _ in broker.asked if key in (ADD, END)] == [END, END]


@pytest.mark.parametrize(("is_fenced", "error"), [(True, api.Definite), (False, api.Indefinite)])
def test_a_transaction_is_known_to_fail_once_its_producer_is_fenced(
    is_fenced: bool, error: type[api.ClientError]
) -> None:
    @dataclass
    class Paused(Coordinator):
        """Says nothing of what is sent, nor anything else from then on if it is not to fence."""

        is_paused: bool = False

        def answer(self, key: int) -> object:
            self.is_paused |= key == PRODUCE
            if key == PRODUCE or (self.is_paused and not is_fenced):
                return SILENT
            return super().answer(key)

    broker = Paused(spoken=SPOKEN | {FIND: 1, BEGIN: 0, ADD: 0, END: 0})

    async def do(port: int) -> object:
        client = KafkaClient("127.0.0.1", port, timeout_ms=400, asked=KafkaParameters())
        try:
            return await client.transact(SEND, {})
        finally:
            await client.close()

    with pytest.raises(error) as raised:
        with_broker(broker, do)
    assert type(raised.value) is error and broker.is_paused
    assert END not in {key for key, _ in broker.asked}


def test_a_broker_that_does_not_speak_version_2_is_not_asked_in_version_1() -> None:
    broker = Coordinator(spoken=SPOKEN | {FIND: 1, BEGIN: 0, ADD: 0, END: 0})
    with pytest.raises(api.ClientError):
        two_transactions(broker)
    assert not {PRODUCE, ADD, END} & {key for key, _ in broker.asked}


def test_a_leader_that_waited_for_others_may_have_appended() -> None:
    assert isinstance(outcome_of(NOT_LEADER, acks=1), api.Definite)
    assert isinstance(outcome_of(NOT_LEADER, acks=-1), api.Indefinite)
    assert isinstance(outcome_of(TOO_FEW, acks=-1), api.Definite)
    assert isinstance(outcome_of(TOO_FEW_AFTER, acks=-1), api.Indefinite)


def test_no_broker_is_unreachable() -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await KafkaClient("127.0.0.1", port, timeout_ms=400, asked=PLAIN).open()

    with pytest.raises(api.Unreachable):
        asyncio.run(scenario())


def test_a_client_tells_once_what_its_group_moved() -> None:
    client = KafkaClient("127.0.0.1", 1, timeout_ms=400, asked=PLAIN)
    client._moves.on_partitions_revoked([TopicPartition(TOPIC, 2)])
    client._moves.on_partitions_assigned([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    assert client.moved() == [2, 0, 1] and client.moved() == []


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


def test_a_member_that_could_not_join_in_time_says_that_it_leaves() -> None:
    broker = CrowdedGroup(spoken=SPOKEN | {FIND: 1, JOIN: 5, LEAVE: 1})

    async def do(port: int) -> object:
        client = KafkaClient("127.0.0.1", port, timeout_ms=1000, asked=PLAIN)
        return await client.subscribe([0])

    with pytest.raises(api.Indefinite):
        with_broker(broker, do)
    assert broker.joins == 2 and broker.left == ["m-1"]


def test_what_ignores_its_cancelling_is_left_alone() -> None:
    async def stubborn(until: asyncio.Event) -> None:
        while not until.is_set():
            try:
                await until.wait()
            except asyncio.CancelledError:
                pass

    async def scenario() -> None:
        until = asyncio.Event()
        with pytest.raises(TimeoutError):
            await within(0.01, stubborn(until))
        until.set()
        await asyncio.sleep(0)
        assert await within(1, asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def test_a_node_says_what_it_leads() -> None:
    log: list[tuple[object, ...]] = [(0, 0, 3, 8, 120, [(3, 120, {})], [], {})]
    broker = Broker(quorum=(0, [("__cluster_metadata", log, {})], {}))

    async def do(port: int) -> object:
        wire, at = Wire(), api.Endpoint("127.0.0.1", port)
        try:
            return (
                await wire.partitions(at, TOPIC),
                await wire.ends(at, TOPIC, (0, 1)),
                await wire.brokers(at),
                await wire.quorum(at),
            )
        finally:
            await wire.close()

    partitions, ends, brokers, quorum = with_broker(broker, do)  # type: ignore[misc]
    assert partitions == [Partition(0, 1, [1, 2], [1])]
    assert ends == {0: End(9, 4)}  # another leads 1
    assert brokers == {1} and quorum == Quorum(3, 8, 120)


def test_a_controller_that_does_not_lead_says_nothing_of_the_quorum() -> None:
    broker = Broker(quorum=(0, [("__cluster_metadata", [(0, 6, -1, 8, 0, [], [], {})], {})], {}))

    async def do(port: int) -> object:
        wire = Wire()
        try:
            return await wire.quorum(api.Endpoint("127.0.0.1", port))
        finally:
            await wire.close()

    assert with_broker(broker, do) is None


def plan_of(
    nodes: int = 3, services: Mapping[str, tuple[str, ...]] | None = None, **parameters: object
) -> Plan:
    names = tuple(f"n{at}" for at in range(1, nodes + 1))
    return Plan(
        name="kafka",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=names),
        system=SystemPlan(
            name="kafka", profile="default", parameters=parameters, services=dict(services or {})
        ),
        workload=WorkloadPlan(name="partitions", rate_hz=50, concurrency=6, parameters={"keys": 2}),
        gates=GatePlan(),
        faults=(),
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"acks": "1"},
        {"transaction_version": "2", "version": "3.9.1"},
        {"idempotence": False},
        {"replicas": 4},
        {"min_insync_replicas": 3, "replicas": 2},
    ],
)
def test_what_kafka_can_not_have_is_refused(parameters: dict[str, object]) -> None:
    check(plan_of())
    with pytest.raises(api.UsageError):
        check(plan_of(**parameters))


def test_a_broker_alone_has_no_address_to_advertise() -> None:
    with pytest.raises(api.UsageError, match="--nodes 2"):
        check(plan_of(nodes=1, replicas=1))


def test_brokers_and_controllers_stand_apart() -> None:
    nodes = tuple(f"n{at}" for at in range(1, 7))
    services = lay_out("apart", nodes, {})
    assert [each for own in services.values() for each in own] == ["broker"] * 3 + (
        ["controller"] * 3
    )
    assert lay_out("together", nodes, {}) == {}
    assert missing({"n1": ("broker",)}, {}) == "controller" and missing(services, {}) == ""
    with pytest.raises(api.UsageError, match="needs 4 nodes"):
        lay_out("apart", nodes[:3], {})
    system = KafkaSystem(plan_of(6, services))
    assert system.hosted_ports("n1") == ["client", "broker"]
    assert system.hosted_ports("n6") == ["controller"]
    broker = properties(KafkaParameters(), services, "n1", "10.0.0.1")
    controller = properties(KafkaParameters(), services, "n6", "")
    assert broker["controller.quorum.voters"] == "4@n4:9093,5@n5:9093,6@n6:9093"
    assert broker["advertised.listeners"] == "CLIENT://10.0.0.1:9092,BROKER://n1:9094"
    assert controller["listeners"] == "CONTROLLER://0.0.0.0:9093"


def claim(key: int, master: str, isr: str = "n2") -> dict[str, object]:
    return {
        "group": f"{TOPIC}-{key}", "master": master, "mirrors": ["n2"], "synchronised": [isr],
    }  # fmt: skip


def test_a_cluster_settles_when_all_say_the_same_and_none_is_behind() -> None:
    system = KafkaSystem(plan_of())

    def why(*claims: dict[str, object]) -> str:
        return system.why_unsettled({"n1": {"claims": claims}}, ())

    assert why(claim(0, "n1"), claim(1, "n1")) == ""
    assert "n1 did not answer" in system.why_unsettled({"n1": None}, ())
    assert "led by none" in why(claim(0, "n1"))
    assert "led by n1 or n3" in why(claim(0, "n1"), claim(0, "n3"), claim(1, "n1"))
    assert "not in sync" in why(claim(0, "n1"), claim(1, "n1", isr=""))
