"""The workloads of transactions in the simulation: a store that is right is never accused, and each
broken rule is found within a few seeds of a search, as the anomaly that it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.plan import Plan
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott_transactions.toy import SYSTEM
from shalott_transactions.toy_node import RULES

pytestmark = pytest.mark.sim

WORKLOADS = ("list-append", "rw-register")
SEEDS = 12  # of a search, until it has to have found it


@dataclass(frozen=True)
class Broken:
    """What a rule's breach looks like: one of these anomalies, by workload. ``knobs``: what draws
    are narrowed to, where a breach needs a fault of its own or much that goes on at once."""

    lists: Sequence[str]
    registers: Sequence[str]
    knobs: Mapping[str, Any] = field(default_factory=dict)


BROKEN: Mapping[str, Broken] = {
    "dirty-read": Broken(("G1a", "G1b"), ("G1a", "G1b")),
    "dirty-write": Broken(("G0", "G1a"), ("G1a", "G1c")),
    "lost-update": Broken(("incompatible-order", "lost-update"), ("lost-update",)),
    "write-skew": Broken(("G2-item",), ("G2-item",)),
    "read-committed": Broken(("G-single-item", "internal"), ("internal", "lost-update")),
    "hidden-own-write": Broken(("internal",), ("internal",)),
    "lying-abort": Broken(("G1a",), ("G1a",)),
    "commit-twice": Broken(  # a register that is written twice is the same
        ("duplicate-elements",), (), {"faults": {"pause": 1.0}, "fault_share": 1.0}
    ),
    "unsynced-commit": Broken(
        ("incompatible-order", "G-single-item-realtime"),
        ("G-single-item-realtime",),
        {"faults": {"power": 1.0}, "fault_share": 1.0, "power_loss": ("drop",)},
    ),
    "stale-snapshot": Broken(("G-single-item-realtime",), ("G-single-item-realtime",)),
    "torn-replication": Broken(("G-single-item", "G1b"), ("G-single-item", "G1b")),
    "reordered-replication": Broken(
        ("G-nonadjacent-item",),
        ("G-nonadjacent-item",),
        {"keys": (10,), "longest": (2,), "writes_per_key": (4,), "time_limit_ms": (8000,)},
    ),
}


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    SYSTEMS.offer(SYSTEM)
    yield
    SYSTEMS.withdraw(SYSTEM.name)


def drawn(workload: str, seed: int, profile: str = "safe", **knobs: Any) -> Plan:
    swarm = USUAL.but(**{"time_limit_ms": (5000,), "nodes": (3,), **knobs})
    subject = Subject(system=SYSTEM.name, workload=workload, profile=profile, swarm=swarm)
    return draw_plan(subject, seed)


def test_there_is_a_case_of_every_rule() -> None:
    assert ("none", *BROKEN) == RULES


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_store_that_is_right_is_not_accused(workload: str) -> None:
    for seed in (1, 4, 5):  # power losses, a pause, a kill, a partition
        outcome = simulate(drawn(workload, seed))
        assert outcome.valid is True, (outcome.error, outcome.results)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found_within_a_few_seeds(rule: str) -> None:
    search(rule, "list-append", BROKEN[rule].lists)


@pytest.mark.nightly("the same rules as of lists, 8 s of CPU")
@pytest.mark.parametrize("rule", [rule for rule in BROKEN if BROKEN[rule].registers])
def test_a_broken_rule_is_found_in_registers_too(rule: str) -> None:
    search(rule, "rw-register", BROKEN[rule].registers)


def search(rule: str, workload: str, kinds: Sequence[str]) -> None:
    """As ``shalott search`` draws plans, until one of these anomalies is found."""
    wanted, seen = set(kinds), []
    for seed in range(1, SEEDS + 1):
        outcome = simulate(drawn(workload, seed, rule, **BROKEN[rule].knobs))
        seen.append((seed, outcome.valid, outcome.anomalies))
        if outcome.valid is False and wanted & set(outcome.anomalies):
            return
    raise AssertionError(f"{rule} was not seen as {sorted(wanted)}: {seen}")


def test_a_run_is_the_same_bit_for_bit() -> None:
    plan = drawn("list-append", 3, "write-skew")
    first, second = simulate(plan), simulate(plan)
    assert first.digest == second.digest
    assert first.history.ops.equals(second.history.ops)
    assert first.results == second.results
