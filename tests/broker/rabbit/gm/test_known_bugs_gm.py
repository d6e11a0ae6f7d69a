"""Known bugs of ring members (KB-RMQ-04, 06, 07, 10), on the machine alone."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.activity import (
    Activity,
    ActivityItem,
    Catchup,
    MemberSnapshot,
    split,
)
from shalott.broker.rabbit.gm.bugs import NO_BUGS, GmBugs, gm_bugs
from shalott.broker.rabbit.gm.group import GroupGone, RecordDead, apply_change
from shalott.broker.rabbit.metadata.records import MemberId
from shalott.broker.rabbit.processes.messages import Pid
from tests.world.rabbit.gm import World

pytestmark = pytest.mark.unit

BOTH = pytest.mark.parametrize("on", [True, False], ids=["on", "off"])


def member(name: str) -> MemberId:
    return MemberId(0, Pid(name, 1, 1))


def pubs(*numbers: int) -> tuple[tuple[int, bytes], ...]:
    return tuple((n, b"%d" % n) for n in numbers)


def ring(names: str, bugs: GmBugs, seed: int = 0) -> World:
    world = World(seed, bugs)
    for name in names:
        world.add(name)
        world.settle()
    return world


def test_the_flags_come_from_the_ids() -> None:
    assert gm_bugs(lambda bug: bug == "KB-RMQ-04") == GmBugs(stops_undrained=True)
    assert gm_bugs(lambda bug: bug == "KB-RMQ-06") == GmBugs(ignores_lost_membership=True)
    assert gm_bugs(lambda bug: bug == "KB-RMQ-07") == GmBugs(strict_common=True)
    assert gm_bugs(lambda bug: bug == "KB-RMQ-10") == GmBugs(missing_group_crash=True)


# -- KB-RMQ-04: the history of rmq#224 -------------------------------------------------------------


@BOTH
def test_04_a_member_stops_before_its_last_words_came_round(on: bool) -> None:
    """The right neighbour of who stops is dead, and no member knows yet: the words went to it."""
    world = ring("abcd", GmBugs(stops_undrained=on))
    stopping = world.nodes["a"]
    right = stopping.member.ring.right.pid.node
    world.broadcast("a", "delete_and_terminate")
    world.feed(stopping, gm.Idle())
    world.feed(stopping, gm.Stop("normal"))
    assert (stopping.stopped == "normal") is on
    world.crash(right)  # with what was sent to it
    world.settle()
    others = [node for name, node in world.nodes.items() if name not in ("a", right)]
    heard = [node.name for node in others if ("a", "delete_and_terminate") in node.delivered]
    assert heard == ([] if on else [node.name for node in others])
    assert stopping.stopped == "normal"


# -- KB-RMQ-06 -------------------------------------------------------------------------------------


@BOTH
def test_06_a_member_that_was_recorded_dead_hears_and_says_what_it_likes(on: bool) -> None:
    world = ring("abc", GmBugs(ignores_lost_membership=on))
    lost = world.nodes["b"]
    world.rows.append(apply_change(RecordDead(lost.member.id, by=None), world.rows[-1]))
    lost.row_index = len(world.rows) - 1
    news = ActivityItem(lost.member.ring.left, pubs(7), ())
    assert lost.member.ring.view is not None
    version = lost.member.ring.view.version
    activity = Activity(lost.member.id, lost.member.ring.left, version, (news,))
    world.feed(lost, gm.Received(activity))
    assert (lost.stopped == "shutdown") is not on
    assert (len(lost.delivered) == 1) is on
    if on:  # until it has to find its place in the ring
        onward = Activity(lost.member.id, lost.member.ring.left, version + 9, ())
        with pytest.raises(KeyError):
            world.feed(lost, gm.Received(onward))
            world.settle()


# -- KB-RMQ-07 -------------------------------------------------------------------------------------


def test_07_the_original_knew_no_holes() -> None:
    assert split(pubs(1, 2, 4), pubs(2, 3, 4)) == ([*pubs(1)], [*pubs(2, 4)], [])
    for a, b in ([[1, 2, 4], [2, 3, 4]], [[2, 3], [2]], [[3], [2, 3]]):
        with pytest.raises(AssertionError, match="case_clause in find_common"):
            split(pubs(*a), pubs(*b), strict=True)
    # What it knew: acks in flight before, news after, nothing at all.
    for a, b in ([[1, 2, 3], [2, 3]], [[2, 3], [2, 3, 4]], [[], [1]], [[1], []], [[1], [2]]):
        assert split(pubs(*a), pubs(*b), strict=True) == split(pubs(*a), pubs(*b))


@BOTH
def test_07_a_member_crashes_on_a_hole_in_its_neighbours_catchup(on: bool) -> None:
    world = ring("ab", GmBugs(strict_common=on))
    node = world.nodes["b"]
    machine, left = node.member, node.member.ring.left
    assert machine.ring.view is not None
    version = machine.ring.view.version
    seen = ActivityItem(left, pubs(1, 2, 3), ())
    world.feed(node, gm.Received(Activity(machine.id, left, version, (seen,))))
    holey = Catchup(machine.id, left, version, (MemberSnapshot(left, pubs(1, 3, 4), 4, 0),))
    if on:
        with pytest.raises(AssertionError, match="case_clause in find_common"):
            world.feed(node, gm.Received(holey))
    else:
        world.feed(node, gm.Received(holey))
        assert node.delivered[-1] == ("a", "4")


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(40))
def test_07_a_ring_without_holes_never_notices(seed: int) -> None:
    """The switch does nothing but in the histories that it is about."""
    world = ring("abcd"[: 2 + seed % 3], GmBugs(strict_common=True), seed)
    for number in range(60):
        names = [node.name for node in world.alive() if node.is_joined]
        world.broadcast(names[number % len(names)], f"m{number}")
        for _ in range(seed % 5):
            world.do_something()
    world.settle()
    assert all(node.stopped is None for node in world.nodes.values())


# -- KB-RMQ-10 -------------------------------------------------------------------------------------


def test_10_a_group_that_is_gone_is_told_from_a_membership_that_is_lost() -> None:
    with pytest.raises(GroupGone):
        apply_change(RecordDead(member("a"), by=None), None)
    with pytest.raises(GroupGone):
        apply_change(RecordDead(member("a"), by=member("b")), None)


@BOTH
def test_10_a_member_does_not_look_for_its_group_before_it_buries(on: bool) -> None:
    world = ring("abc", GmBugs(missing_group_crash=True) if on else NO_BUGS)
    node = world.nodes["a"]
    world.rows.append(None)
    node.row_index = len(world.rows) - 1
    world.feed(node, gm.NeighbourDown("left", node.member.ring.left, "noconnection"))
    assert (node.stopped == "shutdown") is not on
    assert bool(node.timers) is on  # it will ask to record a death in a group that is not there
