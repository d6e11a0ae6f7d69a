"""Scenarios of master and slaves: known bugs of HAService, and the loss that its defaults allow."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS
from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.scenarios.scenario import SHORT, Scenario
from shalott.harness.scenarios.swarm import STRICT

QUICK: Mapping[str, object] = {
    "ha.heartbeat_interval_ms": 500,
    "ha.housekeeping_interval_ms": 5000,
    "ha.reconnect_interval_ms": 500,
    "ha.slave_timeout_ms": 1500,
    "broker.register_interval_ms": 1000,
    "broker.slave_sync_interval_ms": 500,
    "name_server_broker_timeout_ms": 5000,
}
GROUP = SHORT.but(
    policies=(QUICK,), latency_us=(300,), jitter_us=(0, 100, 1000), link_spread_us=(0,),
    loss=(0.0,), disk_sync_us=((200, 3000),), clock_offset_ms=(0.0,), clock_drift_ppm=(0.0,),
    observe_interval_ms=(5000,), settle_timeout_ms=(10_000,), enqueue_fraction=Range(0.5, 0.8, 0.1),
)  # fmt: skip


def action(fault: int, kind: str, node: str, at_ms: int, duration_ms: int) -> FaultAction:
    """The first node is the master."""
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind=kind, target=node, nodes=(node,),
        seed=fault,
    )  # fmt: skip


MASTER_SLAVE_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RKT-01",
        anomaly="lost-write",
        seed_budget=20,
        bugs=("KB-RKT-01",),
        system="master-slave",
        # The master is cut off from its slaves, and not from its clients, and then dies.
        swarm=GROUP.but(time_limit_ms=(9000,),
            schedule=(
                action(1, "stray-report", "n1", 1500, 500),
                action(2, "partition-one", "n1", 2500, 3500),
                action(3, "failover", "n1", 4500, 2000),
            ),
            late_ms={1: 500, 2: 1000},
        ),
    ),
    Scenario(
        id="KB-RKT-02",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RKT-02",),
        system="master-slave",
        # No message is sent for longer than a connection may be silent, and it is long in coming
        # back: no fault is needed.
        swarm=GROUP.but(time_limit_ms=(6000, 8000, 10_000, 15_000), settle_timeout_ms=(5000,),
            schedule=(), gates=msgspec.structs.replace(STRICT, min_acked=1),
            policies=(
                {
                    **QUICK, "ha.housekeeping_interval_ms": 2500,
                    "ha.reconnect_interval_ms": 10_000, "broker.slave_sync_interval_ms": 20_000,
                },
            ),
            rate_hz=Range(8, 12), enqueue_fraction=Range(0.02, 0.04, 0.01),
        ),
    ),
    Scenario(
        id="KB-RKT-04",
        anomaly="lost-write",
        seed_budget=20,
        bugs=("KB-RKT-04",),
        system="master-slave",
        # One slave after the other gets a new disk, and then the master, which has everything.
        swarm=GROUP.but(time_limit_ms=(12_000,), body_bytes=(256,),
            policies=({**QUICK, "store.segment_bytes": 4096},),
            schedule=(
                action(1, "wipe", "n2", 2000, 300), action(2, "wipe", "n3", 4500, 300),
                action(3, "failover", "n1", 7500, 1500), action(4, "wipe", "n1", 7600, 1000),
            ),
            late_ms={1: 1000, 2: 1000},
        ),
    ),
)  # fmt: skip

MASTER_SLAVE_WINDOWS: tuple[Scenario, ...] = (
    Scenario(
        id="W-MS-1",
        title="A master that does not wait for its slaves dies, and a slave takes its place",
        anomaly="lost-write",
        seed_budget=50,
        system="master-slave",
        profile="upstream",
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"failover": 1.0}, targets=("master",),
            fault_count=2, interval_ms=Range(2500, 3000, 500), shortest_ms=Range(500, 500, 100),
            longest_ms=Range(500, 1000, 100), rate_hz=Range(60, 90), latency_us=(5000, 20_000),
            clients_a_node=(3,), enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
        sound={"policies": ({**QUICK, **SAFE_SETTINGS["master-slave"]},)},
    ),
    Scenario(
        id="W-MS-2",
        title="A master acknowledges what it has not flushed, and all lose their power",
        anomaly="lost-write",
        seed_budget=50,
        system="master-slave",
        profile="upstream",
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"power-all": 1.0}, promise="anything",
            interval_ms=Range(3000, 3500, 500), shortest_ms=Range(200, 300, 100),
            longest_ms=Range(300, 500, 100), power_loss=("drop", "torn"),
        ),
        sound={"policies": ({**QUICK, "store.flush": "sync"},)},
    ),
)  # fmt: skip
