"""The workloads of partitions: their client, their queues as partitions, and what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from shalott.clients.rocketmq.queue_partitions import QueuePartitions
from shalott.cluster.systems.record import SYSTEMS, Partitions
from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError
from shalott.core.op import Completion, Invocation
from shalott.core.partitions import Mop, Pairs
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott.workloads import partitions
from shalott.workloads.partitions import PartitionClient
from shalott_partitions.toy import SYSTEM

pytestmark = pytest.mark.unit

Answers = Sequence[tuple[int, int] | Mapping[int, Pairs]]


@dataclass
class Logs:
    """A Partitioned that gives answers, or raises them, and remembers where it was asked."""

    answers: list[Answers | Exception]
    places: list[Mapping[int, int]] = field(default_factory=list)
    joined: list[Sequence[int]] = field(default_factory=list)
    committed: list[Mapping[int, int]] = field(default_factory=list)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def transact(self, mops: Sequence[Mop], places: Mapping[int, int]) -> Answers:
        self.places.append(places)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class GroupedLogs(Logs):
    moves: list[Sequence[int]] = field(default_factory=list)

    def moved(self) -> Sequence[int]:
        return self.moves.pop(0) if self.moves else ()

    async def subscribe(self, keys: Sequence[int]) -> None:
        self.joined.append(keys)

    async def commit(self, places: Mapping[int, int]) -> None:
        self.committed.append(places)


def asked(f: str, *value: object, **extra: object) -> Invocation:
    return Invocation(f=f, extra={"value": list(value), **extra})


def invoke(client: PartitionClient, *invocations: Invocation) -> Completion:
    """What came of the last one."""

    async def all_of_them() -> list[Completion]:
        return [await client.invoke(each) for each in invocations]

    return asyncio.run(all_of_them())[-1]


POLL = asked("poll", ("poll",))


def test_a_client_polls_on_from_where_it_was_and_begins_keys_anew() -> None:
    logs = Logs([({1: [(0, 5), (3, 6)], 2: []},), Definite("no"), ({},), ({},)])
    client = PartitionClient(logs)
    done = invoke(client, asked("assign", 1, 2), POLL)
    assert done == Completion(
        type="ok", extra={"value": [["poll", {"1": [[0, 5], [3, 6]], "2": []}]]}
    )
    with pytest.raises(Definite):
        invoke(client, POLL)
    invoke(client, POLL)
    invoke(client, asked("assign", 2, 3), asked("assign", 1, 2), POLL)
    assert logs.places == [{1: 0, 2: 0}, {1: 4, 2: 0}, {1: 4, 2: 0}, {1: 0, 2: 0}]


def test_a_client_that_subscribed_polls_by_its_group_and_commits_what_it_was_given() -> None:
    logs = GroupedLogs([({1: [(4, 5), (5, 6)]},), ({2: [(0, 7)]},), ({},)])
    client = PartitionClient(logs)
    commit = Invocation(f="commit")
    assert invoke(client, asked("subscribe", 1, 2), commit).error == "there is nothing to commit"
    done = invoke(client, POLL, POLL, commit)
    assert (done.type, done.extra) == ("ok", {"value": {"1": 6, "2": 1}})
    assert logs.committed == [{1: 6, 2: 1}] and logs.places == [{}, {}]
    invoke(client, asked("assign", 2), POLL)
    assert logs.joined == [[1, 2], ()] and logs.places[-1] == {2: 0}


def test_what_a_group_moves_during_a_transaction_stands_in_the_history() -> None:
    logs = GroupedLogs([({1: [(4, 5)]},), ({1: [(4, 5)]},)], moves=[(2,), (), (), (3, 1, 3)])
    client = PartitionClient(logs)
    before = invoke(client, asked("subscribe", 1, 2, 3), POLL)
    assert before.extra == {"value": [["poll", {"1": [[4, 5]]}]]}
    assert (invoke(client, POLL).extra or {})["rebalance_log"] == [{"keys": [1, 3]}]


def test_sends_stand_in_the_history_with_their_offsets() -> None:
    client = PartitionClient(Logs([((7, 50), {1: [(0, 5)]})]))
    done = invoke(client, asked("txn", ("send", 3, 50), ("poll",)))
    assert done.extra == {"value": [["send", 3, [7, 50]], ["poll", {"1": [[0, 5]]}]]}


def test_a_client_that_can_not_reach_its_node_is_not_replaced() -> None:
    with pytest.raises(Definite) as raised:
        invoke(PartitionClient(Logs([Unreachable("gone")])), POLL)
    assert not isinstance(raised.value, Unreachable)
    with pytest.raises(Indefinite, match="crashed"):
        invoke(PartitionClient(Logs([])), Invocation(f="crash"))


def test_the_last_polls_tell_when_there_is_no_more() -> None:
    to_the_end = asked("poll", ("poll",), to_the_end=True)
    assert invoke(PartitionClient(Logs([({1: []},)])), to_the_end).error == "empty"
    assert invoke(PartitionClient(Logs([({1: [(0, 5)]},)])), to_the_end).type == "ok"


@dataclass
class Queues:
    """A LogClient's answers, by queue."""

    polls: Mapping[str, Completion | Exception]

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == "send":
            return Completion(type="ok", offset=4)
        answer = self.polls[invocation.key]
        if isinstance(answer, Exception):
            raise answer
        return answer


