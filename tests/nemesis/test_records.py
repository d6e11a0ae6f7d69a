"""The records of faults, and the plans that are refused."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from shalott.checkers.history.faults import read_surroundings
from shalott.cluster.capabilities import Capability
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.core.rng import Stream
from shalott.nemesis import (
    clients,
    clocks,
    disks,
    links,
    membership,
    operators,
    partitions,
    processes,
    resources,
    rolling,
)
from shalott.nemesis.aiming import draw_parameters
from shalott.nemesis.record import FAULTS, check_nemesis, nemesis_names, usual_nemeses
from shalott.nemesis.requirements import check_actions, check_system, required_protocols
from shalott.nemesis.weaker import strength, weaker_actions
from tests.checkers.histories import Story
from tests.world.harness.nemesis import FakeSystem, PlainSystem

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def action(kind: str, **more: Any) -> FaultAction:
    base: dict[str, Any] = {"id": 3, "at_ms": 1, "duration_ms": 1, "kind": kind, "nodes": ("n1",)}
    return FaultAction(**(base | more))


def test_every_fault_says_what_it_needs_and_what_is_drawn() -> None:
    for record in FAULTS.records():
        assert record.needs and set(record.needs) <= {*get_args(Capability)}
        assert record.summary and not record.summary.endswith(".")
        amount = record.amount
        if amount is not None:
            assert amount.unit and amount.choices and amount.mild <= len(amount.choices)
            assert all(
                amount.least <= choice <= amount.most and choice for choice in amount.choices
            )
        assert set(record.choices) <= {*record.parameters.__struct_fields__}
        assert (record.takes == "nothing-if-mild") <= (amount is not None and amount.mild > 0)


def test_every_family_comes_through_the_door() -> None:
    families = (
        partitions,
        processes,
        links,
        clients,
        clocks,
        disks,
        operators,
        membership,
        rolling,
        resources,
    )
    records = [record for family in families for record in family.FAULTS]
    assert {record.name for record in records} == {*FAULTS.names()} and not FAULTS.problems()
    assert all(FAULTS.provider_of(record.name).name == "shalott" for record in records)


def test_groups_and_what_every_world_can_do() -> None:
    assert nemesis_names()[0] == "partition" and nemesis_names()[1:] == FAULTS.names()
    assert usual_nemeses() == ("partition", "kill", "stop", "pause", "restart-all")
    with pytest.raises(UsageError, match="unknown nemesis flood: choose one of partition, .*, all"):
        check_nemesis("flood", "none", "all")


def test_a_row_from_before_effects_were_told_is_read_by_its_kind() -> None:
    story = Story()
    for number, name in enumerate(FAULTS.names(), 1):
        story.fault(number, name, number, number + 1, ["n1"])
    read = {fault.kind: fault.effects for fault in read_surroundings(story.history()).faults}
    assert read == {record.name: record.effects for record in FAULTS.records()}


@pytest.mark.parametrize("name", FAULTS.names())
def test_a_weaker_fault_is_weaker(name: str) -> None:
    """Else a shrinker would never stop, or never take what it was offered."""
    record = FAULTS.find(name)
    hit = NODES if record.hits_all else ("n1",)
    both_ways = (("n1", "n2"), ("n2", "n1"))
    strong = action(
        name,
        nodes=hit,
        links=both_ways if record.links else None,
        amount=(record.amounts or (0,))[-1],
        jitter_ms=300 if record.hits_all else 0,
    )
    for other in weaker_actions(strong):
        check_actions((other,), NODES)
        fewer = len(other.links or ()) < len(strong.links or ())
        calmer = other.kind == name and (fewer or other.jitter_ms < strong.jitter_ms)
        assert calmer or strength(other) < strength(strong)


@pytest.mark.parametrize(
    ("kind", "lacks"),
    [
        ("kill-redeclare", "DeclaresQueues"),
        ("power-redeclare", "DeclaresQueues"),
        ("failover", "FailsOver"),
        ("stray-report", "TakesReports"),
        ("move-mirrors", "MovesMirrors"),
        ("replace-node", "ChangesMembers"),
    ],
)
def test_what_a_system_can_not_be_asked_is_refused_in_one_sentence(kind: str, lacks: str) -> None:
    faults = (action("kill"), action(kind))
    sentence = f"the system plain can't be asked for {kind}: it does not offer {lacks} "
    with pytest.raises(UsageError, match=sentence):
        check_system(faults, PlainSystem())  # type: ignore[arg-type]
    check_system(faults, FakeSystem())  # type: ignore[arg-type]
    check_system(faults[:1], PlainSystem())  # type: ignore[arg-type]
    assert [protocol.__name__ for protocol in required_protocols(faults)] == [lacks]


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([action("flood")], "fault 3 is of the unknown kind flood: choose one of "),
        ([action("kill", nodes=("n9",))], "fault 3 names n9, which is no node of the plan"),
        ([action("delay", amount=5, links=(("n1", "n8"),))], "fault 3 names n8, which is no node"),
        ([action("delay", amount=5, links=(("n1", "n1"),))], "has a link from a node to itself"),
        ([action("kill", amount=5)], "fault 3 is of kind kill, which has no amount"),
        ([action("loss")], r"fault 3 \(loss\) needs an amount in probability, not 0 and between"),
        ([action("loss", amount=1.5)], "between 0.0001 and 1; it has 1.5"),
        ([action("clock-skew", amount=-1e6)], "between -500000 and 500000; it has -1e[+]06"),
        (
            [action("disk-corrupt", amount=1), action("disk-corrupt", amount=1, nodes=("n2",))],
            r"would do lasting harm to a second node \(n1 and n2\)",
        ),
        ([action("disk-corrupt", amount=1, nodes=NODES)], "needs exactly one node"),
        ([action("failover", nodes=("n1", "n2"))], "hits one node at a time, not n1 and n2"),
        ([action("failover", nodes=None, target="mirrors")], "one node at a time, not mirrors"),
        ([action("kill", parameters={"times": 3})], "unknown field `times`"),
        ([action("disk-corrupt", amount=1, nodes=None)], "needs exactly one node, named in the"),
    ],
)
def test_plans_that_no_run_can_do_are_refused(faults: list[FaultAction], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_actions(tuple(faults), NODES)


def test_an_action_stored_before_amounts_were_known_loads() -> None:
    stored = b'{"id":1,"at_ms":5,"duration_ms":7,"kind":"kill","target":"one","nodes":["n1"]}'
    loaded = msgspec.json.decode(stored, type=FaultAction)
    assert loaded.amount == 0
    check_actions((loaded,), NODES)
    check_actions((action("clock-jump", amount=-5000.0),), NODES)


def test_what_was_not_told_of_a_link_fault_is_not_in_the_plan() -> None:
    """So plans and rows of before correlations are as they were."""
    for record in links.FAULTS:
        assert draw_parameters(record, lambda name: Stream(1, name)) == {}
