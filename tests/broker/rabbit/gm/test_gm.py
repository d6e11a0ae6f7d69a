"""The GM ring: views, catch-up, acknowledgements round the ring, joins and deaths."""

from __future__ import annotations

from collections import deque

import pytest

from shalott.broker.rabbit.gm import member as gm
from shalott.broker.rabbit.gm.activity import MemberState, split
from shalott.broker.rabbit.gm.group import (
    AddMember,
    CreateGroup,
    EraseMembers,
    LostMembership,
    RecordDead,
    apply_change,
    group_to_view,
)
from shalott.broker.rabbit.metadata.records import GroupMember, GroupRow, MemberId
from shalott.broker.rabbit.processes.messages import Pid
from tests.world.rabbit.gm import Node, World

pytestmark = pytest.mark.unit


def member(name: str, version: int = 0) -> MemberId:
    return MemberId(version, Pid(name, 1, 1))


def pubs(*numbers: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in numbers]


def ring(seed: int, names: str) -> World:
    """Members joined one after another; the row's order is the ring's."""
    world = World(seed)
    for name in names:
        world.add(name)
        world.settle()
    return world


def right_of(world: World, name: str) -> str:
    return world.nodes[name].member.ring.right.pid.node


def ring_order(world: World, start: str) -> str:
    order, at = start, right_of(world, start)
    while at != start:
        order += at
        at = right_of(world, at)
    return order


def payloads(node: Node, origin: str) -> list[str]:
    return [payload for source, payload in node.delivered if source == origin]


# -- the group row and the view --------------------------------------------------------------------


def test_dead_members_are_aliases_of_the_next_alive_downstream() -> None:
    a, b, c, d = (member(n) for n in "abcd")
    row = GroupRow(
        name="q",
        version=7,
        members=(GroupMember(a), GroupMember(b, False), GroupMember(c), GroupMember(d, False)),
    )
    view = group_to_view(row)
    assert view.members[c].aliases == (b,)
    assert view.members[a].aliases == (d,)
    assert (view.members[a].left, view.members[a].right) == (c, c)
    assert sorted(view.known()) == sorted([a, b, c, d])


def test_group_changes_grow_the_version_and_refuse_who_is_no_member() -> None:
    a, b, c = (member(n) for n in "abc")
    row = apply_change(CreateGroup("q", a), None)
    row = apply_change(AddMember(a, b), row)
    row = apply_change(AddMember(a, c), row)
    assert [m.id for m in row.members] == [a, c, b]
    assert apply_change(AddMember(a, c), row) is row
    dead = apply_change(RecordDead(c, by=a), row)
    assert dead.version == row.version + 1
    assert apply_change(RecordDead(c, by=b), dead) is dead
    with pytest.raises(LostMembership):
        apply_change(RecordDead(b, by=c), dead)
    erased = apply_change(EraseMembers((c,), by=b), dead)
    assert [m.id for m in erased.members] == [a, b]
    with pytest.raises(LostMembership):
        apply_change(RecordDead(a, by=None), None)


def test_a_group_made_again_never_repeats_a_version() -> None:
    a, b = member("a"), member("b")
    row = apply_change(CreateGroup("q", a), None, floor_version=9)
    assert row.version == 9
    dead = apply_change(RecordDead(a, by=None), row)
    assert apply_change(CreateGroup("q", b), dead).version > dead.version


# -- arithmetic ------------------------------------------------------------------------------------


def test_split_of_overlapping_queues() -> None:
    assert split(pubs(1, 2, 3, 4), pubs(3, 4, 5)) == (pubs(1, 2), pubs(3, 4), pubs(5))
    assert split(pubs(1, 2), []) == (pubs(1, 2), [], [])
    assert split([], pubs(1, 2)) == ([], [], pubs(1, 2))
    assert split(pubs(1, 2), pubs(3, 4)) == (pubs(1, 2), [], pubs(3, 4))


def test_split_tolerates_holes_on_either_side() -> None:
    assert split(pubs(1, 3, 5), pubs(2, 3, 5, 6)) == (pubs(1), pubs(3, 5), pubs(6))
    assert split(pubs(3, 4), pubs(1, 2, 4, 5)) == ([], pubs(4), pubs(5))


def test_numbers_must_grow() -> None:
    state = MemberState()
    state.publish(pubs(0, 1))
    with pytest.raises(AssertionError):
        state.publish(pubs(1))
    state.acknowledge([0])
    with pytest.raises(AssertionError):
        state.acknowledge([0])
    assert list(state.pending) == pubs(1)


