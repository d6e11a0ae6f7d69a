"""Registers that promise less than linearizability, on the example's toy in the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shalott.cluster.systems.record import SYSTEMS, Registers
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott_registers.client import EtcdClient
from shalott_registers.toy import SYSTEM

pytestmark = pytest.mark.sim


SEQUENTIAL = replace(
    SYSTEM,
    name="toy-sequential",
    registers=lambda plan: Registers(port="client", make_client=EtcdClient, promises="sequential"),
)
MONOTONIC = replace(
    SYSTEM,
    name="toy-monotonic",
    registers=lambda plan: Registers(port="client", make_client=EtcdClient, promises="monotonic"),
)


@pytest.fixture
def sequential() -> Iterator[None]:
    for each in (SEQUENTIAL, MONOTONIC):
        SYSTEMS.offer(each)
    yield
    for each in (SEQUENTIAL, MONOTONIC):
        SYSTEMS.withdraw(each.name)


@pytest.mark.parametrize(("profile", "valid"), [("safe", True), ("upstream", False)])
def test_sequential_registers_are_judged_by_what_clients_may_see(
    sequential: None, profile: str, valid: bool
) -> None:
    swarm = USUAL.but(time_limit_ms=(8000,), nodes=(3,))
    subject = Subject(system=SEQUENTIAL.name, workload="register", profile=profile, swarm=swarm)
    for seed in (1, 2):
        outcome = simulate(draw_plan(subject, seed))
        assert outcome.valid is valid, outcome.results
        assert ("unread-write" in outcome.anomalies) is not valid


def test_monotonic_registers_may_hide_from_a_client_what_it_wrote(sequential: None) -> None:
    """What is a violation above is none here, where nothing else is judged."""
    swarm = USUAL.but(time_limit_ms=(8000,), nodes=(3,))
    subject = Subject(system=MONOTONIC.name, workload="register", profile="upstream", swarm=swarm)
    outcome = simulate(draw_plan(subject, 1))
    assert outcome.valid, outcome.results
    judged = {result.checker for result in outcome.results}
    assert {"monotonic-reads", "monotonic-writes"} <= judged
    assert "read-your-writes" not in judged
