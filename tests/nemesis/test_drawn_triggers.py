"""What a search has faults wait for: drawn beside the schedule, which stays what it was."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from shalott.core.plan import FaultAction
from shalott.harness.scenarios.swarm import draw_plan, plain_subject
from shalott.nemesis.drawing import draw_faults
from shalott.nemesis.drawn_triggers import draw_again, draw_beside, draw_triggers

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
KINDS = ("kill", "power", "pause", "partition-one", "delay", "disk-full")


def drawn(seed: int, *, changes: bool) -> tuple[tuple[FaultAction, ...], tuple[FaultAction, ...]]:
    bare = draw_faults(
        seed,
        nodes=NODES,
        time_limit_ms=60_000,
        kinds=dict.fromkeys(KINDS, 1),
        promise="anything" if changes else "one-at-a-time",
    )
    return bare, draw_triggers(
        seed, bare, messages=("Often", "Seldom"), files=("a", "b"), changes=changes
    )


def test_a_schedule_keeps_its_times_and_its_promise() -> None:
    for seed in range(40):
        bare, waiting = drawn(seed, changes=False)
        assert waiting == drawn(seed, changes=False)[1]
        for before, after in zip(bare, waiting, strict=True):
            assert (before.id, before.at_ms, before.settle) == (after.id, after.at_ms, after.settle)
            if after.when is not msgspec.UNSET:
                assert after.when.kind in ("disk", "message")
                assert after.when.moment and (after.nodes or after.target == "there")


def test_everything_is_drawn() -> None:
    actions = [each for seed in range(60) for each in drawn(seed, changes=True)[1]]
    whens = [each.when for each in actions if each.when is not msgspec.UNSET]
    assert {each.kind for each in whens} == {"disk", "message", "observed"}
    assert {each.moment for each in whens} == {"sent", "before", "after"}
    assert {each.what for each in whens if each.kind == "disk"} == {"write", "sync", "rename"}
    waiting = {each.kind for each in actions if each.when is not msgspec.UNSET}
    assert waiting >= {"kill", "hold-back", "partition-one", "disk-full"}
    named = [each.what for each in whens if each.kind == "message"]
    assert named.count("Often") > named.count("Seldom") > 0
    assert {each.kind for each in actions} >= {"pause", "hold-back"}
    assert any(each.until is not msgspec.UNSET for each in actions)


def test_all_nodes_are_killed_again_while_they_come_up() -> None:
    all_at_once = [
        FaultAction(
            id=1, at_ms=5000, duration_ms=1000, kind="restart-all", target="all", nodes=NODES,
            settle=True,
        ),
        FaultAction(
            id=2, at_ms=15_000, duration_ms=1000, kind="kill-all", target="all", nodes=NODES,
            settle=True,
        ),
    ]  # fmt: skip
    kinds: set[str] = set()
    for seed in range(40):
        for again in filter(of_another, draw_again(seed, all_at_once, NODES, ("Often",))):
            assert (again.kind, again.target, again.nodes) == ("kill-all", "all", NODES)
            assert again.when is not msgspec.UNSET and again.when.moment and not again.settle
            kinds.add(again.when.kind)
    assert kinds == {"disk", "message"}


def of_another(action: FaultAction) -> bool:
    return action.when is not msgspec.UNSET and action.when.fault > 0


def is_beside(action: FaultAction) -> bool:
    return action.kind == "disk-slow" and action.nodes == (action.target,)


def test_nodes_are_killed_again_while_they_come_up() -> None:
    seen: set[tuple[str, str]] = set()
    for seed in range(40):
        bare, _ = drawn(seed, changes=False)
        both = draw_again(seed, bare)
        assert [each.id for each in both] == list(range(1, len(both) + 1))
        by_id = {each.id: each for each in both}
        for again in filter(of_another, both):
            assert again.when is not msgspec.UNSET
            first = by_id[again.when.fault]
            assert first.kind in ("kill", "power") and first.settle and not again.settle
            assert again.target == "there" and again.nodes is None
            seen.add((first.kind, again.kind))
        assert [each for each in both if not of_another(each)] == [
            msgspec.structs.replace(each, id=own.id)
            for each, own in zip(bare, filter(lambda one: not of_another(one), both), strict=True)
        ]
    assert seen == {(first, again) for first in ("kill", "power") for again in ("kill", "power")}


def test_some_of_them_hit_another_node_when_that_one_gets_a_message() -> None:
    seen: set[tuple[str, bool]] = set()
    for seed in range(40):
        bare, _ = drawn(seed, changes=False)
        for own, other in zip(
            draw_again(seed, bare), draw_again(seed, bare, NODES, ("Often", "Seldom")), strict=True
        ):
            when = other.when
            if own == other or when is msgspec.UNSET:
                continue
            assert of_another(other) and not when.node
            assert own.kind == other.kind and own.at_ms == other.at_ms
            is_sender = other.target == "there"
            assert when.moment == "sent" if is_sender else other.nodes == (other.target,)
            seen.add((when.kind, when.what == "Seldom" or is_sender))
    assert seen == {("message", True), ("message", False), ("disk", False)}


@pytest.mark.parametrize("changes", [True, False])
def test_some_of_them_hit_who_is_next_where_nodes_change_roles(changes: bool) -> None:
    seen: set[str] = set()
    for seed in range(40):
        bare, _ = drawn(seed, changes=changes)
        for again in filter(of_another, draw_again(seed, bare, NODES, ("Often",))):
            if again.when is not msgspec.UNSET and again.when.kind == "observed":
                assert again.target == "there" and again.nodes is None
                seen.add(again.kind)
    assert seen == ({"kill", "power", "pause"} if changes else set())


def test_a_disk_is_slow_beside_some_that_take_one_node() -> None:
    slow, seen = FaultAction(id=1, at_ms=0, duration_ms=9, kind="disk-slow", target="one"), 0
    for seed in range(20):
        bare, _ = drawn(seed, changes=False)
        assert draw_beside(seed, bare, NODES) == bare
        both = draw_beside(seed, (slow, *draw_again(seed, bare, NODES)), NODES)
        assert [each.id for each in both] == list(range(1, len(both) + 1))
        by_id = {each.id: each for each in both}
        for again in filter(of_another, both):
            assert again.when is not msgspec.UNSET and by_id[again.when.fault].kind in (
                "kill",
                "power",
            )
        for own in filter(is_beside, both):
            seen += 1
            end_ms = own.at_ms + own.duration_ms
            taken = [each for each in both if each.kind in ("kill", "power", "pause")]
            assert any(own.at_ms <= t.at_ms and t.at_ms + t.duration_ms < end_ms for t in taken)
    assert seen


@pytest.mark.parametrize("system", ["mirrored", "master-slave", "dledger", "controller"])
def test_a_run_without_moments_is_what_it_was(system: str) -> None:
    subject = plain_subject(system, "safe")
    plain = replace(subject, swarm=subject.swarm.but(triggered=0.0, scheduled=0.0))
    differing = 0
    for seed in range(1, 13):
        own, bare = draw_plan(subject, seed), draw_plan(plain, seed)
        differing += own != bare
        assert own.sim is not None and bare.sim is not None
        first = [each for each in own.faults if not of_another(each) and not is_beside(each)]
        assert [each.at_ms for each in first] == [each.at_ms for each in bare.faults]
        still = msgspec.structs.replace(own.sim, schedule=msgspec.UNSET)
        assert (still, own.system, own.workload) == (bare.sim, bare.system, bare.workload)
    assert 0 < differing < 12
