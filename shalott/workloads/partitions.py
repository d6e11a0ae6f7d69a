"""The workload partitions: sends, polls and transactions over logs, after Jepsen's kafka workload.

After jepsen.tests.kafka: clients are assigned some keys, send to any, poll theirs on from where
they were, crash and come back as others; after the heal each node is asked for every key from its
beginning. The judge of partitions says what must be found (checkers/partitions/kafka.py), and what
nodes show in the end is compared (final_reads.py). Where a system has groups of consumers, clients
subscribe, too, and commit; after the heal one member polls what is left (group_reads.py).

``partitions`` runs on each system whose record says how its clients do that (``Partitions``,
cluster/systems/record.py); ``topic-partitions`` on brokers of RocketMQ, where each queue of a topic
is a partition, and each send and each poll is one by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.judge import JudgeOfRuns
from shalott.checkers.partitions.final_reads import FinalReads, PolledToTheEnd
from shalott.checkers.partitions.group_reads import GroupReads
from shalott.checkers.partitions.kafka import Kafka
from shalott.checkers.partitions.lost_sends import LostSends
from shalott.clients.rocketmq.log_client import LogSettings
from shalott.clients.rocketmq.queue_partitions import QueuePartitions
from shalott.cluster.systems.record import PARTITIONS, SYSTEMS, Partitions, serving_nodes
from shalott.core.client import Client
from shalott.core.errors import Definite, Indefinite, Unreachable, UsageError
from shalott.core.generator import Generator, Phases, Stagger, TimeLimit
from shalott.core.op import Completion, Invocation
from shalott.core.parameters import make_parameters
from shalott.core.partitions import (
    ASSIGN,
    COMMIT,
    CRASH,
    EMPTY,
    POLL,
    SEND,
    SUBSCRIBE,
    TXN,
    Grouped,
    Mop,
    Pairs,
    Partitioned,
    PollAll,
    mops_of,
    partition_mix,
    read_group,
)
from shalott.core.plan import Plan, nodes_hosting
from shalott.core.rng import Draw, stream_key
from shalott.workloads.log import PORTS, REMOTING, log_client, port_at, queue_keys
from shalott.workloads.programs import partitions_by
from shalott.workloads.record import SeveralPorts, Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import documented_losses, run_checkers

READING_LIMIT_MS = 60_000
BODY_BYTES = 64
FS = (SEND, POLL, TXN, ASSIGN, SUBSCRIBE, CRASH)
SUBSCRIBE_SHARES = {"assign": 0.0, "subscribe": 1.0, "both": 0.5}


class TopicParameters(msgspec.Struct, frozen=True, kw_only=True):
    keys: Annotated[int, msgspec.Meta(ge=1, le=30, description="Partitions.")] = 4
    send_share: Annotated[float, msgspec.Meta(ge=0, le=1, description="Sends.")] = 0.5
    crash_share: Annotated[float, msgspec.Meta(ge=0, le=1, description="Crashes of clients.")] = (
        0.01
    )


class PartitionParameters(TopicParameters, frozen=True, kw_only=True):
    longest: Annotated[
        int, msgspec.Meta(ge=1, le=16, description="Micro-operations of a transaction, at most.")
    ] = 4
    sub_via: Annotated[
        Literal["both", "assign", "subscribe"],
        msgspec.Meta(description="How clients get keys."),
    ] = "both"


def parameters_of(plan: Plan) -> PartitionParameters:
    if plan.workload.name == TOPIC.name:
        given = make_parameters(TopicParameters, plan.workload.parameters)
        return PartitionParameters(**msgspec.structs.asdict(given), longest=1, sub_via="assign")
    given, ways = (
        make_parameters(PartitionParameters, plan.workload.parameters),
        partitions_of(plan),
    )
    return msgspec.structs.replace(
        given,
        longest=given.longest if ways.transactions else 1,
        sub_via=given.sub_via if ways.groups else "assign",
    )


def partitions_of(plan: Plan) -> Partitions:
    """How the plan's system has partitions. Raises UsageError: not under this plan."""
    found = SYSTEMS.find(plan.system.name).partitions(plan)
    if plan.workload.client:
        return partitions_by(plan, found)
    if found is None:
        raise UsageError(f"{plan.system.name} has no partitions as it is set here")
    return found


