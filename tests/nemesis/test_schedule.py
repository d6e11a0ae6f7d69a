"""Schedules: deterministic, within the run, and never two faults that take processes at once."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.nemesis.partitions import seen_by
from shalott.nemesis.record import FAULTS, members, nemesis_names
from shalott.nemesis.requirements import check_actions, required_capabilities
from shalott.nemesis.schedule import MIN_CALM_MS, Rhythm, make_schedule

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")
NEMESES = nemesis_names()
# Without what must be told more than a draw knows.
DRAWN = [name for name in NEMESES if not any(record.must_tell for record in members(name))]
ALL_NODES = [record.name for record in FAULTS.records() if record.hits_all]
PROCESS_KINDS = [record.name for record in FAULTS.records() if record.lane == "process"]
DISK_KINDS = [record.name for record in FAULTS.records() if record.lane == "disk"]


def schedule(*nemeses: str, seed: int = 1, targets: str = "one") -> tuple[FaultAction, ...]:
    return make_schedule(
        nemeses=nemeses, nodes=NODES, time_limit_ms=120_000, targets=targets, seed=seed
    )


def end_ms(action: FaultAction) -> int:
    return action.at_ms + action.duration_ms


@pytest.mark.explore
@settings(max_examples=60)
@given(
    nemeses=st.lists(st.sampled_from(DRAWN), min_size=1, max_size=4, unique=True),
    count=st.integers(3, 7),
    seed=st.integers(0, 2**32),
    targets=st.sampled_from(["one", "minority", "majority", "all", "master", "mirrors", "n2"]),
    interval_ms=st.integers(500, 20_000),
    duration_ms=st.integers(100, 15_000),
    jitter=st.sampled_from([0, 0.25, 0.9]),
)
def test_schedule_properties(
    nemeses: list[str],
    count: int,
    seed: int,
    targets: str,
    interval_ms: int,
    duration_ms: int,
    jitter: float,
) -> None:
    nodes = [f"n{number}" for number in range(1, count + 1)]

    def make() -> tuple[FaultAction, ...]:
        return make_schedule(
            nemeses=nemeses,
            nodes=nodes,
            time_limit_ms=90_000,
            rhythm=Rhythm(
                quiet_ms=3000, interval_ms=interval_ms, duration_ms=duration_ms, jitter=jitter
            ),
            targets=targets,
            seed=seed,
        )

    actions = make()
    assert actions
    assert actions == make()
    assert [action.id for action in actions] == list(range(1, len(actions) + 1))
    assert [a.at_ms for a in actions] == sorted(a.at_ms for a in actions)
    assert all(a.at_ms >= 3000 and a.duration_ms > 0 and end_ms(a) < 90_000 for a in actions)
    taking = [action for action in actions if action.kind in PROCESS_KINDS]
    assert all(after.at_ms - end_ms(a) >= MIN_CALM_MS for a, after in pairwise(taking))
    for action in actions:
        is_role = action.target in ("master", "mirrors")
        assert (action.nodes is None) == is_role
        if FAULTS.find(action.kind).links is not None:
            assert (action.links is None) == is_role
            assert is_role or any(seen_by(n, nodes, action.links or ()) != {*nodes} for n in nodes)
        else:
            assert action.links is None
    check_actions(actions, tuple(nodes))  # what is drawn is never refused
    assert all(msgspec.json.decode(msgspec.json.encode(a), type=FaultAction) == a for a in actions)
    spoilt = [action for action in actions if action.kind in DISK_KINDS]
    assert all(after.at_ms - end_ms(a) >= MIN_CALM_MS for a, after in pairwise(spoilt))


def test_another_seed_is_another_schedule() -> None:
    assert schedule("partition", seed=1) != schedule("partition", seed=2)


def test_another_nemesis_does_not_move_the_first_ones_faults() -> None:
    def cuts(actions: tuple[FaultAction, ...]) -> list[tuple[object, ...]]:
        return [(a.at_ms, a.kind, a.links) for a in actions if a.kind.startswith("partition")]

    assert cuts(schedule("partition")) == cuts(schedule("partition", "kill"))


def test_partition_draws_every_shape() -> None:
    kinds = {a.kind for seed in range(20) for a in schedule("partition", seed=seed)}
    assert kinds == {name for name in NEMESES if name.startswith("partition-")}


def test_two_nodes_get_shapes_that_two_nodes_allow() -> None:
    kinds = {
        action.kind
        for seed in range(30)
        for action in make_schedule(
            nemeses=["partition"], nodes=("n1", "n2"), time_limit_ms=60_000, seed=seed
        )
    }
    assert "partition-bridge" not in kinds
    assert "partition-majorities-ring" not in kinds
    assert "partition-halves" in kinds


def test_kills_of_single_nodes_wait_for_synchronisation_only_when_alone() -> None:
    assert all(action.settle for action in schedule("kill", "stop"))
    assert all(action.settle for action in schedule("kill", targets="master"))
    assert all(action.settle for action in schedule("kill", "power", "disk-error"))
    assert {a.kind: a.settle for a in schedule("power", "clock-jump", "disk-short")} == {
        "power": True,
        "clock-jump": False,
        "disk-short": False,
    }
    assert not any(action.settle for action in schedule("kill", "loss"))
    assert not any(action.settle for action in schedule("power-all"))
    assert not any(action.settle for action in schedule("kill", targets="minority"))
    assert not any(action.settle for action in schedule("kill", "partition"))
    assert not any(action.settle for action in schedule("pause"))


@pytest.mark.parametrize("kind", ALL_NODES)
def test_faults_of_all_nodes_hit_all_with_jitter(kind: str) -> None:
    for action in schedule(kind):
        assert action.nodes == NODES
        assert action.jitter_ms > 0


def test_a_plan_corrupts_one_nodes_disk_only() -> None:
    hit = {
        seed: {a.nodes for a in schedule("disk-corrupt", seed=seed, targets="majority")}
        for seed in range(30)
    }
    assert all(len(nodes) == 1 for nodes in hit.values())
    assert {nodes.pop() for nodes in hit.values()} == {("n1",), ("n2",), ("n3",)}


@pytest.mark.explore
def test_amounts_are_drawn_from_the_kinds_own() -> None:
    for record in FAULTS.records():
        drawn = {a.amount for seed in range(30) for a in schedule(record.name, seed=seed)}
        assert drawn == (set(record.amounts) if record.amounts else {0})


def test_link_faults_touch_the_node_that_they_hit() -> None:
    for action in schedule("loss", "clog-one-way"):
        (hit,) = action.nodes or ()
        others = [node for node in NODES if node != hit]
        outgoing = {(hit, other) for other in others}
        incoming = {(other, hit) for other in others}
        both_ways = outgoing | incoming
        assert set(action.links or ()) == (outgoing if "one-way" in action.kind else both_ways)


def test_durations_are_exact_without_jitter() -> None:
    actions = make_schedule(
        nemeses=["partition-one"],
        nodes=NODES,
        time_limit_ms=40_000,
        rhythm=Rhythm(quiet_ms=5000, interval_ms=30_000, duration_ms=25_000, jitter=0),
        targets="n1",
    )
    assert [(a.at_ms, a.duration_ms, a.nodes) for a in actions] == [(5000, 25_000, ("n1",))]


def test_unknown_nemesis_names_the_known() -> None:
    with pytest.raises(
        UsageError, match="unknown nemesis partitoin: choose one of partition, .*, none"
    ):
        schedule("partitoin")


def test_none_is_no_fault() -> None:
    assert schedule("none") == ()
    assert schedule() == ()


def test_no_room_for_a_single_fault_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves no room for a fault of 5000 ms"):
        make_schedule(nemeses=["kill"], nodes=NODES, time_limit_ms=4000)


def test_capabilities() -> None:
    assert required_capabilities(schedule("kill")) == {"kill"}
    assert required_capabilities(schedule("pause", "restart-all")) == {"pause", "stop"}
    assert required_capabilities(schedule("partition-halves")) == {"cut"}
    assert required_capabilities(schedule("partition-one-way")) == {"cut", "cut-one-way"}
    assert required_capabilities(schedule("power", "power-all")) == {"power"}
    assert required_capabilities(schedule("disk-corrupt")) == {"disk-corrupt", "wipe"}
    assert required_capabilities(schedule("clog-one-way")) == {"throttle"}
    assert required_capabilities(()) == frozenset()


@pytest.mark.parametrize(
    ("targets", "struck"),
    [("one", ("master", None)), ("n2", ("n2", ("n2",))), ("all", ("master", None))],
)
def test_an_operator_gives_a_masters_place_away_unless_a_node_is_named(
    targets: str, struck: tuple[str, tuple[str, ...] | None]
) -> None:
    """Nobody takes the place of a slave: a failover that strikes one is refused."""
    actions = make_schedule(
        nemeses=["failover"], nodes=("n1", "n2", "n3"), time_limit_ms=30_000, targets=targets
    )
    assert {(action.target, action.nodes) for action in actions} == {struck}
