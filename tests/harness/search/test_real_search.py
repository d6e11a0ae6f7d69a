"""Planning a search on real nodes: what is drawn, what is left out, how many fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.cluster.capabilities import MOST
from shalott.cluster.systems.record import Footprint
from shalott.core.errors import MissingCapability, UsageError
from shalott.core.plan import dump_plan
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan
from shalott.harness.search import real_capacity as faults_module
from shalott.harness.search import real_search as planning_module
from shalott.harness.search.real_capacity import available_mib, how_many
from shalott.harness.search.real_search import RealSearch, plan_real
from shalott.harness.search.search import SearchRequest, plan_search

pytestmark = pytest.mark.unit

MEMINFO = "MemTotal:       24683524 kB\nMemFree: 21813248 kB\nMemAvailable:   24146944 kB\n"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an engine and all that a host may have."""

    def can(plan):  # type: ignore[no-untyped-def]
        return MOST[plan.cluster.backend]

    monkeypatch.setattr(planning_module.backends, "choose_backend", lambda cluster, system: None)
    for module in (faults_module, planning_module):
        monkeypatch.setattr(module, "capabilities_of", can)


def planned(system: str, cluster: str = "docker", **others: object) -> RealSearch:
    return plan_real(SearchRequest(system=system, cluster=cluster, **others))  # type: ignore[arg-type]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("system", ["rocketmq", "rabbitmq", "controller", "mirrored", "dledger"])
@pytest.mark.parametrize("profile", ["upstream", "safe"])
def test_every_drawn_plan_can_be_run_there(system: str, profile: str) -> None:
    search = planned(system, profile=profile)
    for seed in range(1, 30):
        plan = search.plans.plan(seed)
        check_plan(plan)
        assert plan.cluster.backend == "docker"
        assert len(plan.cluster.nodes) == 3
        assert plan.sim is None
        assert not {action.kind for action in plan.faults} & set(search.subject.left_out)
    assert not set(search.needs) & faults_module.SPECIAL


@pytest.mark.usefixtures("world")
def test_what_a_world_can_not_do_is_left_out_and_said() -> None:
    search = planned("controller", "local", profile="upstream")
    assert {"loss", "clock-skew", "clock-jump"} <= set(search.subject.left_out)
    assert "Not drawn, for local here lacks loss: loss, loss-one-way." in search.notes
    assert any("lacks clock" in note for note in search.notes)
    assert any("Not drawn unless --nemesis names them" in note for note in search.notes)
    with pytest.raises(MissingCapability, match="clock-skew needs clock"):
        planned("controller", "local", nemesis="kill,clock-skew")


@pytest.mark.usefixtures("world")
def test_a_fault_that_the_system_can_not_be_asked_for_is_refused() -> None:
    with pytest.raises(MissingCapability, match="failover needs rabbitmq with FailsOver"):
        planned("rabbitmq", nemesis="failover")


@pytest.mark.usefixtures("world")
def test_named_faults_are_drawn_and_machines_made_for_them() -> None:
    search = planned("rocketmq", nemesis="power,partition")
    kinds = {a.kind for seed in range(1, 20) for a in search.plans.plan(seed).faults}
    assert "power" in kinds
    assert all(kind == "power" or kind.startswith("partition") for kind in kinds)
    assert "power" in search.needs


@pytest.mark.usefixtures("world")
def test_what_the_user_says_of_the_system_is_in_every_plan() -> None:
    given = {"replication": "dledger", "version": "4.9.7"}
    search = planned("rocketmq", given=given, policy=("slaveReadEnable=true",), nodes=5)
    plan = search.plans.plan(4)
    assert plan.system.parameters["replication"] == "dledger"
    assert plan.system.parameters["version"] == "4.9.7"
    assert plan.system.policy["slaveReadEnable"] is True
    assert plan.system.policy["flushDiskType"] == "SYNC_FLUSH"  # safe, which is the default
    assert len(plan.cluster.nodes) == 5
    assert search.subject.name == "rocketmq-safe-docker-dledger-4.9.7"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (SearchRequest(cluster="ssh"), "sim, docker or local"),
        (SearchRequest(cluster="docker", bug="KB-RMQ-02"), "--bug"),
        (SearchRequest(cluster="docker", system="rocketmq", given={"vhost": "a"}), "--vhost"),
        (SearchRequest(cluster="docker", repeat=-1), "--repeat"),
        (SearchRequest(cluster="docker", system="compose"), "has no clients of its own"),
        (SearchRequest(cluster="docker", plans=(Path("nowhere"),)), "no such file"),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(request_: SearchRequest, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan_real(request_)


def test_flags_of_real_nodes_are_refused_in_a_simulation() -> None:
    for request in (
        SearchRequest(policy=("a=1",)),
        SearchRequest(nodes=3),
        SearchRequest(given={"version": "5.3.3"}),
        SearchRequest(plans=(Path("x"),)),
    ):
        with pytest.raises(UsageError, match="give --cluster"):
            plan_search(request)


@pytest.mark.usefixtures("world")
def test_carried_plans_are_run_once_each_unless_told(tmp_path: Path) -> None:
    swarm = USUAL.but(faults={"kill": 1}, fault_share=1.0)
    for seed in (1, 2, 3):
        subject = Subject(system="controller", swarm=swarm)
        (tmp_path / f"{seed}.json").write_bytes(dump_plan(draw_plan(subject, seed)))
    search = planned("rocketmq", plans=(tmp_path,))
    assert search.seeds == range(1, 4)
    assert [search.plans.plan(n).seed for n in (1, 2, 3, 4)] == [1, 2, 3, 1]
    assert search.plans.plan(1).system.name == "rocketmq"
    assert planned("rocketmq", plans=(tmp_path,), seeds="12").seeds == range(1, 13)
    fewer = planned("rocketmq", plans=(tmp_path / "1.json",))
    assert fewer.header != search.header


@pytest.mark.parametrize(
    ("footprint", "nodes", "memory_mib", "cpus", "fit"),
    [
        (Footprint(memory_mib=650, cpus=0.6), 3, 24_000, 2, 1),  # 1.8 CPUs each
        (Footprint(memory_mib=650, cpus=0.6), 3, 24_000, 16, 8),
        (Footprint(memory_mib=650, cpus=0.6), 3, 8192, 16, 3),  # 6144 of it, 1950 each
        (Footprint(memory_mib=100, cpus=0.25), 4, 24_000, 2, 2),
        (Footprint(memory_mib=9000, cpus=4), 5, 2000, 1, 1),  # one at least
    ],
)
def test_as_many_clusters_as_memory_and_cpus_hold(
    footprint: Footprint, nodes: int, memory_mib: float, cpus: int, fit: int
) -> None:
    assert how_many(footprint, nodes, memory_mib, cpus) == fit


def test_free_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    assert available_mib(path) == pytest.approx(24146944 / 1024)
    assert available_mib(tmp_path / "none") == float("inf")