# -- worked examples -------------------------------------------------------------------------------


def cut_after(world: World, source: str, target: str) -> None:
    """Throw away what is under way from ``source`` to ``target``."""
    world.links[(source, target)].clear()


def test_each_member_delivers_once_and_all_forget() -> None:
    world = ring(1, "abcd")
    for number in range(5):
        world.broadcast("a", f"a{number}")
        world.broadcast("c", f"c{number}")
    world.settle()
    for node in world.alive():
        assert payloads(node, "a") == [f"a{n}" for n in range(5)]
        assert payloads(node, "c") == [f"c{n}" for n in range(5)]
        assert node.member.publishers.states is not None
        assert all(not state.pending for state in node.member.publishers.states.values())


def test_c_dies_between_b_and_d_after_receiving_so_b_resends_to_d() -> None:
    world = ring(3, "a")
    for name in "dcb":  # each is added on the right of a: the ring is a b c d
        world.nodes[name] = None  # type: ignore[assignment]
        del world.nodes[name]
        world.add(name)
        while world.nodes[name].question is not None:
            node = world.nodes[name]
            if isinstance(node.question, gm.AskToJoin) and node.asked is None:
                node.question = gm.AskToJoin((world.nodes["a"].member.id,))
            assert world.do_something()
        world.settle()
    assert ring_order(world, "a") == "abcd"
    world.broadcast("a", "m")
    a, b, c = (world.nodes[n] for n in "abc")
    world.feed(a, gm.Idle())
    world._do_link(("a", "b"))
    world._do_link(("b", "c"))
    assert payloads(b, "a") == payloads(c, "a") == ["m"]
    world.crash("c", keep={})
    assert payloads(world.nodes["d"], "a") == []
    world.settle()
    assert payloads(world.nodes["d"], "a") == ["m"]
    assert payloads(b, "a") == ["m"]
    assert ring_order(world, "a") == "abd"
    assert all(not s.pending for s in (a.member.publishers.states or {}).values())
    assert ((), ("c",)) in list(world.nodes["d"].changes)


def test_e_joins_between_b_and_c_while_a_message_is_under_way_and_can_replace_b() -> None:
    """E keeps what B had sent on before E came: when B dies, E's neighbour still misses nothing."""
    world = ring(5, "abc")
    order = ring_order(world, "a")
    first, second = order[1], order[2]
    world.broadcast("a", "m")
    world.feed(world.nodes["a"], gm.Idle())
    world._do_link(("a", first))
    assert payloads(world.nodes[first], "a") == ["m"]
    world.add("e")
    node = world.nodes["e"]
    node.question = gm.AskToJoin((world.nodes[first].member.id,))
    in_flight, world.links[(first, second)] = world.links[(first, second)], deque()
    world._do_ask(node)
    world._do_transact(world.nodes[first])
    while world.links[(first, "e")]:
        world._do_link((first, "e"))
    assert node.member.publishers.states is not None
    held = node.member.publishers.states[world.nodes["a"].member.id].pending
    assert [payload for _, payload in held] == [b"m"], "B must send to E what has passed it"
    assert in_flight  # and B's own copy for C is lost together with B:
    world.crash(first, keep={})
    world.settle()
    assert payloads(world.nodes[second], "a") == ["m"]
    assert all(not s.pending for s in (world.nodes["a"].member.publishers.states or {}).values())


def test_confirmed_broadcast_is_answered_when_it_came_round() -> None:
    world = ring(2, "abc")
    world.feed(world.nodes["a"], gm.ConfirmedBroadcast(b"m", 11))
    assert world.nodes["a"].confirmed == []
    world.settle()
    assert world.nodes["a"].confirmed == [11]
    assert all(payloads(node, "a") == ["m"] for node in world.alive())


def test_confirmed_broadcast_is_answered_when_all_others_died() -> None:
    world = ring(2, "ab")
    world.feed(world.nodes["a"], gm.ConfirmedBroadcast(b"m", 11))
    world.crash("b", keep={})
    world.settle()
    assert world.nodes["a"].confirmed == [11]


def test_who_was_recorded_dead_stops_with_shutdown() -> None:
    world = ring(4, "abc")
    world.rows.append(apply_change(RecordDead(world.nodes["b"].member.id, by=None), world.rows[-1]))
    world.broadcast("a", "m")
    world.broadcast("c", "n")
    world.settle()
    assert world.nodes["b"].stopped == "shutdown"
    assert {n.name for n in world.alive()} == {"a", "c"}
    assert payloads(world.nodes["c"], "a") == ["m"]
    assert payloads(world.nodes["a"], "c") == ["n"]


