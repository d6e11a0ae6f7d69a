"""The table of kinds, and the plans that it refuses."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from shalott.cluster.base import Capability
from shalott.harness.core.errors import UsageError
from shalott.harness.core.plan import FaultAction
from shalott.nemesis.kinds import CALM, FATAL_DISK, KINDS, check_actions
from shalott.nemesis.schedule import HARMLESS, NEMESES, TAKING

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


def action(kind: str, **more: Any) -> FaultAction:
    base: dict[str, Any] = {"id": 3, "at_ms": 1, "duration_ms": 1, "kind": kind, "nodes": ("n1",)}
    return FaultAction(**(base | more))


def test_every_kind_needs_what_a_world_can_declare() -> None:
    for kind in KINDS.values():
        assert kind.needs and set(kind.needs) <= {*get_args(Capability)}
        assert bool(kind.amounts) == bool(kind.unit)
        assert all(kind.least <= amount <= kind.most and amount for amount in kind.amounts)
        assert kind.mild <= len(kind.amounts)


def test_groups_of_kinds_are_kinds() -> None:
    assert {*CALM, *FATAL_DISK, *HARMLESS, *TAKING} <= {*KINDS} and "partition" in NEMESES
    assert not set(CALM) & set(FATAL_DISK) and not set(HARMLESS) & set(TAKING)


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([action("flood")], "fault 3 is of the unknown kind flood: this version knows partition-"),
        ([action("kill", nodes=("n9",))], "fault 3 names n9, which is no node of the plan"),
        ([action("delay", amount=5, links=(("n1", "n8"),))], "fault 3 names n8, which is no node"),
        ([action("delay", amount=5, links=(("n1", "n1"),))], "has a link from a node to itself"),
        ([action("kill", amount=5)], "fault 3 is of kind kill, which has no amount"),
        ([action("loss")], r"fault 3 \(loss\) needs an amount in probability, not 0 and between"),
        ([action("loss", amount=1.5)], "between 0.0001 and 1; it has 1.5"),
        ([action("clock-skew", amount=-1e6)], "between -500000 and 500000; it has -1e[+]06"),
        (
            [action("disk-corrupt", amount=1), action("disk-corrupt", amount=1, nodes=("n2",))],
            r"would corrupt a second node's disk \(n1 and n2\)",
        ),
        ([action("disk-corrupt", amount=1, nodes=NODES)], "needs exactly one node"),
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
