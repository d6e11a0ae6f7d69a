"""When a group of brokers is at rest, and what it is waiting for else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shalott.cluster.systems.rocket.settling import await_settled, why_unsettled
from tests.world.clock import virtual

pytestmark = pytest.mark.unit

Seen = dict[str, dict[str, Any] | None]


def claim(role: str, **more: Any) -> dict[str, Any]:
    own = {"group": "shalott", "role": role, "epoch": 3, "master": "n1", "state": "running"}
    return {**own, "synchronised": ["n2", "n3"], "end_offset": 90, "readable_offset": 90, **more}


def observation(role: str, **more: Any) -> dict[str, Any]:
    return {
        "status": "running", "running": ["n1", "n2", "n3"], "partitions": [],
        "registered": ["n1", "n2", "n3"], "services": ["broker", "nameserver", "controller"],
        "claims": [claim(role, **more)], "controller": {"role": "follower", "leader": "n2"},
    }  # fmt: skip


def good() -> Seen:
    return {"n1": observation("master"), "n2": observation("slave"), "n3": observation("slave")}


def test_a_name_server_that_does_not_know_its_own_nodes_broker_yet_is_told() -> None:
    seen = good()
    seen["n1"] = {**(seen["n1"] or {}), "registered": ["n2", "n3"]}
    assert why_unsettled(seen) == "the name server of n1 does not know n1"


def with_claim(node: str, **fields: Any) -> Seen:
    seen = good()
    found = seen[node]
    assert found is not None
    found["claims"] = [{**found["claims"][0], **fields}]
    return seen


def with_fields(node: str, **fields: Any) -> Seen:
    seen = good()
    seen[node] = {**(seen[node] or {}), **fields}
    return seen


def test_one_master_that_all_follow_is_at_rest() -> None:
    assert why_unsettled(good()) == ""


WAITING: dict[str, tuple[Seen, str]] = {
    "silent": ({**good(), "n2": None}, "n2 can't be asked"),
    "booting": (with_fields("n3", status="booting"), "n3 is booting"),
    "no broker": (with_fields("n3", claims=[]), "n3 has no broker yet"),
    "no master": (with_claim("n1", role="none"), "no node is the master"),
    "two masters": (with_claim("n2", role="master"), "n1 and n2 are the master"),
    "a master that is not ready": (with_claim("n1", state="waking"), "the master n1 is waking"),
    "no role": (with_claim("n2", role="none", master=""), "n2 is none and follows no node"),
    "another master": (with_claim("n2", master="n3"), "n2 is slave and follows n3"),
    "an old epoch": (with_claim("n2", epoch=2), "n2 follows in epoch 2, not 3"),
    "not in the set": (with_claim("n1", synchronised=["n2"]), "n3 is not synchronised"),
    "behind": (
        with_claim("n3", end_offset=70), "n3's end offset is 70, and the master's log ended at 90",
    ),
    "unread": (
        with_claim("n3", readable_offset=0),
        "n3's readable offset is 0, and the master's log ended at 90",
    ),
    "unread at the master": (
        with_claim("n1", readable_offset=80),
        "n1's readable offset is 80, and the master's log ended at 90",
    ),
    "an unknown broker": (
        with_fields("n2", registered=["n1", "n2"]), "the name server of n2 does not know n3",
    ),
    "no leader": (
        with_fields("n2", controller={"leader": ""}), "the controller of n2 knows no leader",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITING)
def test_what_is_missing_is_told(case: str) -> None:
    seen, reason = WAITING[case]
    assert why_unsettled(seen) == reason


SERVERS = ["nameserver", "controller"]


def laid_out() -> Seen:
    """Brokers on nodes of their own; each knows of itself alone who runs, as no name server is
    there."""
    brokers: Seen = {}
    for node, role in (("n1", "master"), ("n2", "slave"), ("n3", "slave")):
        brokers[node] = {**observation(role), "services": ["broker"], "running": [node]}
        del brokers[node]["controller"], brokers[node]["registered"]
    server = {**observation("none"), "services": SERVERS, "claims": []}
    return {**brokers, "n4": server, "n5": dict(server)}


def test_of_a_node_that_is_asked_which_goes_with_what_it_hosts() -> None:
    assert why_unsettled(laid_out()) == ""


@pytest.mark.parametrize(
    ("node", "fields", "reason"),
    [
        ("n2", {"claims": []}, "n2 has no broker yet"),
        ("n5", {"registered": ["n1", "n3"]}, "the name server of n5 does not know n2"),
        ("n4", {"controller": {"leader": ""}}, "the controller of n4 knows no leader"),
        ("n4", {"status": "booting"}, "n4 is booting"),
        ("n3", {"claims": [claim("slave", end_offset=1)]}, "n3's end offset is 1, and"),
    ],
)
def test_what_is_missing_on_nodes_of_their_own_is_told(
    node: str, fields: dict[str, Any], reason: str
) -> None:
    seen = laid_out()
    seen[node] = {**(seen[node] or {}), **fields}
    assert why_unsettled(seen).startswith(reason)


def test_groups_without_epochs_have_none_to_compare() -> None:
    seen = {node: observation("slave", epoch=0) for node in ("n2", "n3")}
    assert why_unsettled({"n1": observation("master", epoch=0), **seen}) == ""


class Watched:
    """A group that shows another picture at each look."""

    def __init__(self, look: Callable[[int], Mapping[str, Any]]) -> None:
        self.looks = 0
        self._look = look

    async def observe(self, node: str) -> Mapping[str, Any]:
        if node == "n1":
            self.looks += 1
        found: Mapping[str, Any] = self._look(self.looks)[node]
        return found


def settle(watched: Watched, timeout_ms: int = 20_000) -> str:
    return virtual.run(await_settled(watched.observe, ("n1", "n2", "n3"), timeout_ms))


def under_load(looks_behind: float) -> Watched:
    """The master goes on by 100 at each look, and its slaves are so many looks behind."""

    def look(number: int) -> Mapping[str, Any]:
        at = int(100 * max(0, number - looks_behind))
        behind = dict.fromkeys(("end_offset", "readable_offset"), at)
        ahead = dict.fromkeys(("end_offset", "readable_offset"), 100 * number)
        slave = observation("slave", **behind)
        return {"n1": observation("master", **ahead), "n2": slave, "n3": slave}

    return Watched(look)


@pytest.mark.parametrize(("looks_behind", "looks"), [(1, 3), (2.5, 5), (3, 5)])
def test_under_load_slaves_follow_what_the_master_had_a_few_looks_before(
    looks_behind: float, looks: int
) -> None:
    watched = under_load(looks_behind)
    assert settle(watched) == ""
    assert watched.looks == looks


def test_slaves_that_are_further_behind_have_something_to_catch_up_with() -> None:
    assert "the master's log ended at" in settle(under_load(4), 3000)


def test_a_slave_that_stands_still_is_not_at_rest() -> None:
    def look(number: int) -> Mapping[str, Any]:
        return with_claim("n3", end_offset=10)

    assert settle(Watched(look), 600) == "n3's end offset is 10, and the master's log ended at 90"
