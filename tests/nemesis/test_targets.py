"""Targets: counts are drawn when planning, roles from what the nodes say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shalott.core.errors import UsageError
from shalott.core.rng import Stream
from shalott.nemesis.targets import check_target, draw_nodes, is_single, role_nodes

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3", "n4", "n5")


def claim(group: str, role: str, epoch: int = 1) -> dict[str, Any]:
    return {"group": group, "role": role, "epoch": epoch}


@pytest.mark.parametrize(
    ("target", "count"), [("one", 1), ("minority", 2), ("majority", 3), ("all", 5)]
)
def test_counts_of_five_nodes(target: str, count: int) -> None:
    for seed in range(20):
        drawn = draw_nodes(target, NODES, Stream(seed))
        assert len(set(drawn)) == count
        assert list(drawn) == sorted(drawn)


def test_minority_of_two_is_one_node() -> None:
    assert len(draw_nodes("minority", ("n1", "n2"), Stream(1))) == 1


def test_one_hits_every_node_sooner_or_later() -> None:
    assert {draw_nodes("one", NODES, Stream(seed)) for seed in range(60)} == {(n,) for n in NODES}


def test_names_are_taken_as_they_are() -> None:
    assert draw_nodes("n4+n2", NODES, Stream(1)) == ("n2", "n4")


def test_unknown_target_names_what_there_is() -> None:
    with pytest.raises(UsageError, match="n9: one, minority, .* controller, there, or nodes"):
        check_target("n9", NODES)
    check_target("n1+n5", NODES)
    check_target("mirrors", NODES)


def test_single_targets() -> None:
    assert is_single("one") and is_single("master") and is_single("n1")
    assert not is_single("n1+n2") and not is_single("minority") and not is_single("mirrors")


def test_master_and_mirrors_are_of_one_drawn_queue() -> None:
    answers: Mapping[str, Mapping[str, Any]] = {
        "n1": {"claims": [claim("q1", "master"), claim("q2", "mirror")]},
        "n2": {"claims": [claim("q1", "mirror"), claim("q2", "master")]},
        "n3": {"claims": [claim("q1", "mirror"), claim("q2", "none")]},
        "n4": {},
    }
    assert {role_nodes("master", answers, Stream(s)) for s in range(20)} == {("n1",), ("n2",)}
    assert {role_nodes("mirrors", answers, Stream(s)) for s in range(20)} == {("n1",), ("n2", "n3")}


def test_of_two_masters_the_later_epoch_is_taken() -> None:
    answers = {
        "n1": {"claims": [claim("q", "master", 3)]},
        "n2": {"claims": [claim("q", "master", 7)]},
    }
    assert role_nodes("master", answers, Stream(1)) == ("n2",)


def test_nobody_claims_a_role() -> None:
    assert role_nodes("master", {"n1": {"claims": [claim("q", "mirror")]}}, Stream(1)) == ()


def test_slaves_are_who_copies_a_master() -> None:
    answers: Mapping[str, Mapping[str, Any]] = {
        "n1": {"claims": [claim("shalott", "slave")]},
        "n2": {"claims": [claim("shalott", "master", 4)]},
        "n3": {"claims": [claim("shalott", "slave")]},
    }
    assert role_nodes("slaves", answers, Stream(1)) == ("n1", "n3")
    assert role_nodes("mirrors", answers, Stream(1)) == ("n1", "n3")
    assert role_nodes("master", answers, Stream(1)) == ("n2",)


def test_the_controller_is_the_one_that_leads_in_the_latest_term() -> None:
    answers: Mapping[str, Mapping[str, Any]] = {
        "n1": {"claims": [], "controller": {"role": "leader", "epoch": 2}},
        "n2": {"claims": [], "controller": {"role": "leader", "epoch": 3}},
        "n3": {"claims": [], "controller": {"role": "follower", "epoch": 3}},
    }
    assert role_nodes("controller", answers, Stream(1)) == ("n2",)
    assert role_nodes("controller", {"n1": {"claims": []}}, Stream(1)) == ()
    assert is_single("controller") and not is_single("slaves")


def test_roles_are_found_where_brokers_and_controllers_have_nodes_of_their_own() -> None:
    answers: Mapping[str, Mapping[str, Any]] = {
        "n1": {"claims": [claim("shalott", "slave", 4)]},
        "n2": {"claims": [claim("shalott", "master", 4)]},
        "n3": {"claims": []},  # a name server
        "n4": {"claims": [], "controller": {"role": "follower", "epoch": 9}},
        "n5": {"claims": [], "controller": {"role": "leader", "epoch": 9}},
    }
    assert role_nodes("master", answers, Stream(1)) == ("n2",)
    assert role_nodes("slaves", answers, Stream(1)) == ("n1",)
    assert role_nodes("controller", answers, Stream(1)) == ("n5",)
