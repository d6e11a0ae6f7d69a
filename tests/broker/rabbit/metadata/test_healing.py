"""Autoheal's choice of a winner."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.metadata.membership import Side, choose_winner, is_majority, sides_of

pytestmark = pytest.mark.unit


def test_nodes_that_count_each_other_form_a_side() -> None:
    members = {"n1": ("n1",), "n2": ("n2", "n3"), "n3": ("n2", "n3")}
    sides = sides_of(members, {"n1": 5, "n2": 1, "n3": 2})
    assert sides == [Side(("n1",), 5), Side(("n2", "n3"), 3)]


def test_a_one_sided_belief_does_not_make_a_side() -> None:
    sides = sides_of({"n1": ("n1", "n2"), "n2": ("n2",)}, {"n1": 0, "n2": 0})
    assert sides == [Side(("n1",), 0), Side(("n2",), 0)]


@pytest.mark.parametrize(
    ("sides", "winner"),
    [
        ([Side(("n1",), 5), Side(("n2", "n3"), 3)], ("n1",)),  # clients first
        ([Side(("n1",), 3), Side(("n2", "n3"), 3)], ("n2", "n3")),  # then nodes
        ([Side(("n2",), 3), Side(("n1",), 3)], ("n1",)),  # then the name
    ],
)
def test_the_winner_has_most_clients_then_most_nodes(
    sides: list[Side], winner: tuple[str, ...]
) -> None:
    assert choose_winner(sides).nodes == winner


def test_half_of_the_nodes_is_no_majority() -> None:
    assert [is_majority(count, 4) for count in (1, 2, 3)] == [False, False, True]
    assert not is_majority(1, 2)
    assert is_majority(1, 1)
