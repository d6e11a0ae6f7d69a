"""Faults of membership: made, proved, refused; and those that do nothing are not proved."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.runs.stats import Stats
from shalott.core.errors import UsageError
from shalott.core.plan import FaultAction
from shalott.nemesis import membership
from shalott.nemesis.partitions import isolate
from shalott.nemesis.requirements import check_actions
from shalott.nemesis.schedule import make_schedule
from tests.nemesis.test_runner import Scene, fault, within
from tests.world.harness.nemesis import NODES

pytestmark = pytest.mark.unit


class Members(Scene):
    """Every node can be asked."""

    def __init__(self, *faults: FaultAction) -> None:
        super().__init__(*faults)
        self.system.claims = {node: [] for node in NODES}

    def verdict(self) -> Any:
        return Stats(min_acked=0).check(self.recorder.history()).valid


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come in a few looks does not come here."""
    monkeypatch.setattr(membership, "ATTEMPTS", 3)
    monkeypatch.setattr(membership, "RETRY_MS", 1)
    monkeypatch.setattr(membership, "RUNNING_WITHIN_S", 0.02)


def replace(**more: Any) -> FaultAction:
    return fault("replace-node", nodes=("n2",), **more)


def test_a_node_is_replaced_by_an_empty_one_and_both_are_proved() -> None:
    async def scene() -> None:
        s = Members(replace())
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == ["kill n2", "wipe n2", "start n2", "heal"]
        asked = [line.split(" ", 1) for line in s.system.operated]
        assert [what for _, what in asked] == ["forgets n2", "admits n2"]
        assert "n2" not in [by for by, _ in asked] and s.system.left_out == ()
        row = s.fault()
        assert row["proved_effective"] is True and row["proved_healed"] is True
        assert row["error"] is None
        probes = {(p["extra"]["phase"], p["extra"]["check"]) for p in s.recorder.of("probe")}
        for by in ("n1", "n3"):
            assert {
                ("effective", f"{by} has n2 in the cluster"),
                ("healed", f"{by} has n2 in the cluster"),
                ("healed", f"{by} runs with n2"),
            } <= probes

    within(5, scene())


def test_a_removal_that_does_nothing_makes_the_run_unknown() -> None:
    async def scene() -> None:
        s = Members(replace())
        s.system.forgets_nothing = True
        await s.perform()
        assert s.fault()["proved_effective"] is False
        assert s.verdict() == "unknown"

    within(5, scene())


@pytest.mark.parametrize("defect", ["admits_nobody", "stays_alone"])
def test_a_join_that_does_not_take_is_not_proved_healed(defect: str) -> None:
    async def scene() -> None:
        s = Members(replace())
        setattr(s.system, defect, True if defect == "admits_nobody" else {"n2"})
        await s.perform()
        row = s.fault()
        assert row["proved_effective"] is True and row["proved_healed"] is False
        assert s.verdict() == "unknown"

    within(5, scene())


def test_who_is_not_forgotten_keeps_its_disk_and_comes_back() -> None:
    async def scene() -> None:
        s = Members(replace())
        s.system.refuses_to_forget = True
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == ["kill n2", "start n2", "heal"]
        assert len(s.system.operated) == 3  # attempts
        row = s.fault()
        assert row["refused"].startswith("n2 was not forgotten: n")
        assert row["refused"].endswith(": n2 must be stopped")
        assert row["proved_effective"] is False and row["proved_healed"] is True

    within(5, scene())


def test_who_is_not_let_in_is_not_started() -> None:
    async def scene() -> None:
        s = Members(replace())
        s.system.refuses_to_admit = True
        await s.perform()
        assert s.cluster.calls == ["kill n2", "wipe n2", "heal"]
        row = s.fault()
        assert row["refused_at_end"].endswith("there is no room")
        assert row["proved_effective"] is True and row["proved_healed"] is False
        assert s.verdict() == "unknown"

    within(5, scene())


def test_a_node_that_can_not_leave_is_skipped_with_the_reason() -> None:
    async def scene() -> None:
        s = Members(replace())
        s.system.tied = {"n2"}
        await s.perform()
        assert s.fault()["skipped"] == "n2 can't leave: it is tied"
        assert s.cluster.calls == ["heal"]

    within(5, scene())


