"""Scenarios of our own rules: each of them undone, a search must find what the rule is for."""

from __future__ import annotations

from shalott.core.plan import FaultAction
from shalott.core.rng import Range
from shalott.harness.search.scenarios.ring import PAIRS, cut
from shalott.harness.search.scenarios.scenario import (
    BY_HAND,
    KILLS,
    SHORT,
    SLOW_LINKS,
    Scenario,
    slow,
)

OWN_RULES: tuple[Scenario, ...] = (
    Scenario(
        id="OUR-01",
        title="The confirm of an unsynchronised mirror counts in place of a master that died",
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
        title="A master does not wait for a mirror that the publishing channel did not know",
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
        title="A publish is confirmed when it is in the page cache",
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
        title="Metadata is written without a look at what is there",
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
        title="A ring member takes what its neighbour sent in an earlier time as its neighbour",
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
        title="A newcomer goes on without the last words of the neighbour that added it",
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
        title="A master that is about to pause confirms what only its lost mirrors were missing",
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
        title="Under pause_minority too each group of nodes writes metadata on its own",
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
        title="A confirm does not wait for a queue process that is out of reach",
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
        title="A ring member goes on hearing a left neighbour whose link broke",
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