def test_who_is_alone_and_was_recorded_dead_stops_when_it_speaks() -> None:
    """A newcomer that could not reach it made a ring of its own."""
    world = ring(4, "a")
    world.rows.append(apply_change(RecordDead(world.nodes["a"].member.id, by=None), world.rows[-1]))
    world.settle()
    world.feed(world.nodes["a"], gm.ConfirmedBroadcast(b"m", 11))
    assert world.nodes["a"].confirmed == [11]
    assert world.nodes["a"].stopped == "shutdown"
    assert world.nodes["a"].member.ring.is_alone


def test_who_asks_whether_it_is_still_a_member_is_not_content_with_what_its_node_knows() -> None:
    world = ring(4, "a")
    world.feed(world.nodes["a"], gm.CheckMembership())
    world.settle()
    assert world.nodes["a"].stopped is None
    world.rows.append(apply_change(RecordDead(world.nodes["a"].member.id, by=None), world.rows[-1]))
    world.broadcast("a", "m")  # its node has not heard of it
    assert world.nodes["a"].stopped is None
    world.feed(world.nodes["a"], gm.CheckMembership())
    world.settle()
    assert world.nodes["a"].stopped == "shutdown"


def test_a_stop_waits_until_everything_in_flight_has_settled() -> None:
    world = ring(6, "abc")
    world.broadcast("a", "m")
    world.feed(world.nodes["a"], gm.Stop("shutdown"))
    assert world.nodes["a"].stopped is None
    world.broadcast("a", "dropped")
    world.settle()
    assert world.nodes["a"].stopped == "shutdown"
    assert payloads(world.nodes["b"], "a") == payloads(world.nodes["c"], "a") == ["m"]


@pytest.mark.explore
def test_deaths_are_told_after_the_last_words() -> None:
    """Who hears that a member died has delivered all that any survivor has of it."""
    for seed in range(60):
        world = ring(seed, "abcd")
        for number in range(8):
            world.broadcast("a", f"a{number}")
            for _ in range(world.rng.randrange(8)):
                world.do_something()
        told: dict[str, int] = {}
        world.crash("a")
        while True:
            going = world.do_something()
            for node in world.alive():
                if node.name not in told and any("a" in deaths for _, deaths in node.changes):
                    told[node.name] = len(payloads(node, "a"))
                    world.broadcast(node.name, "traffic")  # GM is lazy: news ride on traffic
            if not going:
                break
        assert sorted(told) == ["b", "c", "d"]
        assert {len(payloads(n, "a")) for n in world.alive()} == set(told.values()), seed


def test_a_large_buffer_is_sent_at_once() -> None:
    world = ring(1, "ab")
    node = world.nodes["a"]
    world.feed(node, gm.Broadcast(b"x"))
    assert not world.links[("a", "b")]
    world.feed(node, gm.Broadcast(bytes(gm.BUFFER_BYTES_MAX)))
    assert len(world.links[("a", "b")]) == 1


# -- random histories ------------------------------------------------------------------------------


def wander(world: World, steps: int, crashes: int) -> None:
    """Broadcasts, joins and crashes, in between everything else that can happen."""
    spare = list("ghijkl")
    for number in range(steps):
        draw = world.rng.random()
        alive = world.alive()
        if draw < 0.25:
            name = world.rng.choice(alive).name
            world.broadcast(name, f"{name}{number}")
        elif draw < 0.28 and spare:
            world.add(spare.pop())
        elif draw < 0.30 and crashes and len(alive) > 2:
            crashes -= 1
            world.crash(world.rng.choice(alive).name)
        else:
            world.do_something()


def check_delivery(world: World) -> None:
    survivors = [node for node in world.alive() if node.is_joined]
    for publisher in world.nodes.values():
        position = {payload: i for i, payload in enumerate(publisher.published)}
        heard = {n.name: [position[p] for p in payloads(n, publisher.name)] for n in survivors}
        for node in survivors:
            got = heard[node.name]
            assert got == sorted(dict.fromkeys(got)), f"{node.name} heard {publisher.name} {got}"
            since = node.joined_after.get(publisher.name, 0)
            must = {p for other in heard.values() for p in other if p >= since}
            if publisher in survivors:
                must |= set(range(since, len(publisher.published)))
            missed = must - set(got)
            assert not missed, f"{node.name} missed {publisher.name}'s {sorted(missed)}"


