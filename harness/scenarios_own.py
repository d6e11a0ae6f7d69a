"""Scenarios of our own rules: each of them undone, a search must find what the rule is for."""

from __future__ import annotations

from dataclasses import replace

from harness.scenario import BY_HAND, KILLS, SHORT, Scenario
from harness.swarm import Range

OWN_RULES: tuple[Scenario, ...] = (
    Scenario(
        id="OUR-01",
        title="The confirm of an unsynchronised mirror vouches for a master that died",
        anomaly="lost",
        seed_budget=200,
        bugs=("OUR-01",),
        swarm=replace(
            SHORT, policies=(BY_HAND,), faults=KILLS, targets=("master", "one"),
            promise="anything", interval_ms=Range(2000, 3000, 500),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 1000, 100),
            enqueue_fraction=Range(1.0, 1.0), rate_hz=Range(100, 200), clients_a_node=(8,),
        ),
    ),
    Scenario(
        id="OUR-03",
        title="A publish is confirmed when it is in the page cache",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-03",),
        swarm=replace(
            SHORT, faults={"power-all": 1.0}, fault_count=1, promise="anything",
            power_loss=("drop",), time_limit_ms=(8000,), shortest_ms=Range(500, 1000, 500),
            longest_ms=Range(1000, 1500, 500), enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
    ),
    Scenario(
        id="OUR-04",
        title="Metadata is written without a look at what is there",
        anomaly="stuck",
        seed_budget=100,
        bugs=("OUR-04",),
        swarm=replace(
            SHORT, faults={"kill": 1.0, "stop": 1.0, "partition": 1.0}, promise="anything",
            interval_ms=Range(2000, 4000, 500), rate_hz=Range(10, 20),
            latency_us=(1000, 5000), jitter_us=(1000, 10_000),
            shortest_ms=Range(300, 500, 100), longest_ms=Range(500, 3000, 500),
        ),
    ),
    Scenario(
        id="OUR-06",
        title="A newcomer goes on without the last words of the neighbour that added it",
        anomaly="stuck",
        seed_budget=100,
        bugs=("OUR-06",),
        swarm=replace(
            SHORT, nodes=(5,), faults=KILLS, promise="anything",
            interval_ms=Range(2000, 2500, 500), shortest_ms=Range(300, 500, 100),
            longest_ms=Range(500, 1500, 100), jitter_us=(10_000,), clients_a_node=(1,),
        ),
    ),
    Scenario(
        id="OUR-07",
        title="A master that is about to pause confirms what only its lost mirrors were missing",
        anomaly="lost",
        seed_budget=50,
        bugs=("OUR-07",),
        swarm=replace(
            SHORT, faults={"partition-isolate-master": 1.0}, fault_count=1,
            time_limit_ms=(8000,), shortest_ms=Range(3000, 4000, 500),
            longest_ms=Range(4000, 5000, 500), enqueue_fraction=Range(0.7, 0.9, 0.1),
        ),
    ),
)  # fmt: skip