def load_generator(plan: Plan) -> Generator:
    parameters = parameters_of(plan)
    mix = partition_mix(
        keys=parameters.keys,
        longest=parameters.longest,
        send_share=parameters.send_share,
        crash_share=parameters.crash_share,
        seed=plan.seed,
        subscribe_share=SUBSCRIBE_SHARES[parameters.sub_via],
    )
    key = stream_key(plan.seed, "partitions", "stagger")
    return TimeLimit(Stagger(mix, 1e9 / plan.workload.rate_hz, key), plan.time_limit_ms * 1_000_000)


def reading_generator(plan: Plan, nodes: Sequence[str]) -> Generator:
    """Each phase within its own time: a group that can't be read keeps no node from being read."""
    parameters = parameters_of(plan)
    polls = PollAll(parameters.keys, tuple(nodes))
    if parameters.sub_via == "assign":
        return TimeLimit(polls, READING_LIMIT_MS * 1_000_000)
    group = read_group(plan.workload.concurrency, parameters.keys, nodes)
    phases = (*group, msgspec.structs.replace(polls, is_phase=True))
    return Phases(tuple(TimeLimit(each, READING_LIMIT_MS * 1_000_000) for each in phases))


def partition_workload(plan: Plan) -> Workload:
    ways = partitions_of(plan)

    def make_client(host: str, port: int) -> Client:
        timeout_ms = plan.workload.op_timeout_ms
        return PartitionClient(ways.make_client(host, port, timeout_ms=timeout_ms))

    return Workload(
        name=plan.workload.name,
        queues=(),
        port=ways.port,
        make_client=make_client,
        generator=load_generator(plan),
        final_generator=reading_generator(plan, serving_nodes(plan)),
        nodes=serving_nodes(plan),
        final_at=partial(reading_generator, plan),
    )


def topic_workload(plan: Plan) -> Workload:
    brokers = nodes_hosting(plan, "broker")
    keys = queue_keys(parameters_of(plan).keys)

    def make_client(ports: Mapping[str, tuple[str, int]]) -> Client:
        client = log_client(plan, ports, LogSettings(body_bytes=BODY_BYTES))
        return PartitionClient(QueuePartitions(client, keys))

    workload = Workload(
        name=plan.workload.name,
        queues=keys,
        generator=load_generator(plan),
        final_generator=reading_generator(plan, brokers),
        several=SeveralPorts(PORTS, make_client, partial(port_at, plan)),
        nodes=brokers,
    )
    return replace(workload, final_at=partial(reading_generator, plan))


