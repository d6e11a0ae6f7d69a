"""Counted cuts, and which side an operator keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.cluster.cut_counts import LinkCounts
from shalott.cluster.systems.settling import is_known, nodes_to_restart

pytestmark = pytest.mark.unit

AB, BA = ("a", "b"), ("b", "a")


def test_a_link_is_whole_when_as_many_mends_as_cuts_have_come() -> None:
    counts = LinkCounts()
    counts.cut([AB, BA])
    counts.cut([AB])
    counts.mend([AB, BA])
    assert counts.cut_links() == (AB,)
    counts.mend([AB])
    assert counts.cut_links() == ()


def test_a_mend_after_a_heal_does_not_weaken_the_next_cut() -> None:
    counts = LinkCounts()
    counts.cut([AB])
    counts.clear()
    counts.mend([AB])
    counts.cut([AB])
    assert counts.is_cut(*AB)


def test_a_node_cannot_be_cut_from_itself() -> None:
    with pytest.raises(AssertionError):
        LinkCounts().cut([("a", "a")])


@given(st.lists(st.sampled_from([(+1, AB), (-1, AB), (+1, BA), (-1, BA)])))
def test_counts_never_fall_below_nothing(steps: list[tuple[int, tuple[str, str]]]) -> None:
    counts, expected = LinkCounts(), {AB: 0, BA: 0}
    for sign, link in steps:
        (counts.cut if sign > 0 else counts.mend)([link])
        expected[link] = max(0, expected[link] + sign)
        assert counts.cut_links() == tuple(link for link, count in expected.items() if count)


@pytest.mark.parametrize(
    ("partitions", "restarted"),
    [
        ({}, ()),
        ({"n1": [], "n2": [], "n3": []}, ()),
        ({"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}, ("n1",)),
        ({"n3": ["n1", "n2"]}, ("n3",)),
        # A bridge: n2 gets on with both, who don't get on with each other.
        ({"n1": ["n3"], "n3": ["n1"]}, ("n3",)),
        ({"n1": ["n2", "n3"], "n2": ["n1", "n3"], "n3": ["n1", "n2"]}, ("n2", "n3")),
    ],
)
def test_the_largest_side_is_kept(
    partitions: dict[str, list[str]], restarted: tuple[str, ...]
) -> None:
    assert nodes_to_restart(("n3", "n1", "n2"), partitions) == restarted


def test_halves_of_five_keep_the_three() -> None:
    left, right = ["a", "b"], ["c", "d", "e"]
    partitions = dict.fromkeys(left, right) | dict.fromkeys(right, left)
    assert nodes_to_restart(left + right, partitions) == ("a", "b")


def test_it_is_known_when_each_node_runs_with_or_is_parted_from_each_other() -> None:
    nodes = ("a", "b")
    assert is_known(nodes, {"a": ["a", "b"], "b": ["a", "b"]}, {})
    assert is_known(nodes, {"a": ["a"], "b": ["b"]}, {"a": ["b"], "b": ["a"]})
    assert not is_known(nodes, {"a": ["a"], "b": ["b"]}, {"a": ["b"]})
    assert not is_known(nodes, {"a": ["a", "b"]}, {})
