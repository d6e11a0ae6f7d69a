"""Mutated plans: other than their parents, sound, and within what the profile promises."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from shalott.core.plan import FaultAction, Plan
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.scenarios.swarm import draw_plan, plain_subject
from shalott.harness.search.plan_mutation import keeps_promise, mutate
from shalott.nemesis.record import FAULTS
from shalott.nemesis.schedule import MIN_CALM_MS

pytestmark = pytest.mark.unit

SUBJECTS = [
    ("dledger", "safe"), ("mirrored", "safe"), ("controller", "safe"), ("master-slave", "upstream"),
]  # fmt: skip


def families(system: str, profile: str) -> Iterator[tuple[Plan, Plan, Plan]]:
    """A parent, another, and what became of them; some are of later generations."""
    subject = plain_subject(system, profile)
    parent, other = draw_plan(subject, 1), draw_plan(subject, 2)
    for seed in range(100, 160):
        child = mutate(parent, fresh=draw_plan(subject, seed), other=other, seed=seed)
        yield parent, other, child
        parent, other = (child, parent) if seed % 3 else (draw_plan(subject, seed), child)


@pytest.mark.parametrize(("system", "profile"), SUBJECTS)
def test_a_child_is_another_plan_and_a_sound_one(system: str, profile: str) -> None:
    differ = 0
    for parent, _, child in families(system, profile):
        check_plan(child)
        assert [action.id for action in child.faults] == list(range(1, len(child.faults) + 1))
        assert [a.at_ms for a in child.faults] == sorted(a.at_ms for a in child.faults)
        differ += child != parent
    assert differ == 60


def test_what_is_survived_one_at_a_time_comes_one_at_a_time() -> None:
    follow = 0
    for _, _, child in families("mirrored", "safe"):
        for action in child.faults:
            record = FAULTS.find(action.kind)
            when = action.when
            if when is not msgspec.UNSET and when.fault:  # who was hit is up again
                first = child.faults[when.fault - 1]
                assert first.settle and action.kind.removesuffix("-all") in ("kill", "power")
                hits_all = action.kind.endswith("-all") and action.target == "all"
                is_one = action.target == "there" or len(action.nodes or ()) == 1
                assert (first.kind.endswith("-all") and hits_all) or is_one
                follow += 1
            else:
                assert action.settle or record.is_calm, action
        alone = [action for action in child.faults if action.settle]
        for before, after in pairwise(alone):
            assert before.at_ms + before.duration_ms + MIN_CALM_MS <= after.at_ms
        kinds = [FAULTS.find(action.kind) for action in child.faults]
        assert not (any(k.hits_all for k in kinds) and any(k.does_not_heal for k in kinds))
    assert follow > 20


def test_lasting_harm_stays_where_it_was_drawn() -> None:
    """Two plans may do it to a minority each, which together is none."""
    drawn = draw_plan(plain_subject("mirrored", "safe"), 1)

    def rots(node: str, at_ms: int) -> Plan:
        amount = FAULTS.find("disk-corrupt").amounts[0]
        harm = FaultAction(
            id=1,
            at_ms=at_ms,
            duration_ms=500,
            kind="disk-corrupt",
            nodes=(node,),
            amount=amount,
            settle=True,
        )
        return msgspec.structs.replace(drawn, faults=(harm,))

    assert FAULTS.find("disk-corrupt").does_not_heal
    parent, fresh, other = rots("n1", 3000), rots("n2", 20_000), rots("n3", 40_000)
    changed = 0
    for seed in range(200):
        child = mutate(parent, fresh=fresh, other=other, seed=seed)
        hurt = {node for action in child.faults for node in action.nodes or ()}
        assert hurt <= {"n1"} or child == fresh
        changed += len(child.faults) > 1
    assert changed > 10


def test_a_plan_whose_lone_faults_overlap_breaks_the_promise() -> None:
    def plan(at_ms: int, *, settle: bool) -> Plan:
        kill = FaultAction(id=1, at_ms=3000, duration_ms=2000, kind="kill", settle=settle)
        again = msgspec.structs.replace(kill, id=2, at_ms=at_ms)
        drawn = draw_plan(plain_subject("dledger", "safe"), 1)
        return msgspec.structs.replace(drawn, faults=(kill, again))

    assert keeps_promise(plan(5000 + MIN_CALM_MS, settle=True))
    assert not keeps_promise(plan(4999 + MIN_CALM_MS, settle=True))
    assert keeps_promise(plan(3500, settle=False))


def test_every_step_is_taken_by_some_seed() -> None:
    subject = plain_subject("dledger", "upstream")
    parent = draw_plan(subject, 1)
    seen: set[str] = set()
    for seed in range(100, 300):
        child = mutate(
            parent, fresh=draw_plan(subject, seed), other=draw_plan(subject, 2), seed=seed
        )
        had, has = parent.faults, child.faults
        seen |= {"more"} if len(has) > len(had) else {"fewer"} if len(has) < len(had) else set()
        seen |= {"load"} if child.workload != parent.workload else set()
        seen |= {"world"} if child.sim != parent.sim or child.seed != parent.seed else set()
        if len(has) == len(had):
            for one, other in zip(had, has, strict=True):
                seen |= {"nodes"} if (one.nodes, one.links) != (other.nodes, other.links) else set()
                seen |= {"time"} if one.at_ms != other.at_ms else set()
                seen |= {"length"} if one.duration_ms != other.duration_ms else set()
                seen |= {"moment"} if one.triggers != other.triggers else set()
    assert seen == {"more", "fewer", "load", "world", "nodes", "time", "length", "moment"}
