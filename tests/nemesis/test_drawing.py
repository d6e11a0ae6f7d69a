"""Drawn faults: each a function of its own number, and within what the promise allows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.nemesis.drawing import BEGIN_SHARE, Promise, Slots, draw_faults
from shalott.nemesis.record import FAULTS, nemesis_names
from shalott.nemesis.requirements import check_actions
from shalott.nemesis.schedule import MIN_CALM_MS, TAIL_MS

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
LIMIT_MS = 60_000
ALL_NODES = [record.name for record in FAULTS.records() if record.hits_all]
CALM = [record.name for record in FAULTS.records() if record.is_calm]
# What must be told more than a draw knows; a plan without it is refused.
TOLD = [record.name for record in FAULTS.records() if record.must_tell]
SINGLE = [name for name in nemesis_names() if name not in (*ALL_NODES, *TOLD)]


def draw(seed: int = 1, **more: Any) -> tuple[FaultAction, ...]:
    given_ = {
        "nodes": NODES,
        "time_limit_ms": LIMIT_MS,
        "kinds": dict.fromkeys(SINGLE, 1.0),
        "promise": "one-at-a-time",
        **more,
    }
    names = ("quiet_ms", "interval_ms", "duration_ms")
    slots = Slots(**{name: given_.pop(name) for name in names if name in given_})
    return draw_faults(seed, slots=slots, **given_)


def end_ms(action: FaultAction) -> int:
    return action.at_ms + action.duration_ms


@pytest.mark.explore
@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    kinds=st.dictionaries(st.sampled_from(SINGLE), st.floats(0, 5), max_size=6),
    count=st.integers(3, 7),
    promise=st.sampled_from(["one-at-a-time", "anything"]),
    interval_ms=st.integers(2000, 20_000),
    longest_ms=st.integers(500, 30_000),
)
def test_properties_of_what_is_drawn(
    seed: int,
    kinds: dict[str, float],
    count: int,
    promise: Promise,
    interval_ms: int,
    longest_ms: int,
) -> None:
    nodes = tuple(f"n{number}" for number in range(1, count + 1))

    def drawn() -> tuple[FaultAction, ...]:
        return draw(
            seed,
            kinds=kinds,
            nodes=nodes,
            promise=promise,
            interval_ms=interval_ms,
            duration_ms=(500, longest_ms),
        )

    actions = drawn()
    assert actions == drawn()
    assert bool(actions) == any(weight > 0 for weight in kinds.values())
    assert [action.id for action in actions] == list(range(1, len(actions) + 1))
    assert [a.at_ms for a in actions] == sorted(a.at_ms for a in actions)
    assert all(a.at_ms >= 2000 and a.duration_ms > 0 for a in actions)
    assert all(end_ms(a) <= LIMIT_MS - TAIL_MS for a in actions)
    check_actions(actions, nodes)
    assert all((a.nodes is None) == (a.target == "master") for a in actions)
    if promise == "one-at-a-time":
        alone = [action for action in actions if action.kind not in CALM]
        assert all(after.at_ms - end_ms(a) >= MIN_CALM_MS for a, after in pairwise(alone))
        assert all(action.settle == (action.kind not in CALM) for action in actions)
        for action in actions:
            record = FAULTS.find(action.kind)
            if record.links is None and action.nodes is not None and not record.one_by_one:
                assert len(action.nodes) == 1
            if record.is_calm and record.amount is not None:
                assert action.amount in record.amounts[: record.amount.mild]
    else:
        assert not any(action.settle for action in actions)


def test_another_number_of_actions_moves_none() -> None:
    assert draw(count=3) == draw()[:3] and len(draw()) > 3


def test_another_weight_moves_only_the_actions_that_change_their_kind() -> None:
    few = {"kill": 1.0, "pause": 1.0}
    fewer = {"kill": 1.0, "pause": 3.0}
    before, after = (draw(kinds=kinds, time_limit_ms=300_000) for kinds in (few, fewer))
    assert len(before) == len(after)
    same = [a == b for a, b in zip(before, after, strict=True)]
    changed = [a.kind != b.kind for a, b in zip(before, after, strict=True)]
    assert [not s for s in same] == changed and any(changed) and any(same)


def test_the_order_of_the_weights_says_nothing() -> None:
    forth = {"kill": 1.0, "partition": 2.0, "clock-jump": 0.5}
    assert draw(kinds=forth) == draw(kinds=dict(reversed(forth.items())))


def test_weights_count() -> None:
    kinds = [a.kind for seed in range(100) for a in draw(seed, kinds={"kill": 3, "pause": 1})]
    assert 0.7 < kinds.count("kill") / len(kinds) < 0.8


def test_every_kind_is_drawn_and_the_slots_are_filled() -> None:
    drawn = [a for seed in range(60) for a in draw(seed, promise="anything", kinds=_all())]
    assert {action.kind for action in drawn} == set(FAULTS.names())
    assert {action.jitter_ms > 0 for action in drawn if action.kind in ALL_NODES} == {True}
    overlapping = [
        pair
        for seed in range(20)
        for pair in pairwise(draw(seed, promise="anything", kinds=_all(), duration_ms=(1, 20_000)))
        if end_ms(pair[0]) > pair[1].at_ms
    ]
    assert overlapping


def test_faults_that_wait_for_mirrors_begin_early_in_their_slot() -> None:
    for action in draw(kinds={"kill": 1}, interval_ms=10_000):
        assert (action.at_ms - 2000) % 10_000 <= BEGIN_SHARE * 10_000


def test_all_nodes_count_as_one_where_that_is_promised() -> None:
    kinds = dict.fromkeys((*SINGLE, *ALL_NODES), 1.0)
    drawn = [draw(seed, promise="one-or-all", kinds=kinds) for seed in range(30)]
    of_all = [a for actions in drawn for a in actions if a.kind in ALL_NODES]
    assert {action.kind for action in of_all} == {*ALL_NODES}
    for actions in drawn:
        alone = [action for action in actions if action.kind not in CALM]
        assert all(action.settle for action in alone)
        assert all(end_ms(one) <= other.at_ms for one, other in pairwise(alone))
    with pytest.raises(UsageError, match="the promise one-or-all rules out"):
        draw(promise="one-or-all", targets=("minority",))


def test_corruption_never_meets_a_second_node() -> None:
    for promise in ("one-at-a-time", "anything"):
        for seed in range(20):
            drawn = draw(seed, kinds={"disk-corrupt": 1}, promise=promise, targets=("one",))
            assert len({action.nodes for action in drawn}) == 1 and len(drawn) > 1


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kinds": {"kil": 1}}, "unknown nemesis kil: choose one of partition, "),
        ({"kinds": {"kill": -1}}, "the weight of kill is -1: it must not be below 0"),
        ({"kinds": {"kill-all": 1}}, "kill-all takes every node, which the promise"),
        ({"targets": ("minority",)}, "the target minority may be several nodes"),
        ({"targets": ("n9",)}, "unknown target n9"),
        ({"promise": "nothing"}, "unknown promise nothing: choose one of one-at-a-time, one-or"),
        ({"interval_ms": 500}, "at least 2000 ms apart, not 500"),
        ({"duration_ms": (3, 2)}, "durations above 0, the shorter one first"),
    ],
)
def test_what_cannot_be_drawn_is_refused(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        draw(**more)


def _all() -> dict[str, float]:
    return dict.fromkeys(FAULTS.names(), 1.0)
