"""Rolling faults: one node after another, each awaited, each proved."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from shalott.checkers.runs.stats import Stats
from shalott.core.errors import MissingCapability, UsageError
from shalott.core.plan import FaultAction, SimPlan
from shalott.harness.run.planning import make_plan, repeat_command
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import simulate
from shalott.harness.run.store import Store
from shalott.harness.run.world import build_world
from shalott.nemesis.record import FAULTS
from shalott.nemesis.rolling import images_told
from shalott.nemesis.schedule import make_schedule
from tests.nemesis.test_runner import LONG_MS, QUEUES, Scene, fault, within
from tests.world.harness.nemesis import NODES

pytestmark = pytest.mark.unit


def rolling(**more: int) -> FaultAction:
    return fault("rolling-restart", nodes=NODES, target="all", **more)  # type: ignore[arg-type]


def test_each_node_is_stopped_and_started_in_turn_and_awaited() -> None:
    async def scene() -> None:
        s = Scene(rolling())
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == [
            *(f"{what} {node}" for node in NODES for what in ("stop", "start")),
            "heal",
        ]
        assert [queues for queues, _ in s.system.asked_settled] == [QUEUES] * len(NODES)
        row = s.fault()
        assert row["rolled"] == list(NODES) and row["error"] is None
        assert row["proved_effective"] is True and row["proved_healed"] is True
        probes = [(p["extra"]["phase"], p["extra"]["check"]) for p in s.recorder.of("probe")]
        assert probes[0] == ("effective", "status n1")
        assert ("healed", "was down n3") in probes and ("healed", "status n2") in probes

    within(5, scene())


@pytest.mark.parametrize("turn", [1, 2])
def test_a_stop_that_does_nothing_makes_the_run_unknown(turn: int) -> None:
    async def scene() -> None:
        s = Scene(rolling())
        s.cluster.start_is_idempotent = True
        if turn == 1:
            s.cluster.stop_does_nothing = True
        else:
            asyncio.ensure_future(_plant_after_first(s))
        await s.perform()
        row = s.fault()
        assert row["proved_effective"] is (turn == 2) and row["proved_healed"] is False
        assert Stats(min_acked=0).check(s.recorder.history()).valid == "unknown"

    async def _plant_after_first(s: Scene) -> None:
        await s.cluster.until(lambda: "stop n1" in s.cluster.calls)
        s.cluster.stop_does_nothing = True

    within(5, scene())


def test_it_goes_no_further_when_the_cluster_does_not_settle() -> None:
    async def scene() -> None:
        s = Scene(rolling())
        s.system.settled = False
        await s.perform()
        s.assert_healthy()
        row = s.fault()
        assert row["rolled"] == ["n1"] and row["error"] is None
        assert row["refused_at_end"] == "the cluster had not settled 60 s after n1 was started"
        assert row["proved_effective"] is True and row["proved_healed"] is True

    within(5, scene())


def test_the_end_of_the_load_ends_it_and_leaves_nothing_down() -> None:
    async def scene() -> None:
        s = Scene(rolling(duration_ms=LONG_MS))
        run = asyncio.create_task(s.runner.run())
        await s.proved()
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        row = s.fault()
        assert row["rolled"] == ["n1"] and "refused_at_end" not in row
        assert row["proved_healed"] is True

    within(5, scene())


def test_what_another_fault_wants_down_stays_down() -> None:
    async def scene() -> None:
        kill = fault("kill", nodes=("n1",), number=2, duration_ms=200)
        s = Scene(rolling(), kill)
        await s.perform()
        s.assert_healthy()
        rolled, killed = s.recorder.faults()
        assert rolled["proved_healed"] is True and killed["proved_effective"] is True

    within(5, scene())


def test_it_takes_one_node_at_a_time() -> None:
    record = FAULTS.find("rolling-restart")
    assert record.takes_one and not record.hits_all
    plan = make_schedule(nemeses=["rolling-restart"], nodes=NODES, time_limit_ms=120_000, seed=3)
    assert plan and all(action.nodes == NODES and action.settle for action in plan)
    assert all(action.jitter_ms == 0 for action in plan)


def upgrade(**more: int) -> FaultAction:
    made = fault("rolling-upgrade", nodes=NODES, target="all", **more)  # type: ignore[arg-type]
    return msgspec.structs.replace(made, parameters={"to": "new"})


def test_an_upgrade_brings_each_node_back_from_the_other_image() -> None:
    async def scene() -> None:
        s = Scene(upgrade())
        await s.perform()
        s.assert_healthy()
        steps = ("stop", "change_image", "start")
        assert s.cluster.calls == [
            *(f"{what} {node}" for node in NODES for what in steps),
            "heal",
        ]
        assert set(s.cluster.image_ids.values()) == {"id of new"}
        row = s.fault()
        assert row["parameters"] == {"to": "new"} and row["rolled"] == list(NODES)
        assert row["proved_effective"] is True and row["proved_healed"] is True
        probes = [(p["extra"]["phase"], p["extra"]["check"]) for p in s.recorder.of("probe")]
        assert ("effective", "image n1") in probes
        assert {("healed", f"image {node}") for node in NODES} <= {*probes}

    within(5, scene())


def test_an_upgrade_that_changes_no_image_makes_the_run_unknown() -> None:
    async def scene() -> None:
        s = Scene(upgrade())
        s.cluster.change_image_does_nothing = True
        await s.perform()
        row = s.fault()
        assert row["proved_effective"] is False and row["proved_healed"] is False
        assert Stats(min_acked=0).check(s.recorder.history()).valid == "unknown"

    within(5, scene())


def test_an_image_that_can_not_be_had_is_the_faults_error() -> None:
    async def scene() -> None:
        s = Scene(upgrade())
        s.cluster.broken.add("change_image")
        await s.perform()
        s.assert_healthy()
        assert s.fault()["rolled"] == ["n1"] and "the backend is broken" in s.fault()["error"]
        assert s.fault()["proved_effective"] is False

    within(5, scene())


def test_the_command_line_says_to_which_image() -> None:
    asked = {"nemesis": "rolling-upgrade", "time_limit": "60"}
    plan = make_plan(Request(upgrade_to="broker", **asked), backend="docker", seed=1)
    assert plan.faults and {a.parameters["to"] for a in plan.faults} == {"broker"}
    assert images_told(plan.faults) == ("broker",)
    again = repeat_command(Request(upgrade_to="broker", **asked), seed=1)
    assert "--upgrade-to broker" in again
    with pytest.raises(UsageError, match="which must be told more: give --upgrade-to"):
        make_plan(Request(**asked), backend="docker", seed=1)
    with pytest.raises(UsageError, match="--upgrade-to is for a fault that --nemesis does not"):
        make_plan(Request(nemesis="kill", upgrade_to="broker"), backend="docker", seed=1)


def test_only_containers_are_upgraded(tmp_path: Path) -> None:
    request = Request(nemesis="rolling-upgrade", upgrade_to="broker", cluster="local")
    plan = make_plan(request, backend="local", seed=1)
    directory = Store(tmp_path).name_run(plan.name)
    sentence = "the local cluster can't make nodes from another image: only containers are"
    with pytest.raises(MissingCapability, match=sentence):
        build_world(plan, directory)
    with pytest.raises(
        MissingCapability,
        match=r"other images \(upgrade\): only containers",
    ):
        simulate(msgspec.structs.replace(plan, sim=SimPlan(seed=1)))
