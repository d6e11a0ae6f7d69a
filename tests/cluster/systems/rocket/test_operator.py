"""An operator's failover by hand: whom he promotes, and when he does not dare to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shalott.cluster.systems.rocket import master_slave as rocketmq_operator
from shalott.cluster.systems.rocket.master_slave import fail_over, rejoin
from shalott.core.errors import Definite, Indefinite

pytestmark = pytest.mark.unit

Claims = dict[str, Mapping[str, Any]]


class Nodes:
    """A cluster whose nodes only note what they are told."""

    nodes = ("n1", "n2", "n3")

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.told: list[tuple[str, str, Any]] = []
        self.deaf_for = 0  # so many requests fail

    async def ask(self, node: str) -> Mapping[str, Any]:
        if node not in self.claims:
            raise Indefinite(f"{node} does not answer")
        return self.claims[node]


class Told:
    """Stands for cluster.http.Management."""

    def __init__(self, nodes: Nodes, node: str) -> None:
        self.nodes, self.node = nodes, node

    async def post(self, path: str, body: Any) -> None:
        if self.nodes.deaf_for:
            self.nodes.deaf_for -= 1
            raise Indefinite(f"{self.node} does not answer")
        self.nodes.told.append((self.node, path.rpartition("/")[2], body))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq_operator, "management", Told)
    monkeypatch.setattr(rocketmq_operator, "RETRY_S", 0.001)


def slave(end: int, epoch: int = 4, **more: Any) -> Mapping[str, Any]:
    return {"role": "slave", "end_offset": end, "epoch": epoch, "agreed": True, **more}


def over(claims: Claims) -> tuple[str, list[tuple[str, str, Any]]]:
    nodes = Nodes(claims)
    new = asyncio.run(fail_over(nodes, nodes.ask, "n1", nodes.nodes))  # type: ignore[arg-type]
    return new, nodes.told


@pytest.mark.parametrize(("ends", "chosen"), [((900, 100), "n2"), ((100, 900), "n3")])
def test_the_slave_whose_log_goes_furthest_takes_the_masters_place(
    ends: tuple[int, int], chosen: str
) -> None:
    new, told = over({"n2": slave(ends[0]), "n3": slave(ends[1], epoch=3)})
    (other,) = {"n2", "n3"} - {chosen}
    assert new == chosen
    assert told == [
        (chosen, "promote", {"epoch": 5}),
        (other, "follow", {"master": chosen, "epoch": 5}),
    ]


def test_nodes_without_a_broker_are_not_asked() -> None:
    nodes = Nodes({"n3": slave(100)})  # n2 has no claim to tell
    assert asyncio.run(fail_over(nodes, nodes.ask, "n1", ("n1", "n3"))) == "n3"  # type: ignore[arg-type]
    assert [node for node, _, _ in nodes.told] == ["n3"]


def test_a_slave_that_has_not_agreed_with_its_master_is_left_out() -> None:
    assert over({"n2": slave(900, agreed=False), "n3": slave(100)})[0] == "n3"


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"n2": slave(900)}, "n3 does not answer"),
        ({"n2": slave(1), "n3": {**slave(1), "role": "master"}}, "n3 is the master"),
        ({"n2": slave(1, agreed=False), "n3": slave(1, agreed=False)}, "no slave knows where"),
    ],
)
def test_nobody_is_promoted_when_another_one_may_have_more(claims: Claims, sentence: str) -> None:
    nodes = Nodes(claims)
    with pytest.raises((Definite, Indefinite), match=sentence):
        asyncio.run(fail_over(nodes, nodes.ask, "n1", nodes.nodes))  # type: ignore[arg-type]
    assert nodes.told == []


def test_a_former_master_is_told_until_it_listens() -> None:
    nodes = Nodes({"n2": {"role": "master", "epoch": 5}, "n3": slave(1)})
    nodes.deaf_for = 3
    asyncio.run(rejoin(nodes, nodes.ask, "n1"))  # type: ignore[arg-type]
    assert nodes.told == [("n1", "follow", {"master": "n2", "epoch": 5})]


def test_who_is_the_only_master_stays_it() -> None:
    nodes = Nodes({"n1": {"role": "master", "epoch": 5}, "n2": slave(1), "n3": slave(1)})
    asyncio.run(rejoin(nodes, nodes.ask, "n1"))  # type: ignore[arg-type]
    assert nodes.told == []
