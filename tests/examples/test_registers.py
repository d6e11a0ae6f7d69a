"""The example's model, generator and system, without anything that runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.checkers.history.concurrent import UNKNOWN, Operation, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.cluster.nodes import Endpoint, Topology
from shalott.core.errors import UsageError
from shalott.core.generator import Context, Scheduled
from shalott.core.op import Invocation
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)
from shalott_etcd import etcd
from shalott_etcd.etcd import EtcdParameters, EtcdSystem
from shalott_etcd.model import PackedCasRegister
from shalott_etcd.workload import Parameters, Registers

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def plan(*faults: FaultAction, **parameters: int) -> Plan:
    return Plan(
        name="etcd",
        seed=5,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(name="etcd", profile="upstream", parameters=parameters),
        workload=WorkloadPlan(name="register", rate_hz=10, concurrency=6),
        gates=GatePlan(),
        faults=faults,
    )


def test_syncs_are_left_out_when_told() -> None:
    words = [
        spec.command
        for fsync in (True, False)
        for spec in EtcdSystem(EtcdParameters(fsync=fsync)).node_specs(topology())[:1]
    ]
    assert "--unsafe-no-fsync=false" in words[0]
    assert "--unsafe-no-fsync=true" in words[1]


# -- the model -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "operation", "after"),
    [
        ((None,), Operation("read", None, None), (None,)),
        ((3,), Operation("read", None, 3), (3,)),
        ((3,), Operation("read", None, 4), None),
        ((3,), Operation("read", None, UNKNOWN), (3,)),
        ((None,), Operation("write", 0, 0), (0,)),
        ((1,), Operation("cas", 13, 13), (3,)),
        ((2,), Operation("cas", 13, 13), None),
        ((None,), Operation("cas", 3, 3), None),
        ((0,), Operation("cas", 3, UNKNOWN), (3,)),
    ],
)
def test_a_step_of_the_register(state: object, operation: Operation, after: object) -> None:
    assert PackedCasRegister().step(state, operation) == after  # type: ignore[arg-type]


def test_a_stale_read_is_found_and_a_failed_cas_is_not_held_against_anybody() -> None:
    wrote = Row(0, "write", 1, 1, 1, 2)
    swapped = Row(0, "cas", 12, 12, 3, 4)
    missed = Row(1, "cas", 13, 13, 5, 6, type="fail")
    fresh, stale = (Row(1, "read", value, value, 7, 8) for value in (2, 1))
    for last, valid in ((fresh, True), (stale, False)):
        verdict = check(from_rows([wrote, swapped, missed, last]), PackedCasRegister())
        assert verdict.valid is valid


# -- the workload ----------------------------------------------------------------------------------


def drawn(processes: range, count: int) -> list[tuple[int, Invocation]]:
    per_key = Parameters(ops_per_key=10, clients_per_key=3)
    generator: Any = Registers("load", plan(), per_key, {})
    found = []
    for number in range(count):
        process = processes[number % len(processes)]
        answer, generator = generator.next(Context(number, process, NODES[process % 3]))
        assert isinstance(answer, Scheduled)
        found.append((process, answer.invocation))
    return found


def test_a_key_belongs_to_a_group_of_clients_for_a_limited_number_of_operations() -> None:
    found = drawn(range(6), 120)
    groups: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for process, invocation in found:
        groups.setdefault(invocation.key, set()).add(process)
        counts[invocation.key] = counts.get(invocation.key, 0) + 1
    assert set(map(frozenset, groups.values())) == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}
    assert len(counts) == 12 and set(counts.values()) == {10}


def test_a_retired_processs_successor_goes_on_with_the_keys_of_its_group() -> None:
    assert {invocation.key for _, invocation in drawn(range(12, 15), 10)} == {"load.0.0"}


def test_all_kinds_are_drawn_with_small_values_and_the_same_again() -> None:
    found = [invocation for _, invocation in drawn(range(6), 300)]
    assert found == [invocation for _, invocation in drawn(range(6), 300)]
    values = {f: {each.value for each in found if each.f == f} for f in ("read", "write", "cas")}
    assert values["read"] == {None}
    assert values["write"] == set(range(5))
    assert values["cas"] <= {10 * old + new for old in range(5) for new in range(5)}
    assert len(values["cas"]) > 15


# -- the system ------------------------------------------------------------------------------------


def topology() -> Topology:
    at = {
        n: {"client": Endpoint("0.0.0.0", 2379), "peer": Endpoint("0.0.0.0", 2380)} for n in NODES
    }
    return Topology(
        listen=at,
        dial={n: {m: at[m] for m in NODES if m != n} for n in NODES},
        data_dir=dict.fromkeys(NODES, "/data"),
        config_dir=dict.fromkeys(NODES, "/etc/shalott"),
    )


def test_every_member_is_told_who_it_is_and_who_the_others_are() -> None:
    specs = EtcdSystem(EtcdParameters(election_timeout_ms=700)).node_specs(topology())
    assert [spec.name for spec in specs] == list(NODES)
    flags = specs[1].command
    assert "--name=n2" in flags and "--election-timeout=700" in flags
    members = "n1=http://n1:2380,n2=http://n2:2380,n3=http://n3:2380"
    assert f"--initial-cluster={members}" in flags


def seen(**changes: Any) -> dict[str, Any]:
    claim = {"master": "n1", "epoch": 3, "applied": 40}
    return {node: {"claims": [{**claim, **changes.get(node, {})}]} for node in NODES}


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (seen(), ""),
        (seen(n2={"master": ""}), "master: n1 says n1, n2 says , n3 says n1"),
        (seen(n3={"epoch": 4}), "epoch: n1 says 3, n2 says 3, n3 says 4"),
        (seen(n3={"applied": 39}), "applied: n1 says 40, n2 says 40, n3 says 39"),
        ({**seen(), "n2": None}, "n2 did not answer"),
    ],
)
def test_what_a_cluster_that_has_not_settled_waits_for(answers: Any, reason: str) -> None:
    assert EtcdSystem(EtcdParameters()).why_unsettled(answers, ()) == reason


def test_a_wiped_member_and_a_hasty_election_are_refused() -> None:
    etcd.check(plan())
    wipe = FaultAction(id=1, at_ms=0, duration_ms=1, kind="wipe", nodes=("n1",))
    with pytest.raises(UsageError, match="--nemesis replace-node in place of wipe"):
        etcd.check(plan(wipe))
    with pytest.raises(UsageError, match="at least five heartbeats"):
        etcd.check(plan(election_timeout_ms=400))


def test_parameters_are_stored_as_the_plan_has_them() -> None:
    assert msgspec.to_builtins(EtcdParameters()) == {
        "heartbeat_ms": 100,
        "election_timeout_ms": 1000,
        "fsync": True,
    }
