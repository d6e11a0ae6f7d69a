"""Scenarios of DLedger's known bugs, and of the loss window that its own defaults open."""

from __future__ import annotations

from collections.abc import Mapping

from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.scenarios.scenario import SHORT, Scenario

# Who is gone is noticed within 0.6 s.
QUICK: Mapping[str, object] = {
    "raft.heartbeat_interval_ms": 200,
    "raft.max_heartbeat_leak": 3,
    "raft.vote_min_ms": 200,
    "raft.vote_max_ms": 400,
    "raft.push_timeout_ms": 500,
    "raft.ack_timeout_ms": 1500,
    "raft.commit_push_interval_ms": 200,
    "broker.register_interval_ms": 1000,
}
# A leader that is cut off rules on for 2 s, and takes messages that no follower gets.
PATIENT: Mapping[str, object] = {
    **QUICK, "raft.max_heartbeat_leak": 10, "raft.vote_max_ms": 300, "raft.ack_timeout_ms": 2500,
}  # fmt: skip
# Leaders without an entry of their own, as upstream's are.
NO_READ_INDEX = {"raft.read_index": False}

GROUP = SHORT.but(
    policies=(QUICK,), latency_us=(300,), jitter_us=(0, 100, 1000), link_spread_us=(0,),
    loss=(0.0,), disk_sync_us=((200, 3000),), clock_offset_ms=(0.0,), clock_drift_ppm=(0.0,),
    observe_interval_ms=(5000,), settle_timeout_ms=(10_000,),
)  # fmt: skip


def isolate_master(fault: int, at_ms: int, duration_ms: int) -> FaultAction:
    """The member that leads then."""
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="partition-isolate-master",
        target="master", seed=fault,
    )  # fmt: skip


