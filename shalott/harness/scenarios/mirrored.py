"""Scenarios of mirrored queues: RabbitMQ's known bugs, and our own rules undone."""

from __future__ import annotations

from shalott.core.plan import FaultAction, GatePlan
from shalott.core.rng import Range
from shalott.harness.scenarios.scenario import (
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

# What bugs that set the stage leave, with the one that is looked for switched off.
CRASHED = {"lost": "KB-RMQ-01 ends masters again and again, and with them what they had"}
TWICE = {
    **CRASHED,
    "dual-master-claimed": "KB-RMQ-02 makes two masters, which are the stage",
}

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
    """One link, both ways: both ends still see all others."""
    return FaultAction(
        id=fault, at_ms=at_ms, duration_ms=duration_ms, kind="partition-bridge", nodes=(),
        links=((one, other), (other, one)),
    )  # fmt: skip


# shalott.2 has its master on n2, and mirrors that hold nothing, which n2 stops when it stops.
UNSYNCHRONISED = SHORT.but(policies=(BY_HAND,), queues=(2,), enqueue_fraction=Range(0.8, 0.9, 0.1),
)  # fmt: skip

MIRRORED_BUGS: tuple[Scenario, ...] = (
    # -- who is master: at the start, in the row, at the end
    Scenario(
        id="KB-RMQ-01",
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
        anomaly="dual-master-claimed",
        seed_budget=50,
        bugs=("KB-RMQ-02",),
        stage=("KB-RMQ-01",),
        remains=CRASHED,
        profile="upstream",
        swarm=TWO_MASTERS,
    ),
    Scenario(
        id="KB-RMQ-08",
        anomaly="crashed",
        seed_budget=100,
        bugs=("KB-RMQ-08",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters; only one crashes by this
        remains=TWICE,
        profile="upstream",
        swarm=TWO_MASTERS.but(
            gates=GatePlan(min_acked=20, must_not_crash=True, crash_text="in gm_deaths"),
        ),
    ),
    Scenario(
        id="KB-RMQ-11",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-11",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters
        remains=TWICE,
        profile="upstream",
        swarm=TWO_MASTERS,
    ),
    Scenario(
        id="KB-RMQ-37",
        anomaly="stuck",
        seed_budget=50,
        bugs=("KB-RMQ-37",),
        stage=("KB-RMQ-01", "KB-RMQ-02"),  # they make two masters, one of which ends
        remains=TWICE,
        profile="upstream",
        swarm=TWO_MASTERS.but(faults={"restart-all": 1.0}, fault_count=1),
    ),
    # -- the ring of a queue, and who is still in it
    Scenario(
        id="KB-RMQ-04",
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
        anomaly="crashed",
        seed_budget=50,
        bugs=("KB-RMQ-07",),
        stage=("OUR-10",),  # makes the holes
        remains={
            "unsynchronised-counted": "OUR-10 lets a mirror with a hole confirm",
            "mirror-differs": "OUR-10 makes the hole",
        },
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
    # -- promotion, confirms, and mirrors that do not come back
    Scenario(
        id="KB-RMQ-20",
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
        anomaly="crashed",
        seed_budget=50,
        bugs=("KB-RMQ-29",),
        remains={"lost": "a queue of ten messages drops the oldest, as it is told to"},
        # What is dropped in the end for its length is what the promoted one had requeued.
        swarm=SHORT.but(policies=({"max-length": 10},), faults=KILLS, targets=("master",),
            clients_a_node=(3,), latency_us=(5000,), interval_ms=Range(3000, 4000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            enqueue_fraction=Range(0.5, 0.6, 0.1),
        ),
    ),
    Scenario(
        id="KB-RMQ-31",
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
    # -- our own rules: each of them undone, a search must find what the rule is for
    Scenario(
        id="OUR-01",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-01",),
        stage=("OUR-09",),  # whose rule covers the same confirms while the row is as it was
        # Disks that take their time: mirrors are often done before their master, and what it had
        # not synced is gone with its power.
        swarm=SHORT.but(policies=(BY_HAND,), faults={"kill": 1.0, "power": 1.0},
            targets=("master", "one"), promise="anything", power_loss=("drop",),
            disk_sync_us=((200, 100_000),),
            interval_ms=Range(2000, 2500, 500), shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1000, 100), enqueue_fraction=Range(0.9, 1.0, 0.1),
            rate_hz=Range(40, 60), clients_a_node=(4,), op_timeout_ms=(10_000,),
        ),
    ),
    Scenario(
        id="OUR-02",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-02",),
        # What n4 sends to the master n2 is long under way: it was sent before n3 was a mirror again
        # and arrives after that. The ring takes its time to n3, and the master dies.
        swarm=SLOW_LINKS.but(policies=({"ha-mode": "nodes", "ha-params": ["n2", "n3"]},),
            clients_a_node=(20,), rate_hz=Range(60, 80), enqueue_fraction=Range(0.9, 1.0, 0.1),
            time_limit_ms=(9000,),
            schedule=(
                slow(1, ("n4", "n2"), 3000),
                slow(2, ("n2", "n3"), 400),
                FaultAction(id=3, at_ms=1700, duration_ms=500, kind="kill", nodes=("n3",)),
                FaultAction(id=4, at_ms=4500, duration_ms=1000, kind="power", nodes=("n2",)),
            ),
            late_ms={4: 2500},
        ),
    ),
    Scenario(
        id="OUR-03",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-03",),
        swarm=SHORT.but(faults={"power-all": 1.0}, fault_count=1, promise="anything",
            power_loss=("drop",), time_limit_ms=(8000,), shortest_ms=Range(500, 1000, 500),
            longest_ms=Range(1000, 1500, 500), enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
    ),
    Scenario(
        id="OUR-04",
        anomaly="stuck",
        seed_budget=50,
        bugs=("OUR-04",),
        # Rows that many nodes change at once, and see changed late.
        swarm=SHORT.but(nodes=(5,), queues=(4,), faults=KILLS, targets=("master",),
            promise="anything", interval_ms=Range(2000, 3000, 500), rate_hz=Range(10, 20),
            latency_us=(20_000,), jitter_us=(10_000,), clients_a_node=(1,),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 500),
        ),
    ),
    Scenario(
        id="OUR-05",
        anomaly="crashed",
        seed_budget=100,
        bugs=("OUR-05",),
        # n4 joins anew, perhaps between n2 and n3, and dies again while n2's old words to n3 are
        # still under way.
        swarm=SLOW_LINKS.but(schedule=(
                slow(1, ("n2", "n3"), 3000),
                FaultAction(id=2, at_ms=1700, duration_ms=500, kind="kill", nodes=("n4",)),
                FaultAction(id=3, at_ms=3100, duration_ms=1000, kind="kill", nodes=("n4",)),
            ),
            late_ms={3: 2700},
        ),
    ),
    Scenario(
        id="OUR-06",
        anomaly="crashed",
        seed_budget=100,
        bugs=("OUR-06",),
        # n4 joins anew, perhaps by n2, and hears of it late; n2 has words under way to n3 when it
        # dies meanwhile.
        swarm=SLOW_LINKS.but(schedule=(
                slow(1, ("n2", "n4"), 1500),
                slow(2, ("n3", "n2"), 400),
                FaultAction(id=3, at_ms=1700, duration_ms=500, kind="kill", nodes=("n4",)),
                FaultAction(id=4, at_ms=6500, duration_ms=1000, kind="power", nodes=("n2",)),
            ),
            late_ms={4: 1500}, time_limit_ms=(11_000,),
        ),
    ),
    Scenario(
        id="OUR-07",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-07",),
        stage=("OUR-09",),  # whose rule covers the same confirms, and more
        swarm=SHORT.but(faults={"partition-isolate-master": 1.0}, fault_count=1,
            time_limit_ms=(8000,), shortest_ms=Range(3000, 4000, 500),
            longest_ms=Range(4000, 5000, 500), enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
    ),
    Scenario(
        id="OUR-08",
        anomaly="dual-master-effective",
        seed_budget=200,
        bugs=("OUR-08",),
        swarm=SHORT.but(
            nodes=(5,), faults={"partition-majorities-ring": 1.0, "partition-one-way": 1.0},
            interval_ms=Range(4000, 6000, 500), net_tick_ms=(1000,), queues=(2, 3),
            shortest_ms=Range(500, 1500, 100), longest_ms=Range(1500, 3000, 500),
        ),
    ),
    Scenario(
        id="OUR-09",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-09",),
        # n4 loses its link to the mirror n3, and has its master n2 alone for witness. n2's words to
        # n3 are a second under way when it dies; n3 is promoted without them.
        swarm=SLOW_LINKS.but(
            nodes=(5,), policies=({"ha-mode": "nodes", "ha-params": ["n2", "n3"]},),
            net_tick_ms=(2000,), rate_hz=Range(60, 80), enqueue_fraction=Range(0.8, 1.0, 0.1),
            clients_a_node=(4,), time_limit_ms=(11_000,),
            schedule=(
                slow(1, ("n2", "n3"), 1200),
                cut(2, "n3", "n4", 3000, 6000),
                FaultAction(id=3, at_ms=5500, duration_ms=1500, kind="power", nodes=("n2",)),
            ),
            late_ms={3: 1500},
        ),
    ),
    Scenario(
        id="OUR-10",
        anomaly="crashed",
        seed_budget=200,
        bugs=("OUR-10",),
        # Links that are back as soon as one side has noticed that they were gone.
        swarm=SHORT.but(queues=(3,), rate_hz=Range(40, 60), time_limit_ms=(14_000,),
            schedule=tuple(
                cut(number + 1, *PAIRS[number % 3], 1500 + 2000 * number, 1000)
                for number in range(6)
            ),
            late_ms=dict.fromkeys(range(1, 7), 500),
        ),
    ),
)  # fmt: skip
