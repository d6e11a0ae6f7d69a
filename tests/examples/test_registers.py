"""The example's system, without anything that runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.cluster.nodes import Endpoint, Topology
from shalott.core.errors import UsageError
from shalott.core.plan import (
    ClusterPlan,
    FaultAction,
    GatePlan,
    Plan,
    SystemPlan,
    WorkloadPlan,
)
from shalott_registers import etcd
from shalott_registers.etcd import EtcdParameters, EtcdSystem

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def plan(*faults: FaultAction, **parameters: int) -> Plan:
    return Plan(
        name="etcd",
        seed=5,
        time_limit_ms=1000,
        cluster=ClusterPlan(backend="docker", nodes=NODES),
        system=SystemPlan(name="etcd-debian", profile="upstream", parameters=parameters),
        workload=WorkloadPlan(name="register", rate_hz=10, concurrency=6),
        gates=GatePlan(),
        faults=faults,
    )


def test_syncs_are_left_out_when_told() -> None:
    words = [
        spec.command
        for fsync in (True, False)
        for spec in EtcdSystem(EtcdParameters(unsafe_no_fsync=not fsync)).node_specs(topology())[:1]
    ]
    assert "--unsafe-no-fsync=false" in words[0]
    assert "--unsafe-no-fsync=true" in words[1]


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
    with pytest.raises(UsageError, match="replace-node in place of wipe"):
        etcd.check(plan(wipe))
    with pytest.raises(UsageError, match="at least five heartbeats"):
        etcd.check(plan(election_timeout_ms=400))


def test_parameters_are_stored_as_the_plan_has_them() -> None:
    assert msgspec.to_builtins(EtcdParameters()) == {
        "heartbeat_ms": 100,
        "election_timeout_ms": 1000,
        "reads": "quorum",
        "unsafe_no_fsync": False,
    }
