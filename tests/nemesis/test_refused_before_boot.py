"""Faults that a system can't be asked for are refused before boot, whichever way a plan comes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shalott.cluster.system import DeclaresQueues, FailsOver, TakesReports
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction, Plan, dump_plan
from shalott.harness.run.backends import make_system
from shalott.harness.run.plan_checks import check_plan
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.session import run_request, run_stored_plan
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import Store
from shalott.harness.run.world import build_world
from shalott.harness.scenarios.swarm import Subject, Swarm, draw_plan
from shalott.harness.search.replay import replay
from shalott.harness.shrinking.simulated_shrink import shrink_plan

pytestmark = pytest.mark.unit

REFUSED = [
    *((system, "failover", "FailsOver") for system in ("mirrored", "dledger", "controller")),
    *((system, "stray-report", "TakesReports") for system in ("mirrored", "dledger")),
    ("master-slave", "kill-redeclare", "DeclaresQueues"),
    ("controller", "power-redeclare", "DeclaresQueues"),
    ("rabbitmq", "failover", "FailsOver"),
    ("dledger", "move-mirrors", "MovesMirrors"),
    ("dledger", "remove-node", "ChangesMembers"),
    ("master-slave", "replace-node", "ChangesMembers"),
]


def plan_with(kind: str, system: str = "dledger") -> Plan:
    """A plan that nobody has checked."""
    plan = make_plan(Request(system=system, nemesis="kill"), backend="sim", seed=1)
    faults = tuple(msgspec.structs.replace(action, kind=kind) for action in plan.faults)
    return msgspec.structs.replace(plan, faults=faults)


def refused(lacks: str = "FailsOver") -> pytest.RaisesExc[UsageError]:
    return pytest.raises(UsageError, match=rf"can't be asked for .*: it does not offer {lacks} ")


@pytest.mark.parametrize(("system", "kind", "lacks"), REFUSED)
def test_a_request_is_refused(system: str, kind: str, lacks: str) -> None:
    with refused(lacks):
        make_plan(Request(system=system, nemesis=kind), backend="docker", seed=1)


def test_who_can_be_asked_what() -> None:
    offers = {
        system: [
            protocol.__name__
            for protocol in (DeclaresQueues, FailsOver, TakesReports)
            if isinstance(make_system(plan_with("kill", system)), protocol)
        ]
        for system in ("mirrored", "rabbitmq", "master-slave", "dledger", "controller")
    }
    assert offers == {
        "mirrored": ["DeclaresQueues"],
        "rabbitmq": ["DeclaresQueues"],
        "master-slave": ["FailsOver", "TakesReports"],
        "dledger": [],
        "controller": [],
    }
    for kind in ("failover", "stray-report"):
        check_plan(plan_with(kind, "master-slave"))
    for kind in ("kill-redeclare", "power-redeclare"):
        check_plan(plan_with(kind, "mirrored"))


def test_nodes_that_host_controllers_can_not_leave() -> None:
    sentence = (
        "no node can leave the cluster, as replace-node would have it: of each it hosts a"
        " controller, and the controllers are a fixed group: choose --layout separate"
    )
    with pytest.raises(UsageError, match=sentence):
        make_plan(Request(system="controller", nemesis="replace-node"), backend="docker", seed=1)
    for nemesis in ("replace-node", "remove-node"):
        asked = Request(
            system="controller", layout="separate", nodes="6", nemesis=nemesis, targets="n2"
        )
        plan = make_plan(asked, backend="sim", seed=1)
        assert {action.nodes for action in plan.faults} == {("n2",)}


def test_the_sentence_names_the_system_what_it_lacks_and_the_faults() -> None:
    plan = plan_with("failover")
    with pytest.raises(UsageError) as raised:
        check_plan(plan)
    assert str(raised.value) == (
        "the system dledger can't be asked for failover: it does not offer FailsOver"
        " (shalott/cluster/system.py); choose another --nemesis, or a --system that does"
    )


def test_a_run_a_stored_plan_a_replay_and_a_shrink_are_refused_and_store_nothing(
    tmp_path: Path,
) -> None:
    path, store = tmp_path / "plan.json", tmp_path / "store"
    path.write_bytes(dump_plan(plan_with("failover")))
    with refused():
        run_request(
            Request(system="dledger", nemesis="failover", cluster="sim"),
            test_count=1,
            store_root=store,
        )
    with refused():
        run_stored_plan(path, test_count=1, store_root=store)
    for cluster in ("", "local"):
        with refused():
            replay(
                path,
                cluster=cluster,
                drop_unsupported=True,
                trials=1,
                store_root=store,
                simulate=simulate,
            )
    with refused():
        shrink_plan(path, budget=1, anomaly="", out=None, simulate=simulate)
    assert not store.exists()


def test_a_world_is_not_built_for_it_either(tmp_path: Path) -> None:
    """Whoever brings a plan past its check meets the same refusal."""
    plan = plan_with("failover")
    with refused():
        simulate(plan)
    local = msgspec.structs.replace(plan.cluster, backend="local")
    with refused():
        build_world(
            msgspec.structs.replace(plan, cluster=local), Store(tmp_path).name_run(plan.name)
        )


def test_a_search_that_could_draw_it_is_refused() -> None:
    swarm = Swarm(schedule=(FaultAction(id=1, at_ms=1, duration_ms=1, kind="failover"),))
    with refused():
        draw_plan(Subject(system="controller", swarm=swarm), 1)
