"""Scenarios of RabbitMQ's bugs about who is master: at the start, in the row, at the end."""

from __future__ import annotations

from shalott.core.plan import GatePlan
from shalott.core.rng import Range
from shalott.harness.search.scenarios.scenario import SHORT, Scenario

# Everything is killed at once, and starts anew at its own pace: masters crash on peers that are not
# ready (KB-RMQ-01), start again, and are late with the row that they found.
TWO_MASTERS = SHORT.but(nodes=(2, 3), queues=(2, 3), faults={"kill-all": 1.0}, promise="anything",
    partition_modes=("ignore",), buggify_on=("recover.late",),
    policies=({"ha-sync-mode": "automatic"},),
    startup_delay_ms=(500, 1000, 2000), time_limit_ms=(20_000,), rate_hz=Range(10, 20),
    interval_ms=Range(5000, 7000, 500), shortest_ms=Range(300, 500, 100),
    longest_ms=Range(500, 1500, 100), observe_interval_ms=(500,),
    gates=GatePlan(min_acked=20, must_settle=True, must_converge=True, one_master=True),
)  # fmt: skip

MASTER_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RMQ-01",
        title="A master crashes when the node that shall mirror it has no queue supervisor yet",
        anomaly="crashed",
        seed_budget=20,
        bugs=("KB-RMQ-01",),
        # Everything is killed at once, and each node waits for as long as it pleases between
        # loading its tables and starting its queues.
        swarm=SHORT.but(nodes=(2, 3), queues=(1, 2), faults={"kill-all": 1.0}, promise="anything",
            startup_delay_ms=(200, 500, 1000, 2000), fault_count=1, time_limit_ms=(10_000,),
            rate_hz=Range(10, 20), shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1500, 100), interval_ms=Range(2000, 3000, 500),
        ),
    ),
    Scenario(
        id="KB-RMQ-02",
        title="A restarted master stores the row that it read before another was promoted",
        anomaly="dual-master-claimed",
        seed_budget=50,
        bugs=("KB-RMQ-02",),
        stage=("KB-RMQ-01",),
        profile="upstream",
        swarm=TWO_MASTERS,
    ),
    Scenario(
        id="KB-RMQ-08",
        title="A master does not notice that another one is recorded",
        anomaly="crashed",
        seed_budget=100,
        bugs=("KB-RMQ-08",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters; only one crashes by this
        profile="upstream",
        swarm=TWO_MASTERS.but(
            gates=GatePlan(min_acked=20, must_not_crash=True, crash_text="in gm_deaths"),
        ),
    ),
    Scenario(
        id="KB-RMQ-11",
        title="A master that yields to another ends as if its queue were deleted",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-11",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters
        profile="upstream",
        swarm=TWO_MASTERS,
    ),
    Scenario(
        id="KB-RMQ-37",
        title="A queue process that ended in good order is missed by nobody",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-37",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters, one of which ends
        profile="upstream",
        swarm=TWO_MASTERS.but(faults={"restart-all": 1.0}, fault_count=1),
    ),
)  # fmt: skip
