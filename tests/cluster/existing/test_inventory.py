"""The inventory of a cluster that stands already: what it says, what it must say, and what may be
broken by it."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.existing.inventory import (
    ContainerOfProject,
    client_endpoint,
    completed,
    hosts_of,
    kind_of,
    read_inventory,
)
from shalott.cluster.nodes import Endpoint
from shalott.core.errors import UsageError
from shalott.core.plan import ExistingNode, ExistingPlan, FaultAction
from shalott.nemesis.permission import allowed_nodes, spared
from shalott.nemesis.schedule import Rhythm, make_schedule

pytestmark = pytest.mark.unit

HOST = 'ssh = { address = "192.0.2.11", key = "id" }\nunit = "redis.service"\n'


def read(directory: Path, text: str) -> ExistingPlan:
    path = directory / "inventory.toml"
    path.write_text(text)
    return read_inventory(path)


def none_of(project: str) -> list[ContainerOfProject]:
    return []


def test_hosts_have_what_is_said_of_all_of_them(tmp_path: Path) -> None:
    plan = read(tmp_path, f'[ssh]\nuser = "me"\nsudo = true\n[nodes.n1]\n{HOST}')
    host = hosts_of(plan)["n1"]
    assert (host.user, host.sudo, host.address) == ("me", True, "192.0.2.11")
    assert host.key == str(tmp_path / "id")
    assert kind_of(plan) == "hosts"


def test_the_containers_of_a_project_are_its_nodes(tmp_path: Path) -> None:
    plan = read(tmp_path, 'project = "shop"\nservices = ["db", "web"]\ndata = "/data"\n')
    there = [
        ContainerOfProject("shop_web_1", "web", 1),
        ContainerOfProject("shop_db_2", "db", 2),
        ContainerOfProject("shop_db_1", "db", 1),
        ContainerOfProject("shop_mail_1", "mail", 1),
    ]
    nodes = completed(plan, lambda project: there if project == "shop" else []).nodes
    assert {name: node.container for name, node in nodes.items()} == {
        "db-1": "shop_db_1",
        "db-2": "shop_db_2",
        "web": "shop_web_1",
    }
    assert {node.data for node in nodes.values()} == {"/data"}


def test_a_service_that_is_not_there_is_named(tmp_path: Path) -> None:
    plan = read(tmp_path, 'project = "shop"\nservices = ["db"]\n')
    with pytest.raises(UsageError, match="no container of db"):
        completed(plan, none_of)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "give a table"),
        ("[nodes.n1]\n", "one of container, label and service"),
        ('[nodes.n1]\ncontainer = "a"\nlabel = "b=c"\n', "one of container, label and service"),
        ('[nodes.n1]\nservice = "a"\n', "name the compose project"),
        ('[nodes.n1]\nlabel = "a"\n', "KEY=VALUE"),
        ('[nodes.n1]\nssh = { address = "192.0.2.1" }\n', "its unit, or the commands"),
        (
            '[nodes.n1]\nssh = { address = "192.0.2.1" }\nstart = "a"\nstop = "b"\n',
            "its unit, or the commands",
        ),
        (f'[nodes.n1]\n{HOST}[nodes.n2]\ncontainer = "a"\n', "all containers or all hosts"),
        (f"[nodes.n1]\n{HOST}[nodes.n2]\n{HOST}", "named twice"),
        ('project = "a"\nlease_s = 1\n', "lease_s must be"),
        ('project = "a"\nports = { redis = "here" }\n[nodes.n1]\nservice = "b"\n', "neither"),
        ('project = "a"\nmay_brake = true\n', "may_brake"),
        ("[nodes", "is no inventory"),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


def test_clients_reach_ports_where_the_inventory_says() -> None:
    nodes = {
        "n1": ExistingNode(container="a", ports={"redis": "192.0.2.9:7001"}),
        "n2": ExistingNode(container="b"),
        "n3": ExistingNode(container="c", ports={"redis": "[::1]:7003"}),
    }
    plan = ExistingPlan(nodes=nodes, ports={"redis": "7000"})

    def at(node: str, port: str) -> Endpoint:
        return client_endpoint(plan, node, port, "10.0.0.1", 6379)

    assert at("n1", "redis") == Endpoint("192.0.2.9", 7001)
    assert at("n2", "redis") == Endpoint("10.0.0.1", 7000)
    assert at("n3", "redis") == Endpoint("::1", 7003)
    assert at("n2", "other") == Endpoint("10.0.0.1", 6379)


NODES = ("n1", "n2", "n3", "n4")
KINDS = ("kill", "pause", "partition", "delay", "client-cut", "kill-all", "corrupt-files")


def of(**faults: tuple[str, ...] | None) -> ExistingPlan:
    """An inventory of four nodes; None: what holds for all, which is kill and partition."""
    nodes = {
        name: ExistingNode(
            container=name, faults=msgspec.UNSET if faults.get(name) is None else faults[name] or ()
        )
        for name in NODES
    }
    return ExistingPlan(nodes=nodes, faults=("kill", "partition"))


def test_a_node_meets_what_it_may_by_name_or_by_group() -> None:
    plan = of(n1=(), n2=("pause",))
    assert allowed_nodes(plan, NODES, "kill") == ("n3", "n4")
    assert allowed_nodes(plan, NODES, "pause") == ("n2",)
    assert allowed_nodes(plan, NODES, "partition-halves") == ("n3", "n4")
    assert allowed_nodes(plan, NODES, "delay") == ()
    assert allowed_nodes(ExistingPlan(nodes=plan.nodes), NODES, "delay") == ("n3", "n4")
    assert allowed_nodes(msgspec.UNSET, NODES, "delay") == NODES


@pytest.mark.parametrize("protected", [("n1",), ("n2", "n4")])
def test_no_seed_and_no_target_hits_a_protected_node(protected: tuple[str, ...]) -> None:
    own: dict[str, tuple[str, ...] | None] = dict.fromkeys(protected, ())
    plan = msgspec.structs.replace(of(**own), faults=())
    free = {*NODES} - {*protected}
    hit: set[str] = set()
    for seed, targets in itertools.product(range(25), ("one", "minority", "majority", "all")):
        actions = make_schedule(
            nemeses=KINDS,
            nodes=NODES,
            time_limit_ms=60_000,
            rhythm=Rhythm(),
            targets=targets,
            seed=seed,
            allowed=lambda kind: allowed_nodes(plan, NODES, kind),
        )
        assert actions
        for action in (spared(plan, each) for each in actions):
            ends = [end for link in action.links or () for end in link]
            hit.update(action.nodes or (), ends)
    assert hit == free


def test_what_no_node_may_meet_is_refused() -> None:
    plan = of()
    with pytest.raises(UsageError, match="no node may meet delay"):
        make_schedule(
            nemeses=("delay",),
            nodes=NODES,
            time_limit_ms=60_000,
            allowed=lambda kind: allowed_nodes(plan, NODES, kind),
        )


def test_a_schedule_where_all_is_allowed_is_that_without_an_inventory() -> None:
    def made(allowed: bool) -> tuple[FaultAction, ...]:
        return make_schedule(
            nemeses=KINDS,
            nodes=NODES,
            time_limit_ms=120_000,
            seed=5,
            allowed=(lambda kind: NODES) if allowed else None,
        )

    assert made(True) == made(False)
