"""Scenarios of Controller mode's historical bugs, and of the loss that its defaults allow.

All timings are shortened, so that a member is missed, an election is held and a slave is back in
the set within a second or two. What a scenario says beside that is what its trigger needs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.cluster.systems.rocket.drawing import SAFE_SETTINGS
from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.scenarios.scenario import KILLS, SHORT, Scenario
from shalott.harness.scenarios.swarm import STRICT

QUICK: Mapping[str, object] = {
    "broker.register_interval_ms": 1000,
    "broker.slave_sync_interval_ms": 1000,
    "broker.controller_heartbeat_interval_ms": 200,
    "broker.controller_heartbeat_timeout_ms": 1000,
    "broker.sync_broker_metadata_period_ms": 1000,
    "broker.sync_controller_metadata_period_ms": 1000,
    "name_server_scan_interval_ms": 1000,
    "name_server_broker_timeout_ms": 5000,
    "ha.heartbeat_interval_ms": 300,
    "ha.housekeeping_interval_ms": 1000,
    "ha.reconnect_interval_ms": 300,
    "ha.slave_timeout_ms": 1000,
    "ha.max_time_slave_not_catchup_ms": 1000,
    "ha.check_sync_state_set_period_ms": 500,
    "raft.heartbeat_interval_ms": 200,
    "raft.vote_min_ms": 100,
    "raft.vote_max_ms": 300,
    "controller.scan_not_active_broker_interval_ms": 300,
    "controller.scan_inactive_master_interval_ms": 500,
    "store.checkpoint_interval_ms": 500,
    "store.segment_bytes": 1 << 20,
    "store.queue_segment_units": 1000,
}
# A set of one may acknowledge: what counts is on every member of the set all the same.
SET_OF_ONE: Mapping[str, object] = {"ha.in_sync_replicas": 1, "ha.min_in_sync_replicas": 1}
FAILOVER = msgspec.structs.replace(STRICT, max_rto_ms=5000)  # is over by then
STORED_BYTES = 204  # of a message with a body of 64

CONTROLLER = SHORT.but(policies=(QUICK,), queues=(2,), clients_a_node=(2,), promise="anything",
    time_limit_ms=(10_000,), observe_interval_ms=(10_000,), link_spread_us=(0,), loss=(0.0,),
    jitter_us=(0, 100, 1000), clock_offset_ms=(0.0,), clock_drift_ppm=(0.0,),
)  # fmt: skip


def settings(others: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    return ({**QUICK, **others},)


def isolate_master(fault: int, at_ms: int, duration_ms: int) -> FaultAction:
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="partition-isolate-master",
        target="master",
    )  # fmt: skip


def kill(fault: int, target: str, at_ms: int, duration_ms: int) -> FaultAction:
    return FaultAction(id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="kill", target=target)


CONTROLLER_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RKT-10",
        anomaly="lost-write",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-10",),
        # Masters that die one after the other, some while they are about to hear of a larger set.
        swarm=CONTROLLER.but(
            policies=settings({**SET_OF_ONE, "broker.sync_broker_metadata_period_ms": 5000}),
            faults=KILLS,
            targets=("master",),
            interval_ms=Range(2000, 2000),
            shortest_ms=Range(800, 800),
            longest_ms=Range(1000, 1500, 100),
            time_limit_ms=(14_000,),
            enqueue_fraction=Range(0.8, 0.9, 0.1),
            rate_hz=Range(40, 60),
            latency_us=(300, 1000),
            buggify=(True,),
            buggify_on=("set_reports.answer_late", "ha.transfer_late"),
        ),
    ),
    Scenario(
        id="KB-RKT-12",
        anomaly="vanished",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-12",),
        swarm=CONTROLLER.but(schedule=(isolate_master(1, 2000, 5000),), late_ms={1: 1000}),
    ),
    Scenario(
        id="KB-RKT-F",
        anomaly="lost-write",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-F",),
        swarm=CONTROLLER.but(schedule=(isolate_master(1, 2000, 5000),), late_ms={1: 1000}),
    ),
    Scenario(
        id="KB-RKT-13",
        anomaly="confirm-regression",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-13",),
        # Without power a slave doesn't say goodbye: it is back while it is thought to be there.
        swarm=CONTROLLER.but(
            policies=settings(
                {"ha.housekeeping_interval_ms": 4000, "ha.max_time_slave_not_catchup_ms": 4000}
            ),
            faults={"power": 1.0},
            targets=("one",),
            interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(200, 300, 100),
            longest_ms=Range(300, 500, 100),
        ),
    ),
    Scenario(
        id="KB-RKT-14",
        anomaly="lost-write",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-14",),
        # Frames that end within messages, and wait for each other.
        swarm=CONTROLLER.but(
            policies=settings({"ha.transfer_batch_bytes": 150}),
            faults=KILLS,
            targets=("master",),
            body_bytes=(256, 1024),
            rate_hz=Range(60, 80),
            interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(500, 1000, 100),
            longest_ms=Range(1000, 2000, 100),
            enqueue_fraction=Range(0.7, 0.8, 0.1),
            buggify=(True,),
            buggify_on=("ha.transfer_late",),
        ),
    ),
    Scenario(
        id="KB-RKT-15",
        anomaly="inconsistent-offsets",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-15",),
        swarm=CONTROLLER.but(
            faults={"kill-all": 1.0},
            interval_ms=Range(4000, 4000),
            rate_hz=Range(60, 80),
            latency_us=(5000, 20_000),
            enqueue_fraction=Range(0.7, 0.8, 0.1),
            shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1000, 100),
        ),
    ),
    Scenario(
        id="KB-RKT-16",
        anomaly="vanished",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-16",),
        # The master has messages that no slave has; it comes back late, and as a slave.
        swarm=CONTROLLER.but(
            schedule=(kill(1, "slaves", 1500, 1000), kill(2, "master", 1600, 2500)),
            late_ms={2: 400},
            rate_hz=Range(40, 60),
            enqueue_fraction=Range(0.5, 0.5),
            buggify=(True,),
            buggify_on=("ha.connect_late",),
        ),
    ),
    Scenario(
        id="KB-RKT-18",
        anomaly="route-regression",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-18",),
        # A master that is cut off from the controllers' leader, and not from a name server.
        swarm=CONTROLLER.but(
            faults={"partition-bridge": 1.0},
            interval_ms=Range(4000, 4000),
            shortest_ms=Range(3000, 3000),
            longest_ms=Range(3000, 4000, 500),
        ),
    ),
    Scenario(
        id="KB-RKT-19",
        anomaly="wrong-set",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-19",),
        # Cut off, not killed: a broker that was restarted remembers no set.
        swarm=CONTROLLER.but(
            faults={"partition-isolate-master": 1.0},
            interval_ms=Range(3000, 4000, 500),
            shortest_ms=Range(2000, 2000),
            longest_ms=Range(2000, 3000, 500),
            time_limit_ms=(14_000,),
        ),
    ),
    Scenario(
        id="KB-RKT-20",
        anomaly="inconsistent-offsets",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-20",),
        # Its slaves are behind, so no other may be elected when it is missed.
        swarm=CONTROLLER.but(
            policies=settings(
                {
                    **SET_OF_ONE,
                    "ha.max_time_slave_not_catchup_ms": 200,
                    "broker.sync_broker_metadata_period_ms": 5000,
                }
            ),
            schedule=(
                FaultAction(
                    id=1,
                    at_ms=1000,
                    duration_ms=8000,
                    kind="delay-one-way",
                    target="master",
                    amount=400,
                ),
                FaultAction(id=2, at_ms=3500, duration_ms=1800, kind="pause", target="master"),
            ),
            rate_hz=Range(100, 120),
            late_ms={2: 1000},
            enqueue_fraction=Range(0.8, 0.8),
            clients_a_node=(4,),
            disk_sync_us=((500, 30_000),),
        ),
    ),
    Scenario(
        id="KB-RKT-23",
        anomaly="diverged",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-23",),
        # A deposed master has much to cut, and what comes instead comes slowly, message by
        # message: what lies behind them begins where a message begins.
        swarm=CONTROLLER.but(
            policies=settings(
                {"ha.slave_timeout_ms": 200, "ha.transfer_batch_bytes": STORED_BYTES}
            ),
            schedule=(isolate_master(1, 1500, 4000), kill(2, "slaves", 5900, 1000)),
            late_ms={2: 1000},
            latency_us=(300, 1000),
            body_bytes=(64,),
            rate_hz=Range(60, 80),
            enqueue_fraction=Range(0.8, 0.8),
            buggify=(True,),
            buggify_on=("ha.transfer_late",),
        ),
    ),
    Scenario(
        id="KB-RKT-24",
        anomaly="stuck",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-24",),
        swarm=CONTROLLER.but(
            faults=KILLS,
            targets=("master",),
            interval_ms=Range(2500, 2500),
            shortest_ms=Range(500, 500),
            longest_ms=Range(500, 1000, 500),
            buggify=(True,),
            buggify_on=("ha.handshake_in_parts",),
        ),
    ),
    Scenario(
        id="KB-RKT-26",
        anomaly="unavailable",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-26",),
        # The master may be on the same node; it is back too late to end the outage itself.
        swarm=CONTROLLER.but(schedule=(kill(1, "controller", 2000, 7000),), gates=FAILOVER),
    ),
    Scenario(
        id="KB-RKT-27",
        anomaly="unavailable",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-27",),
        # The leader that missed the master is gone; its successor must look again.
        swarm=CONTROLLER.but(schedule=(kill(1, "controller", 2000, 7000),), gates=FAILOVER),
    ),
    Scenario(
        id="KB-RKT-29",
        anomaly="unavailable",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-29",),
        swarm=CONTROLLER.but(schedule=(kill(1, "master", 2000, 7000),), gates=FAILOVER),
    ),
    Scenario(
        id="KB-RKT-A",
        anomaly="diverged",
        seed_budget=50,
        system="controller",
        bugs=("KB-RKT-A",),
        swarm=CONTROLLER.but(schedule=(isolate_master(1, 0, 4000),), quiet_ms=(0,)),
    ),
)

# What upstream documents, and leaves to its settings: no switch, other settings instead.
CONTROLLER_WINDOWS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RKT-17",
        title="A master that is cut off with its controller and its clients goes on "
        "acknowledging alone",
        anomaly="lost-write",
        seed_budget=50,
        system="controller",
        profile="upstream",
        swarm=CONTROLLER.but(
            faults={"partition-isolate-master": 1.0},
            shortest_ms=Range(3000, 4000, 500),
            longest_ms=Range(4000, 6000, 500),
        ),
        sound={"policies": ({**QUICK, **SAFE_SETTINGS["controller"]},)},
    ),
)
