"""Scenarios of RabbitMQ's bugs about promotion, confirms and mirrors that do not come back."""

from __future__ import annotations

from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.search.scenarios.scenario import (
    BY_HAND,
    KILLS,
    SHORT,
    SLOW_LINKS,
    STOPS,
    TWO,
    WHEN_SYNCED,
    Scenario,
    slow,
)

QUEUE_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RMQ-20",
        title="A node whose queues are started again adds no mirrors",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-20",),
        swarm=SHORT.but(faults={"partition-one": 1.0}, fault_count=1, time_limit_ms=(8000,),
            rate_hz=Range(10, 20), shortest_ms=Range(3000, 4000, 500),
            longest_ms=Range(4000, 5000, 500),
        ),
    ),
    Scenario(
        id="KB-RMQ-21",
        title="A queue whose master is gone can't be deleted, so neither declared anew",
        anomaly="stuck",
        seed_budget=20,
        bugs=("KB-RMQ-21",),
        # Queues without mirrors: whose node is down, has no master.
        swarm=SHORT.but(policies=({"ha-mode": "exactly", "ha-params": 1},),
            faults={"kill-redeclare": 1.0}, fault_count=1, time_limit_ms=(8000,),
            rate_hz=Range(10, 20), shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1500, 100),
        ),
    ),
    Scenario(
        id="KB-RMQ-22",
        title="An unsynchronised mirror is promoted when its master crashes",
        anomaly="lost",
        seed_budget=50,
        bugs=("KB-RMQ-22",),
        swarm=SHORT.but(policies=(BY_HAND,), faults=KILLS, targets=("master", "one"),
            promise="anything", interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            enqueue_fraction=Range(0.8, 1.0, 0.1),
        ),
    ),
    Scenario(
        id="KB-RMQ-24",
        title="A publish is confirmed although no queue process has it",
        anomaly="lost",
        seed_budget=50,
        bugs=("KB-RMQ-24",),
        # The clients of n3, which has no replica, are cut off with it.
        swarm=SHORT.but(policies=({"ha-mode": "nodes", "ha-params": ["n1", "n2"]},),
            partition_modes=("ignore",), faults={"partition-one": 1.0}, targets=("n3",),
            fault_count=1, time_limit_ms=(9000,),
            shortest_ms=Range(3000, 4000, 500), longest_ms=Range(4000, 6000, 500),
        ),
    ),
    Scenario(
        id="KB-RMQ-25",
        title="A node that is taken out of service moves its masters to nodes that hold nothing",
        anomaly="lost",
        seed_budget=50,
        bugs=("KB-RMQ-25",),
        swarm=SHORT.but(policies=(TWO,), faults=STOPS, targets=("master",), fault_count=2,
            time_limit_ms=(10_000,), interval_ms=Range(4000, 5000, 500),
            shortest_ms=Range(500, 1000, 500), longest_ms=Range(1000, 2000, 500),
            enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
    ),
    Scenario(
        id="KB-RMQ-29",
        title="A promoted mirror requeues without telling the other mirrors",
        anomaly="crashed",
        seed_budget=50,
        bugs=("KB-RMQ-29",),
        # What is dropped in the end for its length is what the promoted one had requeued.
        swarm=SHORT.but(policies=({"max-length": 10},), faults=KILLS, targets=("master",),
            clients_a_node=(3,), latency_us=(5000,), interval_ms=Range(3000, 4000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            enqueue_fraction=Range(0.5, 0.6, 0.1),
        ),
    ),
    Scenario(
        id="KB-RMQ-31",
        title="A newcomer crashes when its ring changes before its first catchup",
        anomaly="crashed",
        seed_budget=100,
        bugs=("KB-RMQ-31",),
        # n4 joins anew on the right of n2, whose words it gets late; n3 joins between them
        # meanwhile, and has less far to go. Half of the nodes are gone for a while.
        swarm=SLOW_LINKS.but(partition_modes=("ignore",), time_limit_ms=(9000,),
            schedule=(
                slow(1, ("n2", "n4"), 1000),
                FaultAction(id=2, at_ms=1700, duration_ms=500, kind="kill", nodes=("n4",)),
                FaultAction(id=3, at_ms=1800, duration_ms=2000, kind="kill", nodes=("n3",)),
            ),
            late_ms={3: 3000},
        ),
    ),
    Scenario(
        id="KB-RMQ-34",
        title="A master that was suspended serves on although another was promoted",
        anomaly="lost",
        seed_budget=50,
        bugs=("KB-RMQ-34",),
        profile="upstream",
        # There is no code to switch off: what closes the window is pause_minority.
        swarm=SHORT.but(policies=(WHEN_SYNCED,), partition_modes=("ignore", "autoheal"),
            faults={"pause": 1.0}, targets=("master",), op_timeout_ms=(10_000,),
            interval_ms=Range(6000, 8000, 500), time_limit_ms=(15_000,),
            shortest_ms=Range(3000, 3500, 500), longest_ms=Range(3500, 4000, 500),
        ),
        sound={"partition_modes": ("pause_minority",)},
    ),
)  # fmt: skip
