"""The ring with its historical faults switched on, and the same histories without them."""

from __future__ import annotations

from collections import deque

import pytest

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.bugs import NO_BUGS, GmBugs, gm_bugs
from tests.broker.rabbit.gm.test_gm import (
    check_delivery,
    cut_after,
    payloads,
    right_of,
    wander,
)
from tests.world.rabbit.gm import Node, World

pytestmark = pytest.mark.unit


def ring(names: str, bugs: GmBugs, seed: int = 0) -> World:
    world = World(seed, bugs)
    for name in names:
        world.add(name)
        world.settle()
    return world


def join_through(world: World, name: str, left: str) -> Node:
    """``name`` is in the row, on the right of ``left``; the answer and the catchup are under
    way.
    """
    newcomer = world.add(name)
    newcomer.question = gm.AskToJoin((world.nodes[left].member.id,))
    world._do_ask(newcomer)
    world._do_transact(world.nodes[left])
    return newcomer


def drain(world: World, source: str, target: str) -> None:
    """All that is under way from ``source`` arrives."""
    while world.links.get((source, target)):
        world._do_link((source, target))
        if isinstance(world.nodes[target].question, gm.Transact):
            world._do_transact(world.nodes[target])


def test_every_flag_has_an_id() -> None:
    assert gm_bugs(lambda bug: False) == NO_BUGS
    assert gm_bugs(lambda bug: bug == "KB-RMQ-31").blank_member_crash
    assert gm_bugs(lambda bug: bug == "OUR-05").hears_former_neighbours
    assert gm_bugs(lambda bug: bug == "OUR-06").blind_newcomers
    assert gm_bugs(lambda bug: bug == "OUR-10").hears_broken_left


# -- KB-RMQ-31 -------------------------------------------------------------------------------------


def two_join_at_once(bugs: GmBugs) -> Node:
    """m joins between a and n, and the way over m is faster than the one from a to n."""
    world = ring("ab", bugs)
    newcomer = join_through(world, "n", "a")
    join_through(world, "m", "a")
    drain(world, "a", "m")
    drain(world, "m", "n")
    drain(world, "a", "n")
    world.settle()
    world.broadcast("b", "news")
    world.settle()
    return newcomer


def test_kb_rmq_31_a_newcomer_crashes_when_its_ring_changes_before_its_catchup() -> None:
    with pytest.raises(AssertionError, match="badmap"):
        two_join_at_once(GmBugs(blank_member_crash=True))


def test_kb_rmq_31_without_the_switch_it_waits_for_its_catchup() -> None:
    newcomer = two_join_at_once(NO_BUGS)
    assert newcomer.stopped is None
    assert payloads(newcomer, "b") == ["news"]


# -- OUR-05 ----------------------------------------------------------------------------------------


def neighbours_again(bugs: GmBugs) -> Node:
    """A slow link a-b: l joins between them, hands on what a said, and dies; a's old words come."""
    world = ring("ab", bugs)
    world.broadcast("a", "m")
    world.feed(world.nodes["a"], gm.Idle())
    join_through(world, "l", "a")
    late, world.links[("a", "b")] = world.links[("a", "b")], deque()
    world.settle()
    b = world.nodes["b"]
    world.crash("l")
    drain(world, "l", "b")
    for timer in list(b.timers):
        world._do_timer((b, timer))
    world._do_transact(b)
    assert b.member.ring.left == world.nodes["a"].member.id
    world.links[("a", "b")].extendleft(reversed(late))
    drain(world, "a", "b")
    world.broadcast("a", "n")
    world.settle()
    return b


def test_our_05_a_neighbours_words_from_an_earlier_time_break_the_numbers() -> None:
    with pytest.raises(AssertionError, match="pub 0 after 0"):
        neighbours_again(GmBugs(hears_former_neighbours=True))


def test_our_05_without_the_switch_they_are_not_heard_again() -> None:
    assert payloads(neighbours_again(NO_BUGS), "a") == ["m", "n"]


# -- OUR-06 ----------------------------------------------------------------------------------------


def broken_histories(bugs: GmBugs, seeds: range) -> list[int]:
    """Seeds whose random history of broadcasts, joins and crashes breaks the ring."""
    broken = []
    for seed in seeds:
        world = ring("abcdef"[: 2 + seed % 5], bugs, seed)
        try:
            wander(world, steps=250, crashes=seed % 4)
            world.settle()
            check_delivery(world)
        except AssertionError:
            broken.append(seed)
    return broken


@pytest.mark.explore
def test_our_06_blind_newcomers_break_the_ring() -> None:
    assert broken_histories(GmBugs(blind_newcomers=True), range(60))


@pytest.mark.explore
def test_our_06_without_the_switch_they_give_up_and_nothing_breaks() -> None:
    assert not broken_histories(NO_BUGS, range(60))


# -- OUR-10 ----------------------------------------------------------------------------------------


def late_words_by_a_new_link(bugs: GmBugs, seed: int) -> World:
    """a's link to its right neighbour breaks, and is back before either buries the other."""
    world = ring("abc", bugs, seed)
    left, right = world.nodes["a"], world.nodes[right_of(world, "a")]
    world.broadcast("a", "lost")
    world.feed(left, gm.Idle())
    cut_after(world, left.name, right.name)
    world.feed(right, gm.NeighbourDown("left", left.member.id, "noconnection"))
    world.broadcast("a", "late")
    world.feed(left, gm.Idle())
    return world


def with_a_hole(bugs: GmBugs) -> list[int]:
    """The seeds in which a member got the later word and not the one before."""
    worlds = {seed: late_words_by_a_new_link(bugs, seed) for seed in range(20)}
    for world in worlds.values():
        world.settle()
    return [
        seed
        for seed, world in worlds.items()
        if any(payloads(node, "a") == ["late"] for node in world.nodes.values())
    ]


def test_our_10_what_was_lost_with_the_old_link_leaves_a_hole() -> None:
    assert with_a_hole(GmBugs(hears_broken_left=True))


def test_our_10_without_the_switch_nobody_has_a_hole() -> None:
    assert with_a_hole(NO_BUGS) == []


def late_words_to_a_broken_right(bugs: GmBugs, seed: int) -> World:
    """The same, but a alone hears that its link was broken, or not there yet: to its right
    neighbour it looks as if it had been up all the while.
    """
    world = ring("abc", bugs, seed)
    left, right = world.nodes["a"], world.nodes[right_of(world, "a")]
    world.broadcast("a", "lost")
    world.feed(left, gm.Idle())
    cut_after(world, left.name, right.name)
    world.feed(left, gm.NeighbourDown("right", right.member.id, "noconnection"))
    world.broadcast("a", "late")
    world.feed(left, gm.Idle())
    return world


def holes_beyond_a_broken_right(bugs: GmBugs) -> list[int]:
    worlds = {seed: late_words_to_a_broken_right(bugs, seed) for seed in range(20)}
    for world in worlds.values():
        world.settle()
    return [
        seed
        for seed, world in worlds.items()
        if any(payloads(node, "a") == ["late"] for node in world.nodes.values())
    ]


def test_our_10_a_broken_right_neighbour_is_told_more() -> None:
    assert holes_beyond_a_broken_right(GmBugs(hears_broken_left=True))


def test_our_10_without_the_switch_it_is_told_no_more() -> None:
    """Found by restarts of all nodes: one end had a link and the other had not yet."""
    assert holes_beyond_a_broken_right(NO_BUGS) == []