@dataclass(slots=True)
class PartitionClient:
    """A Partitioned as a client of the harness: it knows where it stands.

    No error is Unreachable: that would replace the client, and with it where it stands.
    """

    partitioned: Partitioned
    places: dict[int, int] = field(default_factory=dict)  # by key: the offset of the next poll
    group: Grouped | None = None  # while it is subscribed: then places are what it may commit

    async def open(self) -> None:
        await self.partitioned.open()

    async def close(self) -> None:
        await self.partitioned.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == CRASH:
            raise Indefinite("the client crashed")
        try:
            if invocation.f in (ASSIGN, SUBSCRIBE):
                return await self._get_keys(invocation)
            if invocation.f == COMMIT:
                return await self._commit()
            asked = mops_of(invocation)
            places = {} if self.group else dict(self.places)
            self._moved()  # what moved before it says nothing of its polls
            answers = await self.partitioned.transact(asked, places)
        except Unreachable as error:
            raise Definite(str(error)) from error
        done = [_done(mop, answer) for mop, answer in zip(asked, answers, strict=True)]
        polled = [answer for answer in answers if isinstance(answer, Mapping)]
        moved = self._moved()
        extra = {"value": done} | ({"rebalance_log": [{"keys": moved}]} if moved else {})
        if "to_the_end" in (invocation.extra or {}) and not any(
            pairs for poll in polled for pairs in poll.values()
        ):
            return Completion(type="fail", error=EMPTY, extra=extra)
        for poll in polled:
            self.places |= {key: pairs[-1][0] + 1 for key, pairs in poll.items() if pairs}
        return Completion(type="ok", extra=extra)

    def _moved(self) -> list[int]:
        return sorted(set(self.group.moved())) if self.group else []

    async def _get_keys(self, invocation: Invocation) -> Completion:
        assert invocation.extra is not None
        keys = invocation.extra["value"]
        if invocation.f == SUBSCRIBE:
            assert isinstance(self.partitioned, Grouped), "its record says that it has groups"
            self.group, self.places = self.partitioned, {}
            await self.group.subscribe(keys)
        else:
            if self.group is not None:
                await self.group.subscribe(())
                self.group, self.places = None, {}
            self.places = {key: self.places.get(key, 0) for key in keys}
        return Completion(type="ok")

    async def _commit(self) -> Completion:
        if self.group is None or not self.places:
            return Completion(type="fail", error="there is nothing to commit")
        places, self.places = self.places, {}
        await self.group.commit(places)
        return Completion(type="ok", extra={"value": {str(key): at for key, at in places.items()}})


def _done(mop: Mop, answer: tuple[int, int] | Mapping[int, Pairs]) -> list[object]:
    if isinstance(answer, Mapping):
        return [POLL, {str(key): [list(pair) for pair in pairs] for key, pairs in answer.items()}]
    return [SEND, mop[1], list(answer)]


def partition_checkers(plan: Plan) -> Sequence[Checker]:
    groups = (GroupReads(),) if parameters_of(plan).sub_via != "assign" else ()
    judge = JudgeOfRuns(Kafka(), fs=FS)
    if plan.workload.name == TOPIC.name:
        return (judge, *groups, *run_checkers(plan))
    told = LostSends(PolledToTheEnd(judge), documented_losses(plan))
    return (told, FinalReads(), *groups, *run_checkers(plan))


def check(plan: Plan) -> None:
    """Raises UsageError."""
    parameters_of(plan)


def draw_topic(draw: Draw) -> Values:
    return {
        "keys": draw.knob("keys", (1, 2, 4, 8)),
        "send_share": draw.knob("send_share", (0.3, 0.5, 0.7)),
        "crash_share": draw.knob("crash_share", (0.0, 0.01, 0.05)),
    }


def draw_parameters(draw: Draw) -> Values:
    return {**draw_topic(draw), "longest": draw.knob("longest", (1, 2, 4, 4))}


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    if plan.workload.name == TOPIC.name:
        return f"{parameters.keys} queues of one topic, as partitions"
    return f"{parameters.keys} partitions, {parameters.longest} micro-operations at most"


def _record(
    name: str,
    summary: str,
    needs: str,
    parameters: type[TopicParameters],
    build: Callable[[Plan], Workload],
) -> WorkloadRecord:
    is_topic = needs == REMOTING
    return WorkloadRecord(
        name=name,
        summary=summary,
        needs=(needs,),
        parameters=parameters,
        build=build,
        checkers=partition_checkers,
        check=check,
        draw=draw_topic if is_topic else draw_parameters,
        describe=describe,
        lower=("keys",) if is_topic else ("keys", "longest"),
        reads=(POLL,),
        own=(ASSIGN, SUBSCRIBE, COMMIT, CRASH),
    )


LOGS = _record(
    "partitions",
    "sends, polls and transactions over logs, as Jepsen's kafka workload has them",
    PARTITIONS,
    PartitionParameters,
    partition_workload,
)
TOPIC = _record(
    "topic-partitions",
    "sends to and polls of a topic's queues, as Jepsen's kafka workload has them",
    REMOTING,
    TopicParameters,
    topic_workload,
)
