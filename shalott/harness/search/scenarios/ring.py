"""Scenarios of RabbitMQ's bugs about the ring of a queue, and about who is still in it."""

from __future__ import annotations

from shalott.core.plan import FaultAction, GatePlan
from shalott.core.rng import Range
from shalott.harness.search.scenarios.scenario import BY_HAND, SHORT, Scenario

ALL_THREE = ("n1", "n2", "n3")
PAIRS = (("n1", "n2"), ("n2", "n3"), ("n1", "n3"))


def restart_all(fault: int, at_ms: int) -> FaultAction:
    """Every mirror is empty afterwards; each master is where it was, and n1 keeps the tables."""
    return FaultAction(id=fault, at_ms=at_ms, duration_ms=300, kind="kill-all", nodes=ALL_THREE)


def stop(fault: int, node: str, at_ms: int, duration_ms: int) -> FaultAction:
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="stop", target=node, nodes=(node,)
    )


def cut(fault: int, one: str, other: str, at_ms: int, duration_ms: int) -> FaultAction:
    """One link, both ways: both ends still see everybody else."""
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="partition-bridge", nodes=(),
        links=((one, other), (other, one)),
    )  # fmt: skip


# shalott.2 has its master on n2, and mirrors that hold nothing, which n2 stops when it stops.
UNSYNCHRONISED = SHORT.but(policies=(BY_HAND,), queues=(2,), enqueue_fraction=Range(0.8, 0.9, 0.1),
)  # fmt: skip

RING_BUGS: tuple[Scenario, ...] = (
    Scenario(
        id="KB-RMQ-04",
        title="A ring member stops before what it published has been round",
        anomaly="stuck",
        seed_budget=100,
        bugs=("KB-RMQ-04",),
        # A queue is deleted when its master's right neighbour is dead, and not buried yet.
        swarm=SHORT.but(faults={"power-redeclare": 1.0}, time_limit_ms=(14_000,),
            rate_hz=Range(10, 20), clients_a_node=(1,), interval_ms=Range(4000, 4500, 500),
            shortest_ms=Range(1800, 2000, 100), longest_ms=Range(2000, 2500, 500),
            latency_us=(100, 300, 1000), jitter_us=(0, 1000),
            disk_sync_us=((200, 3000), (1000, 1000)),
        ),
    ),
    Scenario(
        id="KB-RMQ-06",
        title="A ring member that others recorded as dead carries on",
        anomaly="crashed",
        seed_budget=20,
        bugs=("KB-RMQ-06",),
        # n2 and n3 lose each other, and see n1, through which they record each other dead. Links
        # are slow, so a node hears of its death before it hears why it must pause.
        swarm=SHORT.but(queues=(3,), latency_us=(20_000, 50_000), jitter_us=(0, 20_000),
            time_limit_ms=(10_000,), schedule=(cut(1, "n2", "n3", 2500, 4000),),
            late_ms={1: 1000},
        ),
    ),
    Scenario(
        id="KB-RMQ-07",
        title="A ring member crashes on a hole in its neighbour's messages",
        anomaly="crashed",
        seed_budget=50,
        bugs=("KB-RMQ-07",),
        stage=("OUR-10",),  # makes the holes
        # Links that are back as soon as one side has noticed that they were gone.
        swarm=SHORT.but(queues=(3,), rate_hz=Range(40, 60), time_limit_ms=(14_000,),
            schedule=tuple(
                cut(number + 1, *PAIRS[number % 3], 1500 + 2000 * number, 1000)
                for number in range(6)
            ),
            late_ms=dict.fromkeys(range(1, 7), 500),
            gates=GatePlan(min_acked=20, must_not_crash=True, crash_text="find_common"),
        ),
    ),
    Scenario(
        id="KB-RMQ-10",
        title="A ring member crashes when its group's row is gone",
        anomaly="crashed",
        seed_budget=20,
        bugs=("KB-RMQ-10",),
        # n2 stops n3's mirror, which can't hear it, and deletes the group, which n1 tells n3.
        swarm=UNSYNCHRONISED.but(partition_modes=("ignore", "autoheal"), time_limit_ms=(10_000,),
            schedule=(
                restart_all(1, 1500),
                cut(2, "n2", "n3", 4000, 4000),
                stop(3, "n2", 4100, 3000),
            ),
            late_ms={3: 1000},
        ),
    ),
    Scenario(
        id="KB-RMQ-13",
        title="A mirror that outlives its master's stop blocks the next one on its node",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-13",),
        # A mirror takes its time to end, longer than n2 waits for it, and n2 is soon back.
        swarm=UNSYNCHRONISED.but(queues=(5,), buggify=(False,), buggify_on=("mirror.close_late",),
            time_limit_ms=(23_000,), settle_timeout_ms=(10_000,), rate_hz=Range(10, 15),
            schedule=(restart_all(1, 1500), stop(2, "n2", 4000, 16_500)),
            late_ms={2: 1000},
        ),
    ),
)  # fmt: skip
