"""What Kafka's answers mean to its client, and what its nodes say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from aiokafka import TopicPartition

import shalott.api as api
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott_kafka.client import TOPIC, KafkaClient, outcome_of, within
from shalott_kafka.settings import KafkaParameters, check, lay_out, missing, properties
from shalott_kafka.system import KafkaSystem
from shalott_kafka.wire import End, Partition, Quorum, Wire
from tests.plugins.kafka_broker import (
    ADD,
    BEGIN,
    CLOSES,
    END,
    FIND,
    JOIN,
    LEAVE,
    PRODUCE,
    SILENT,
    SPOKEN,
    Broker,
    Coordinator,
    CrowdedGroup,
    with_broker,
)

pytestmark = pytest.mark.unit

PLAIN = KafkaParameters(acks="1", idempotence=False, transactions=False)
SEND = (("send", 0, 42),)
NONE_ACKED, NOT_LEADER, TIMED_OUT, TOO_FEW, TOO_FEW_AFTER = -1, 6, 7, 19, 20


def send(produced: object, asked: KafkaParameters = PLAIN) -> tuple[object, Broker]:
    broker = Broker(produced)
    # Only silence is waited for. A client that has not begun to send by then says that it did not.
    timeout_ms = 2000 if produced == SILENT else 30_000

    async def do(port: int) -> object:
        client = KafkaClient("127.0.0.1", port, timeout_ms=timeout_ms, asked=asked)
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
        client = KafkaClient("127.0.0.1", port, timeout_ms=2000, asked=KafkaParameters())
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
    assert {*brokers} == {1} and quorum == Quorum(3, 8, 120)


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
        return system.why_unsettled(dict.fromkeys(("n1", "n2"), {"claims": claims}), ())

    assert why(claim(0, "n1"), claim(1, "n1")) == ""
    assert "n1 did not answer" in system.why_unsettled({"n1": None}, ())
    assert "led by none" in why(claim(0, "n1"))
    assert "led by n1 or n3" in why(claim(0, "n1"), claim(0, "n3"), claim(1, "n1"))
    behind = claim(0, "n1"), claim(1, "n1", isr="")
    assert "not in sync" in why(*behind)
    assert system.why_unsettled({"n1": {"claims": behind}}, ()) == "", "n2 is left down"