DLEDGER_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-DL-01",
        anomaly="vanished",
        seed_budget=100,
        bugs=("KB-DL-01",),
        system="dledger",
        # Raft's Figure 8 with three: S1 takes a message alone; S2, elected, another one alone; S1
        # is elected by S3, which gets the first message and so commits it; S2 is elected by S3.
        swarm=GROUP.but(policies=({**PATIENT, **NO_READ_INDEX},), rate_hz=Range(10, 20),
            enqueue_fraction=Range(0.1, 0.3, 0.05), clients_a_node=(2,), time_limit_ms=(14_000,),
            schedule=(
                isolate_master(1, 2000, 2600), isolate_master(2, 4350, 3300),
                isolate_master(3, 7100, 3500),
            ),
            late_ms={2: 200, 3: 400},
        ),
    ),
    Scenario(
        id="KB-DL-02",
        anomaly="lost-write",
        seed_budget=50,
        bugs=("KB-DL-02",),
        system="dledger",
        # The first leader is behind, and connected to a member that never led.
        swarm=GROUP.but(time_limit_ms=(12_000,),
            schedule=(isolate_master(1, 2000, 3000), isolate_master(2, 4600, 4000)),
            late_ms={2: 300},
        ),
    ),
    Scenario(
        id="KB-DL-04",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-DL-04",),
        system="dledger",
        # Just before the load ends, between the last messages.
        swarm=GROUP.but(time_limit_ms=(6000,), rate_hz=Range(8, 12),
            enqueue_fraction=Range(0.2, 0.3, 0.1),
            schedule=(
                FaultAction(
                    id=1, at_ms=5600, duration_ms=200, kind="wipe", target="n2", nodes=("n2",),
                ),
            ),
            late_ms={1: 200},
        ),
    ),
    Scenario(
        id="KB-DL-13",
        anomaly="stuck",
        seed_budget=100,
        bugs=("KB-DL-13",),
        stage=("KB-DL-01",),  # who else would truncate what was called committed
        remains=dict.fromkeys(
            ("inconsistent-offsets", "vanished", "replicas-differ", "leader-lacks-committed"),
            "KB-DL-01 commits what another leader truncates",
        ),
        system="dledger",
        # Figure 8 as above, but that S1 has many messages that S2 has not; then S2 is cut off.
        swarm=GROUP.but(policies=({**PATIENT, **NO_READ_INDEX},), rate_hz=Range(10, 20),
            enqueue_fraction=Range(0.1, 0.4, 0.05), clients_a_node=(2,), time_limit_ms=(16_000,),
            schedule=(
                isolate_master(1, 2000, 2600), isolate_master(2, 4350, 3300),
                isolate_master(3, 7100, 2900), isolate_master(4, 10_300, 4000),
            ),
            late_ms={2: 200, 3: 300, 4: 300},
        ),
    ),
    Scenario(
        id="KB-DL-14",
        anomaly="stuck",
        seed_budget=20,
        bugs=("KB-DL-14",),
        system="dledger",
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"partition-one": 1.0}, targets=("one",),
            fault_count=1, shortest_ms=Range(2000, 3000, 500), longest_ms=Range(3000, 4000, 500),
        ),
    ),
    Scenario(
        id="KB-DL-15",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-DL-15",),
        system="dledger",
        # A follower is back before the pushes that it did not get are given up.
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"kill": 1.0}, targets=("mirrors", "one"),
            promise="anything", interval_ms=Range(2000, 2500, 500),
            shortest_ms=Range(100, 200, 100), longest_ms=Range(200, 300, 100),
            rate_hz=Range(40, 80), enqueue_fraction=Range(0.7, 0.9, 0.1), clients_a_node=(3,),
        ),
    ),
    Scenario(
        id="KB-DL-21",
        anomaly="two-masters-in-epoch",
        seed_budget=50,
        bugs=("KB-DL-21",),
        stage=("KB-DL-01",),  # leaders without an entry of their own, which would show their term
        remains={"leader-lacks-committed": "KB-DL-01 commits entries of older terms"},
        system="dledger",
        # All lose their power, and vote; then the leader is cut off, and the others lose theirs.
        swarm=GROUP.but(policies=({**PATIENT, **NO_READ_INDEX},), rate_hz=Range(4, 8),
            enqueue_fraction=Range(0.3, 0.6, 0.1), clients_a_node=(2,), time_limit_ms=(10_000,),
            power_loss=("drop",),
            schedule=(
                FaultAction(
                    id=1, at_ms=2000, duration_ms=300, kind="power-all", target="all",
                    nodes=("n1", "n2", "n3"),
                ),
                isolate_master(2, 2700, 4000),
                FaultAction(id=3, at_ms=2700, duration_ms=300, kind="power", target="mirrors"),
            ),
            late_ms={2: 400, 3: 400},
        ),
    ),
    Scenario(
        id="KB-DL-16",
        anomaly="lost-on-node",
        seed_budget=20,
        bugs=("KB-DL-16",),
        system="dledger",
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"kill": 1.0}, fault_count=1,
            shortest_ms=Range(500, 1000, 500), longest_ms=Range(1000, 1500, 500),
        ),
    ),
    Scenario(
        id="KB-DL-22",
        anomaly="stale-read",
        seed_budget=20,
        bugs=("KB-DL-22",),
        system="dledger",
        # Clients go on reading at a broker that does not know yet that it is cut off, or slept.
        swarm=GROUP.but(time_limit_ms=(8000,), promise="anything", targets=("master", "one"),
            faults={"partition-isolate-master": 1.0, "partition-one": 1.0, "pause": 1.0},
            interval_ms=Range(2000, 3000, 500), shortest_ms=Range(1000, 2000, 500),
            longest_ms=Range(2000, 3000, 500), queues=(1,),
            enqueue_fraction=Range(0.3, 0.5, 0.1), clients_a_node=(2, 3),
        ),
    ),
)  # fmt: skip

DLEDGER_WINDOWS: tuple[Scenario, ...] = (
    Scenario(
        id="W-DL-1",
        title="A majority acknowledges what it has not flushed, and all lose their power",
        anomaly="lost-write",
        seed_budget=50,
        system="dledger",
        profile="upstream",
        swarm=GROUP.but(time_limit_ms=(8000,), faults={"power-all": 1.0}, promise="anything",
            interval_ms=Range(2000, 2500, 500), shortest_ms=Range(200, 300, 100),
            longest_ms=Range(300, 500, 100), power_loss=("drop", "torn"),
            disk_sync_us=((200, 3000), (5000, 20_000)), rate_hz=Range(60, 90),
            enqueue_fraction=Range(0.7, 0.9, 0.1), clients_a_node=(3,),
        ),
        sound={"policies": ({**QUICK, "raft.flush_interval_ms": 0},)},
    ),
)  # fmt: skip