def test_a_neighbours_words_from_an_earlier_time_are_not_heard_again() -> None:
    """A slow link a-b: L joins between them, hands on what a said, and dies; then a's old words
    arrive.
    """
    world = ring(0, "ab")
    a, b = world.nodes["a"], world.nodes["b"]
    world.broadcast("a", "m")
    world.feed(a, gm.Idle())
    world.add("l")
    world.nodes["l"].question = gm.AskToJoin((a.member.id,))
    world._do_ask(world.nodes["l"])
    world._do_transact(a)
    late, world.links[("a", "b")] = world.links[("a", "b")], deque()
    world.settle()
    assert payloads(b, "a") == ["m"]
    world.links[("a", "b")] = late
    world.crash("l")
    world.broadcast("a", "n")
    world.settle()
    assert payloads(b, "a") == ["m", "n"]


def test_a_newcomer_whose_neighbour_dies_before_its_catchup_gives_up() -> None:
    world = ring(0, "abc")
    first = right_of(world, "a")
    world.add("e")
    node = world.nodes["e"]
    node.question = gm.AskToJoin((world.nodes[first].member.id,))
    world._do_ask(node)
    world._do_transact(world.nodes[first])
    world.crash(first, keep={})
    world.settle()
    assert node.stopped == "shutdown"
    assert sorted(n.name for n in world.alive()) == sorted({"a", "b", "c"} - {first})


def test_an_acknowledgement_that_died_with_its_bearer_is_not_waited_for() -> None:
    """b's message has come home, and x, which died, had the acknowledgement. n comes before x is
    buried: it has never known the message, and it is all that is left of the ring besides b.
    """
    world = ring(0, "bx")
    b = world.nodes["b"]
    world.broadcast("b", "m")
    world.feed(b, gm.Idle())
    world._do_link(("b", "x"))
    world._do_link(("x", "b"))
    assert b.member.broadcasts.is_home(0)
    world.crash("x", keep={"b": 1})
    world.add("n")
    world.nodes["n"].question = gm.AskToJoin((b.member.id,))
    world._do_ask(world.nodes["n"])
    world._do_transact(b)
    world.settle()
    assert world.nodes["n"].stopped is None
    for node in (b, world.nodes["n"]):
        world.feed(node, gm.Stop("shutdown"))
        world.settle()
        assert node.stopped == "shutdown"


def check_burials(world: World) -> None:
    """With some traffic, as GM is lazy, each dead member is settled, told and forgotten."""
    for node in world.alive():
        world.broadcast(node.name, "traffic")
    world.settle()
    row = world.rows[-1]
    assert row is not None
    assert [m.id.pid.node for m in row.members if not m.alive] == []


@pytest.mark.explore
@pytest.mark.parametrize("block", range(10))
def test_survivors_agree_whatever_happens(block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        world = ring(seed, "abcdef"[: 2 + seed % 5])
        wander(world, steps=250, crashes=seed % 4)
        world.settle()
        # Only who lost its left neighbour before it took part may have given up.
        assert all(n.stopped is None or not n.joined_after for n in world.nodes.values()), seed
        check_delivery(world)
        for node in world.alive():
            assert not any(s.pending for s in (node.member.publishers.states or {}).values()), seed
        check_burials(world)


def test_a_link_that_loses_a_message_is_noticed() -> None:
    """The check itself can fail: a ring on a lossy link breaks the promise."""
    world = ring(1, "abc")
    world.broadcast("a", "m")
    world.feed(world.nodes["a"], gm.Idle())
    cut_after(world, "a", right_of(world, "a"))
    world.settle()
    with pytest.raises(AssertionError, match="missed"):
        check_delivery(world)


def test_what_comes_by_a_new_link_is_not_taken_for_what_was_lost_with_the_old() -> None:
    """A neighbour whose link broke is buried in a moment; until then it may talk again."""
    for seed in range(20):
        world = ring(seed, "abc")
        left = world.nodes["a"]
        right = world.nodes[right_of(world, "a")]
        world.broadcast("a", "lost")
        world.feed(left, gm.Idle())
        cut_after(world, left.name, right.name)
        world.feed(right, gm.NeighbourDown("left", left.member.id, "noconnection"))
        world.broadcast("a", "late")
        world.feed(left, gm.Idle())
        world.settle()
        for node in world.nodes.values():
            told = payloads(node, "a")
            assert told in ([], ["lost"], ["lost", "late"]), (seed, node.name, told)
