"""What came after what: at one node, by way of messages, and not from too long ago."""

from __future__ import annotations

import pytest

from shalott.cluster.sim.loop.order import WINDOW_NS, Order
from tests.world.network.hosts import World

pytestmark = pytest.mark.unit


class Clock:
    now_ns = 0


def test_pairs_are_of_one_node_or_by_a_message() -> None:
    order = Order(Clock())
    order.happened("n1", "votes")
    order.happened("n2", "leads")
    order.heard("n2", order.told("n1"))
    order.happened("n2", "appends")
    order.happened("n1", "syncs")  # no message came from n2
    assert set(order.pairs()) == {
        *(("", kind) for kind in ("votes", "leads", "appends", "syncs")),
        ("votes", "appends"),
        ("leads", "appends"),
        ("votes", "syncs"),
    }


def test_what_is_long_ago_is_no_cause() -> None:
    clock = Clock()
    order = Order(clock)
    order.happened("n1", "votes")
    clock.now_ns += WINDOW_NS
    order.happened("n1", "leads")
    clock.now_ns += 2 * WINDOW_NS
    order.happened("n1", "appends")
    assert [pair for pair in order.pairs() if pair[0]] == [("votes", "leads")]


def test_clients_carry_nothing_from_node_to_node() -> None:
    order = Order(Clock())
    order.happened("n1", "acks")
    order.heard("client", order.told("n1"))
    order.happened("n2", "starts")
    order.heard("n2", order.told("client"))
    order.happened("n2", "leads")
    assert ("acks", "leads") not in set(order.pairs())


def test_a_message_takes_along_what_had_happened_when_it_was_sent() -> None:
    world = World()
    order = world.network.order = Order(world.loop)

    async def main() -> None:
        joined = await world.join("a", "b")
        order.happened("b", "starts")
        order.happened("a", "before")
        joined.near.transport.write(b"x")
        order.happened("a", "after")
        await joined.far.has(1)
        order.happened("b", "hears")

    world.run(main())
    pairs = set(order.pairs())
    assert ("before", "hears") in pairs and ("after", "hears") not in pairs