def test_a_node_that_another_fault_holds_down_is_not_asked() -> None:
    async def scene() -> None:
        kill = fault("kill", nodes=("n1",), number=2, duration_ms=300)
        s = Members(kill, replace(at_ms=50))
        await s.perform()
        s.assert_healthy()
        assert s.system.operated[0] == "n3 forgets n2"
        replaced = next(row for row in s.recorder.faults() if row["kind"] == "replace-node")
        assert replaced["proved_effective"] is True and replaced["proved_healed"] is True

    within(5, scene())


def remove(**more: Any) -> FaultAction:
    return fault("remove-node", nodes=("n2",), **more)


def add(**more: Any) -> FaultAction:
    return fault("add-node", nodes=("n2",), number=2, **more)


def test_a_removed_node_stays_out_when_the_faults_are_over() -> None:
    async def scene() -> None:
        s = Members(remove())
        await s.perform()
        assert s.cluster.calls == ["stop n2", "heal"]
        assert s.cluster.states == {"n1": "running", "n2": "exited", "n3": "running"}
        assert s.system.left_out == ("n2",) == read_surroundings(s.recorder.history()).left_out
        row = s.fault()
        assert row["proved_effective"] is True and row["proved_healed"] is True
        assert row["error"] is None and s.runner.in_force == []

    within(5, scene())


def test_who_is_not_forgotten_is_not_removed() -> None:
    async def scene() -> None:
        s = Members(remove())
        s.system.refuses_to_forget = True
        await s.perform()
        s.assert_healthy()
        assert "must be stopped" in s.fault()["refused"]
        assert read_surroundings(s.recorder.history()).left_out == ()

    within(5, scene())


def test_a_removal_that_leaves_it_a_member_makes_the_run_unknown() -> None:
    async def scene() -> None:
        s = Members(remove())
        s.system.forgets_nothing = True
        await s.perform()
        assert s.fault()["proved_effective"] is False
        assert s.verdict() == "unknown"

    within(5, scene())


def test_the_removed_node_joins_again_with_an_empty_disk() -> None:
    async def scene() -> None:
        s = Members(remove(), add(at_ms=100))
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == ["stop n2", "wipe n2", "start n2", "heal"]
        assert s.system.left_out == () == read_surroundings(s.recorder.history()).left_out
        for row in s.recorder.faults():
            assert row["proved_effective"] is True and row["proved_healed"] is True
            assert row["error"] is None

    within(5, scene())


@pytest.mark.parametrize("defect", ["admits_nobody", "stays_alone"])
def test_an_added_node_that_does_not_run_with_the_others_is_not_proved(defect: str) -> None:
    async def scene() -> None:
        s = Members(remove(), add(at_ms=100))
        setattr(s.system, defect, True if defect == "admits_nobody" else {"n2"})
        await s.perform()
        added = s.recorder.faults()[1]
        assert added["proved_effective"] is False
        assert s.verdict() == "unknown"

    within(5, scene())


def test_only_a_removed_node_is_added_and_it_is_removed_once() -> None:
    async def scene() -> None:
        again = fault("remove-node", nodes=("n2",), number=3, at_ms=100)
        s = Members(add(), remove(at_ms=20), again)
        await s.perform()
        skipped = {
            row["kind"]: row.get("skipped") for row in s.recorder.faults() if "skipped" in row
        }
        assert skipped == {"add-node": "n2 was not removed", "remove-node": "n2 was removed"}

    within(5, scene())


def test_a_kill_of_a_removed_node_does_not_start_it() -> None:
    async def scene() -> None:
        s = Members(remove(), fault("kill", nodes=("n2",), number=2, at_ms=100))
        await s.perform()
        assert s.cluster.calls == ["stop n2", "heal"]

    within(5, scene())


def test_a_plan_removes_one_node_only() -> None:
    plan = make_schedule(
        nemeses=["remove-node", "add-node"], nodes=NODES, time_limit_ms=200_000, seed=5
    )
    assert len({action.nodes for action in plan}) == 1
    assert {action.kind for action in plan} == {"remove-node", "add-node"}
    other = fault("remove-node", nodes=("n1",), number=2)
    with pytest.raises(UsageError, match="lasting harm to a second node"):
        check_actions((remove(), other), NODES)


def test_a_partition_is_healed_though_a_node_of_it_was_removed() -> None:
    async def scene() -> None:
        links = isolate(NODES, ["n1"])
        cut = fault("partition-one", nodes=("n1",), links=links, number=2, at_ms=100)
        s = Members(remove(), cut)
        await s.perform()
        partition = s.recorder.faults()[1]
        assert partition["proved_effective"] is True and partition["proved_healed"] is True

    within(5, scene())
