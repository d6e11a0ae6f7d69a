"""The workload of queues on a system of others, in the simulation: what keeps its messages is not
accused, and each broken rule is found within a few seeds, as the anomaly that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import UsageError
from shalott.core.plan import Plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott_queues.toy import SYSTEM
from shalott_queues.toy_node import RULES

pytestmark = pytest.mark.sim

SEEDS = 8  # of a search, until it has to have found it

# By rule: the anomaly that must be among those that are found.
BROKEN: Mapping[str, str] = {
    "forgets": "lost",
    "settles-early": "lost",
    "says-empty": "lost",
    "lying-refusal": "phantom",
    "invented": "unexpected",
    "damaged": "corrupted",
}


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    SYSTEMS.offer(SYSTEM)
    yield
    SYSTEMS.withdraw(SYSTEM.name)


def drawn(seed: int, profile: str = "safe", **knobs: Any) -> Plan:
    swarm = USUAL.but(**{"time_limit_ms": (8000,), "nodes": (3,), **knobs})
    subject = Subject(system=SYSTEM.name, workload="queue", profile=profile, swarm=swarm)
    return draw_plan(subject, seed)


def test_there_is_a_case_of_every_rule() -> None:
    assert ("none", *BROKEN) == RULES


def test_queues_that_lose_nothing_are_not_accused() -> None:
    ends = Counter[tuple[str, str]]()
    for seed in range(1, 4):
        outcome = simulate(drawn(seed))
        assert outcome.valid is True, (seed, outcome.error, outcome.results)
        rows = outcome.history.ops.select(["f", "type"]).to_pylist()
        ends.update((row["f"], row["type"]) for row in rows)
    kinds = [("enqueue", "ok"), ("enqueue", "fail"), ("dequeue", "ok"), ("dequeue", "fail")]
    assert min(ends[kind] for kind in kinds) > 0


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found_within_a_few_seeds(rule: str) -> None:
    seen = []
    for seed in range(1, SEEDS + 1):
        outcome = simulate(drawn(seed, rule))
        seen.append((seed, outcome.valid, outcome.anomalies))
        if outcome.valid is False and BROKEN[rule] in outcome.anomalies:
            return
    raise AssertionError(f"{rule} was not seen as {BROKEN[rule]}: {seen}")


def test_what_is_amqps_is_refused() -> None:
    asked = Request(system=SYSTEM.name, nemesis="none", given={"confirms": False})
    with pytest.raises(UsageError, match="are AMQP's: set what toy-queues calls them"):
        make_plan(asked, backend="sim", seed=1)
