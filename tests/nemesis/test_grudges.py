"""Each shape of partition has the property that gives it its name, for every seed and size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.core.errors import UsageError
from shalott.core.rng import Stream
from shalott.nemesis import partitions as grudges

pytestmark = pytest.mark.unit

SEEDS = st.integers(0, 2**32)


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def sides(nodes: list[str], links: grudges.Links) -> list[frozenset[str]]:
    return sorted({grudges.seen_by(node, nodes, links) for node in nodes}, key=sorted)


def is_symmetric(links: grudges.Links) -> bool:
    return set(links) == {(b, a) for a, b in links}


def test_halves_of_five_cut_the_first_two_off() -> None:
    nodes = names(5)
    links = grudges.halves(nodes)
    assert sides(nodes, links) == [frozenset(nodes[:2]), frozenset(nodes[2:])]
    assert len(links) == 2 * 2 * 3


@given(st.integers(2, 9), SEEDS)
def test_random_halves_are_two_disjoint_sides(count: int, seed: int) -> None:
    nodes = names(count)
    links = grudges.random_halves(nodes, Stream(seed))
    small, large = sorted(sides(nodes, links), key=len)
    assert small | large == set(nodes)
    assert not small & large
    assert len(small) == count // 2
    assert is_symmetric(links)


def test_random_halves_vary_with_the_seed() -> None:
    nodes = names(5)
    assert len({grudges.random_halves(nodes, Stream(seed)) for seed in range(50)}) == 10


@given(st.integers(3, 11), SEEDS)
def test_majorities_ring_shows_everyone_another_majority(count: int, seed: int) -> None:
    nodes = names(count)
    links = grudges.majorities_ring(nodes, Stream(seed))
    views = [grudges.seen_by(node, nodes, links) for node in nodes]
    assert all(len(view) > count / 2 for view in views)
    assert len(set(views)) == count
    assert is_symmetric(links)
    assert links


@given(st.sampled_from([4, 5]), SEEDS)
def test_majorities_ring_is_exact_up_to_five_nodes(count: int, seed: int) -> None:
    nodes = names(count)
    links = grudges.majorities_ring(nodes, Stream(seed))
    assert all(len(grudges.seen_by(node, nodes, links)) == 3 for node in nodes)


@given(st.integers(3, 9), SEEDS)
def test_bridge_joins_two_halves_by_one_node(count: int, seed: int) -> None:
    nodes = names(count)
    links = grudges.bridge(nodes, Stream(seed))
    views = {node: grudges.seen_by(node, nodes, links) for node in nodes}
    bridges = [node for node in nodes if views[node] == set(nodes)]
    assert len(bridges) == 1
    left, right = sorted({views[n] - set(bridges) for n in nodes if n not in bridges}, key=len)
    assert left | right | set(bridges) == set(nodes)
    assert not left & right
    assert len(right) - len(left) <= 1


@given(st.integers(2, 7), SEEDS)
def test_isolate_leaves_the_node_alone(count: int, seed: int) -> None:
    nodes = names(count)
    alone = Stream(seed).choice(nodes)
    links = grudges.isolate(nodes, [alone])
    assert grudges.seen_by(alone, nodes, links) == {alone}
    assert all(alone not in grudges.seen_by(n, nodes, links) for n in nodes if n != alone)
    assert len(links) == 2 * (count - 1)


def test_one_way_silences_and_does_not_deafen() -> None:
    nodes = names(3)
    links = grudges.one_way(nodes, ["n1"])
    assert links == (("n1", "n2"), ("n1", "n3"))
    assert grudges.seen_by("n1", nodes, links) == set(nodes)
    assert grudges.seen_by("n2", nodes, links) == {"n2", "n3"}


def test_shapes_that_need_more_nodes_say_so() -> None:
    with pytest.raises(UsageError, match="needs at least 3 nodes, there are 2"):
        grudges.bridge(names(2), Stream(1))
    with pytest.raises(UsageError, match="needs at least 3 nodes"):
        grudges.majorities_ring(names(2), Stream(1))
    with pytest.raises(UsageError, match="leaves no node"):
        grudges.isolate(names(2), names(2))
