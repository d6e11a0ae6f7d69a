"""Nodes by name in what operators are told, as far as names are certain."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.broker.rocket.node.management import named, with_names

pytestmark = pytest.mark.unit

BROKERS = ("n1", "n2", "n3")


def link(addr: str, **more: Any) -> dict[str, Any]:
    return {"addr": addr, "diff": 0, **more}


def slaves(*links: dict[str, Any], brokers: tuple[str, ...] = BROKERS) -> list[str]:
    status = {"master": True, "haConnectionInfo": list(links)}
    told = with_names(status, "n1", brokers, lambda address: "")
    assert told["node"] == "n1" and told["master"] is True
    return [one["slave"] for one in told["haConnectionInfo"]]


def test_an_address_of_its_own_names_a_slave() -> None:
    assert slaves(link("10.0.0.3:99", slave="n3"), link("10.0.0.2:98", slave="n2")) == ["n3", "n2"]


def test_a_system_that_knows_names_keeps_them() -> None:
    assert slaves(link("n2"), link("n3")) == ["n2", "n3"]


def test_who_is_left_over_is_the_slave_on_a_shared_host() -> None:
    shared = link("127.0.0.1:4001", slave="127.0.0.1:4001")
    assert slaves(shared, brokers=("n1", "n2")) == ["n2"]
    assert slaves(link("10.0.0.3:99", slave="n3"), shared) == ["n3", "n2"]


def test_of_several_on_one_host_it_is_said_who_each_may_be() -> None:
    addresses = [f"127.0.0.1:{port}" for port in (4001, 4002)]
    assert slaves(*(link(at, slave=at) for at in addresses)) == ["n2 or n3", "n2 or n3"]


def test_a_stranger_keeps_its_address() -> None:
    stray = link("127.0.0.1:4001", slave="127.0.0.1:4001")
    assert slaves(link("a", slave="n2"), link("b", slave="n3"), stray)[2] == "127.0.0.1:4001"


def test_a_slave_that_came_again_is_one() -> None:
    again = [link(f"10.0.0.2:{port}", slave="n2", diff=port) for port in (1, 2)]
    assert slaves(*again, link("10.0.0.3:9", slave="n3")) == ["n2", "n3"]
    silent = [link(f"127.0.0.1:{port}", slave=f"127.0.0.1:{port}") for port in (1, 2, 3)]
    assert slaves(*silent) == ["n2 or n3", "n2 or n3"]
    told = with_names(
        {"master": True, "haConnectionInfo": silent[:2]}, "n1", ("n1", "n2"), lambda _: ""
    )
    assert [(one["addr"], one["slave"]) for one in told["haConnectionInfo"]] == [
        ("127.0.0.1:2", "n2")  # what it says now
    ]


def test_a_slave_tells_its_master_by_name() -> None:
    status = {
        "master": False,
        "haConnectionInfo": [],
        "haClientRuntimeInfo": {"masterAddr": "127.0.0.1:7", "maxOffset": 5},
    }
    names = {"127.0.0.1:7": "n1"}
    told = with_names(status, "n2", BROKERS, lambda address: names.get(address, ""))
    assert told["haClientRuntimeInfo"] == {
        "master": "n1", "masterAddr": "127.0.0.1:7", "maxOffset": 5,
    }  # fmt: skip
    alone = with_names({**status, "haClientRuntimeInfo": None}, "n2", BROKERS, names.__getitem__)
    assert alone["haClientRuntimeInfo"] is None


def test_the_synchronised_are_named_when_they_are_all_there_can_be() -> None:
    assert named(["127.0.0.1:1", "127.0.0.1:2"], ["n2", "n3"]) == ["n2", "n3"]
    assert named(["127.0.0.1:1"], ["n2", "n3"]) == []
    assert named(["n3"], ["n2", "n3"]) == ["n3"]