def read(*records: tuple[int, int]) -> Completion:
    return Completion(type="ok", extra={"from": 0, "records": list(records)})


def poll_queues(*answers: Completion | Exception) -> Mapping[int, Pairs]:
    queues = [f"log/{number}" for number in range(len(answers))]
    client = Queues(dict(zip(queues, answers, strict=True)))
    logs = QueuePartitions(client, queues)  # type: ignore[arg-type]
    [polled] = asyncio.run(logs.transact([("poll",)], dict.fromkeys(range(len(queues)), 0)))
    assert isinstance(polled, Mapping)
    return polled


EMPTY = Completion(type="fail", error="empty", extra={"from": 0, "records": []})


def test_a_poll_of_queues_leaves_out_those_that_have_nothing_or_refuse() -> None:
    assert poll_queues(read((0, 5), (1, 6)), EMPTY, Definite("no")) == {0: [(0, 5), (1, 6)]}
    assert poll_queues(EMPTY, Definite("no")) == {}
    with pytest.raises(Definite, match="no"):
        poll_queues(Definite("no"))
    with pytest.raises(Definite, match="no key is assigned"):
        poll_queues()
    with pytest.raises(Indefinite, match="corrupted"):
        poll_queues(Completion(type="ok", extra={"records": [(0, None)]}))


def test_a_send_to_a_queue_is_one_by_itself() -> None:
    logs = QueuePartitions(Queues({}), ["log/0"])  # type: ignore[arg-type]
    assert asyncio.run(logs.transact([("send", 0, 9)], {})) == ((4, 9),)
    with pytest.raises(Definite, match="no transaction"):
        asyncio.run(logs.transact([("send", 0, 9), ("poll",)], {}))


# --- plans --------------------------------------------------------------------------------------


@pytest.fixture
def toy() -> Iterator[None]:
    SYSTEMS.offer(SYSTEM)
    yield
    SYSTEMS.withdraw(SYSTEM.name)


def plan(
    system: str = "toy-partitions", workload: str = "partitions", **parameters: object
) -> Plan:
    return Plan(
        name="toy",
        seed=5,
        time_limit_ms=5000,
        cluster=ClusterPlan(backend="sim", nodes=("n1", "n2", "n3")),
        system=SystemPlan(name=system, profile="safe"),
        workload=WorkloadPlan(name=workload, rate_hz=50, concurrency=6, parameters=parameters),
        gates=GatePlan(),
        faults=(),
    )


def test_a_system_without_partitions_is_refused(toy: None) -> None:
    partitions.check(plan())
    assert partitions.describe(plan()) == "4 partitions, 4 micro-operations at most"
    with pytest.raises(UsageError, match="mirrored has no partitions"):
        partitions.check(plan("mirrored"))
    without = replace(
        SYSTEM,
        partitions=lambda plan: Partitions(
            port="client", make_client=lambda *_, **__: Logs([]), transactions=False
        ),
    )
    SYSTEMS.offer(without)
    partitions.check(plan())
    assert partitions.parameters_of(plan()).longest == 1


def test_a_topics_queues_have_one_send_or_poll_at_a_time() -> None:
    topic = plan("dledger", "topic-partitions", keys=2)
    partitions.check(topic)
    assert partitions.parameters_of(topic).longest == 1
    assert partitions.describe(topic) == "2 queues of one topic, as partitions"
    assert [each.name for each in partitions.partition_checkers(topic)][0] == "kafka"
