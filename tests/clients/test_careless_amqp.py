"""What clients do that leave out acknowledgements, confirms, durability or persistence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.clients.amqp.queue_client import AmqpQueueClient
from shalott.core.errors import Definite, Indefinite
from shalott.core.message_body import encode_body
from shalott.core.op import Completion, Invocation
from shalott.core.parameters import to_plan
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott.workloads.queue import (
    QueueParameters,
    client_guarantees,
    queue_checkers,
    queue_workload,
)
from tests.world.rabbit.scripted_server import Script, Session, fake_server

pytestmark = pytest.mark.unit

ENQUEUE = Invocation(f="enqueue", key="q", value=7)
DEQUEUE = Invocation(f="dequeue", key="q")
NO_ROUTE = commands.Basic.Return(312, "NO_ROUTE", "", "q")
Outcome = Completion | Definite | Indefinite


def perform(
    guarantees: ClientGuarantees, script: Script, *invocations: Invocation, timeout_ms: int = 5000
) -> tuple[list[Outcome], list[object]]:
    """What became of each, and every frame that the server got after the handshake."""

    async def main() -> tuple[list[Outcome], list[object]]:
        outcomes: list[Outcome] = []
        async with fake_server(script) as server:
            client = AmqpQueueClient(
                "127.0.0.1", server.port, op_timeout_ms=timeout_ms, guarantees=guarantees
            )
            await client.open()
            for invocation in invocations:
                try:
                    outcomes.append(await client.invoke(invocation))
                except (Definite, Indefinite) as error:
                    outcomes.append(error)
            await client.close()
            return outcomes, server.received[3:]

    return asyncio.run(main())


def kinds(received: Sequence[object]) -> list[str]:
    return [str(getattr(frame, "name", type(frame).__name__)) for frame in received]


async def silent(session: Session, value: object) -> None:
    """No confirm, no answer."""


async def serving(session: Session, value: object) -> None:
    """Confirms what is published, and has one message for who asks."""
    if isinstance(value, ContentBody):
        session.send(commands.Basic.Ack(1))
    elif isinstance(value, commands.Basic.Get):
        session.send_content(commands.Basic.GetOk(1, False, "", "q", 0), encode_body(9, 64))


@pytest.mark.parametrize(
    ("guarantees", "mode", "no_ack"),
    [
        (CAREFUL, 2, False),
        (ClientGuarantees(persistent=False), 1, False),
        (ClientGuarantees(manual_acks=False), 2, True),
    ],
)
def test_what_is_asked_of_the_server(guarantees: ClientGuarantees, mode: int, no_ack: bool) -> None:
    outcomes, received = perform(guarantees, serving, ENQUEUE, DEQUEUE)
    assert outcomes == [
        Completion(type="ok"),
        Completion(type="ok", value=9, redelivered=False),
    ]
    (header,) = [frame for frame in received if isinstance(frame, ContentHeader)]
    assert header.properties.delivery_mode == mode
    (get,) = [frame for frame in received if isinstance(frame, commands.Basic.Get)]
    assert get.no_ack is no_ack
    assert any(isinstance(frame, commands.Basic.Ack) for frame in received) is not no_ack


def test_without_confirms_an_enqueue_is_ok_once_a_call_behind_it_came_back() -> None:
    outcomes, received = perform(ClientGuarantees(confirms=False), silent, ENQUEUE)
    assert outcomes == [Completion(type="ok")]
    assert kinds(received[:5]) == [
        "Channel.Open", "Basic.Publish", "ContentHeader", "ContentBody", "Basic.Qos"
    ]  # fmt: skip


def test_with_confirms_that_is_not_enough() -> None:
    (outcome,), _ = perform(CAREFUL, silent, ENQUEUE, timeout_ms=50)
    assert isinstance(outcome, Indefinite)


def test_without_confirms_a_connection_that_breaks_leaves_it_open() -> None:
    async def hangs_up(session: Session, value: object) -> None:
        if isinstance(value, ContentBody):
            raise ConnectionResetError

    (outcome,), _ = perform(ClientGuarantees(confirms=False), hangs_up, ENQUEUE)
    assert isinstance(outcome, Indefinite)


def test_without_confirms_a_returned_message_has_failed() -> None:
    async def returns(session: Session, value: object) -> None:
        if isinstance(value, ContentBody):
            session.send_content(NO_ROUTE, value.value)

    (outcome,), received = perform(ClientGuarantees(confirms=False), returns, ENQUEUE)
    assert isinstance(outcome, Definite) and "NO_ROUTE" in str(outcome)
    assert "Queue.Declare" not in kinds(received)


class Forgetful:
    """A server without the queue, until it is declared (and not even then if it refuses)."""

    def __init__(self, text: str = "NOT_FOUND - no queue 'q' in vhost '/'") -> None:
        self.text = text
        self.declared: list[commands.Queue.Declare] = []
        self.refuses = False

    async def __call__(self, session: Session, value: object) -> None:
        if isinstance(value, commands.Queue.Declare):
            self.declared.append(value)
            if self.refuses:
                session.send(commands.Channel.Close(404, "NOT_FOUND - home node", 50, 10))
            else:
                session.send(commands.Queue.DeclareOk("q", 0, 0))
        elif isinstance(value, commands.Basic.Get) and self.declared:
            session.send(commands.Basic.GetEmpty())
        elif isinstance(value, commands.Basic.Get):
            session.send(commands.Channel.Close(404, self.text, 60, 70))
        elif isinstance(value, ContentBody):
            if not self.declared:
                session.send_content(NO_ROUTE, value.value)
            session.send(commands.Basic.Ack(1))


@pytest.mark.parametrize("first", [ENQUEUE, DEQUEUE])
def test_a_transient_queue_that_vanished_is_declared_again_by_the_next(first: Invocation) -> None:
    server = Forgetful()
    outcomes, _ = perform(ClientGuarantees(durable=False), server, first, DEQUEUE, DEQUEUE)
    assert isinstance(outcomes[0], Definite)
    assert outcomes[1:] == [Completion(type="fail", error="empty")] * 2
    (declared,) = server.declared
    assert declared.queue == "q" and not declared.durable and not declared.passive


def test_what_can_not_be_declared_again_has_failed() -> None:
    server = Forgetful()
    server.refuses = True
    outcomes, _ = perform(ClientGuarantees(durable=False), server, DEQUEUE, DEQUEUE, DEQUEUE)
    assert all(isinstance(outcome, Definite) for outcome in outcomes)
    assert len(server.declared) == 2


def test_a_durable_queue_or_one_that_is_only_down_is_not_declared_again() -> None:
    server = Forgetful()
    perform(CAREFUL, server, DEQUEUE, DEQUEUE)
    assert not server.declared
    down = Forgetful("NOT_FOUND - home node 'n1' of durable queue 'q' in vhost '/' is down")
    perform(ClientGuarantees(durable=False), down, DEQUEUE, DEQUEUE)
    assert not down.declared


def plan_of(workload: WorkloadPlan) -> Plan:
    return Plan(
        name="careless",
        seed=1,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="local", nodes=("n1",)),
        system=SystemPlan(name="mirrored", profile="safe"),
        workload=workload,
        gates=GatePlan(),
        faults=(),
    )


def test_the_plan_says_what_clients_do_and_what_judges_know_of_it() -> None:
    careless = QueueParameters(ack_mode="auto", durable=False, persistent=False, confirms=False)
    guarantees = client_guarantees(careless)
    assert guarantees == ClientGuarantees(
        manual_acks=False, durable=False, persistent=False, confirms=False
    )
    workload = WorkloadPlan(
        name="queue", rate_hz=1, concurrency=1, parameters={**to_plan(careless), "queues": 1}
    )
    plan = plan_of(workload)
    client = queue_workload(plan).make_client("n1", 1)
    assert isinstance(client, AmqpQueueClient) and client.guarantees == guarantees
    judged_by = getattr(queue_checkers(plan)[0], "guarantees", None)
    assert judged_by == replace(guarantees, closed=("L8",)), "what upstream closes by default"
    assert client_guarantees(QueueParameters()) == CAREFUL
