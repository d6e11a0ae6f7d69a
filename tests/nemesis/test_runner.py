"""The runner: every fault is made, proved, healed, proved again; doubt is recorded."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine
from typing import Any

import pytest

from shalott.checkers.runs.stats import Stats
from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import SOUND_DISK, LinkShape
from shalott.core.errors import Definite, HarnessError
from shalott.core.plan import FaultAction
from shalott.nemesis.partitions import isolate
from shalott.nemesis.record import FAULTS
from shalott.nemesis.runner import NemesisRunner
from tests.world.clock import virtual
from tests.world.harness.nemesis import NODES, FakeCluster, FakeSystem, MemoryRecorder, make_plan

pytestmark = pytest.mark.unit

QUEUES = ("q1", "q2")
LONG_MS = 600_000  # until the heal


class Scene:
    """A runner with fakes around it. Built inside the event loop."""

    def __init__(self, *faults: FaultAction, proof_timeout_s: float = 0.3, **more: Any) -> None:
        self.cluster = FakeCluster()
        self.system = FakeSystem()
        self.recorder = MemoryRecorder()
        self.runner = NemesisRunner(
            self.cluster,  # type: ignore[arg-type]
            self.system,  # type: ignore[arg-type]
            make_plan(*faults, **more),
            self.recorder,
            queues=QUEUES,
            settle_wait_ms=50,
            proof_timeout_s=proof_timeout_s,
        )

    async def perform(self) -> None:
        """Run to the end and heal."""
        await self.runner.run()
        await self.runner.heal()

    async def proved(self) -> None:
        """Wait until the last probe of a fault's effect has ended."""
        await self.recorder.until(
            lambda: (
                bool(rows := self.recorder.of("probe"))
                and all("complete_ns" in row for row in rows)
            )
        )

    def fault(self) -> dict[str, Any]:
        (fault,) = self.recorder.faults()
        return fault

    def assert_healthy(self) -> None:
        assert set(self.cluster.states.values()) == {"running"}
        assert not +self.cluster.cuts
        assert set(self.cluster.shapes.values()) <= {LinkShape()}
        assert {clock[:2] for clock in self.cluster.clock_settings.values()} == {(0.0, 0.0)}
        assert set(self.cluster.disk_settings.values()) == {SOUND_DISK}
        assert self.runner.in_force == []


def fault(
    kind: str,
    *,
    nodes: tuple[str, ...] | None = None,
    links: tuple[tuple[str, str], ...] | None = None,
    number: int = 1,
    at_ms: int = 0,
    duration_ms: int = 20,
    target: str = "one",
    settle: bool = False,
    amount: float = 0,
) -> FaultAction:
    return FaultAction(
        id=number,
        at_ms=at_ms,
        duration_ms=duration_ms,
        kind=kind,
        target=target,
        nodes=nodes,
        links=links,
        settle=settle,
        amount=amount,
        seed=7,
    )


def partition(**more: int) -> FaultAction:
    links = isolate(NODES, ["n1"])
    return fault("partition-one", nodes=("n1",), links=links, **more)  # type: ignore[arg-type]


def within(seconds: float, scene: Coroutine[Any, Any, None]) -> None:
    """In virtual time."""
    # A simulation loads nothing: neither what is installed nor what pyarrow needs for an array.
    FAULTS.names()
    importlib.import_module("numpy.ma")

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scene

    virtual.run(bounded())


def test_partition_is_cut_proved_mended_and_proved() -> None:
    async def scene() -> None:
        s = Scene(partition())
        await s.perform()
        s.assert_healthy()
        row = s.fault()
        assert (row["fault"], row["kind"], row["nodes"]) == (1, "partition-one", ["n1"])
        assert sorted(map(tuple, row["links"])) == sorted(isolate(NODES, ["n1"]))
        assert row["proved_effective"] is True and row["proved_healed"] is True
        assert row["row"]["invoke_ns"] <= row["effective_ns"] < row["healed_ns"]
        assert row["healed_ns"] <= row["row"]["complete_ns"]
        assert row["row"]["type"] == "info" and row["error"] is None
        probes = [(p["extra"]["phase"], p["extra"]["check"]) for p in s.recorder.of("probe")]
        assert ("effective", "reach n1->n2") in probes and ("healed", "reach n3->n1") in probes
        assert len(probes) == 8
        assert s.cluster.calls == ["cut", "mend", "heal"]

    within(5, scene())


def test_one_way_cut_is_probed_in_the_other_direction_too() -> None:
    async def scene() -> None:
        links = (("n1", "n2"), ("n1", "n3"))
        s = Scene(fault("partition-one-way", nodes=("n1",), links=links))
        await s.perform()
        assert s.fault()["proved_effective"] is True
        expected = {p["extra"]["check"]: p["extra"]["expected"] for p in s.recorder.of("probe")[:4]}
        assert expected == {
            "reach n1->n2": False,
            "reach n1->n3": False,
            "reach n2->n1": True,
            "reach n3->n1": True,
        }

    within(5, scene())


def test_one_way_cut_that_cuts_both_ways_is_unproved() -> None:
    async def scene() -> None:
        s = Scene(fault("partition-one-way", nodes=("n1",), links=(("n1", "n2"),)))
        s.cluster.cuts_both_ways = True
        await s.perform()
        assert s.fault()["proved_effective"] is False

    within(5, scene())


@pytest.mark.parametrize(
    ("kind", "calls", "seen"),
    [
        ("kill", ["kill n2", "start n2", "heal"], "down"),
        ("stop", ["stop n2", "start n2", "heal"], "down"),
        ("pause", ["pause n2", "resume n2", "heal"], "paused"),
    ],
)
def test_process_faults(kind: str, calls: list[str], seen: str) -> None:
    async def scene() -> None:
        s = Scene(fault(kind, nodes=("n2",)))
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == calls
        row = s.fault()
        assert row["proved_effective"] is True and row["proved_healed"] is True
        probes = [(p["extra"]["check"], p["extra"]["seen"]) for p in s.recorder.of("probe")]
        assert probes == [("status n2", seen), ("status n2", "running")]

    within(5, scene())


@pytest.mark.parametrize("keeps", [False, True])
def test_an_operator_redeclares_the_queue_of_a_killed_node(keeps: bool) -> None:
    async def scene() -> None:
        s = Scene(fault("kill-redeclare", nodes=("n2",)))
        s.system.keeps_dead_queues = keeps
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls[:2] == ["kill n2", "start n2"]
        ((queue, home),) = s.system.queues.items()
        row = s.fault()
        assert row["proved_effective"] is not keeps, "what was refused took no effect"
        assert row["proved_healed"] is True
        assert (home == "n2") is keeps
        assert row.get("refused", "").startswith(f"{queue} was not deleted") is keeps

    within(5, scene())


@pytest.mark.parametrize("keeps", [False, True])
def test_an_operator_redeclares_a_queue_when_a_mirror_of_it_lost_its_power(keeps: bool) -> None:
    async def scene() -> None:
        s = Scene(fault("power-redeclare", nodes=("n2",), duration_ms=1500))
        s.system.keeps_dead_queues = keeps
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls[:2] == ["power_off n2", "start n2"]
        ((_, home),) = s.system.queues.items()
        assert home in ("n1", "n3")
        assert ("refused" in s.fault()) is keeps

    within(5, scene())


@pytest.mark.parametrize("alone", [False, True])
def test_an_operator_gives_a_killed_masters_place_to_another_node(alone: bool) -> None:
    async def scene() -> None:
        s = Scene(fault("failover", nodes=("n2",)))
        s.system.has_no_slave = alone
        s.system.restarted_heirs = ("n3",)
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls[:2] == ["kill n2", "start n2"]
        assert s.system.operated == ["fail over n2", *([] if alone else ["rejoin n2"])]
        row = s.fault()
        assert row["proved_effective"] is not alone and row["proved_healed"] is True
        refused = "no node took the place of n2: there is no slave"
        assert row.get("refused") == (refused if alone else None)
        assert row["restarted"] == ["n3"]  # whom he restarted in vain, too

    within(5, scene())


def test_a_wiped_node_comes_back_empty() -> None:
    async def scene() -> None:
        s = Scene(fault("wipe", nodes=("n2",)))
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls[:3] == ["kill n2", "wipe n2", "start n2"]
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is True

    within(5, scene())


def test_mirrors_are_moved_and_come_back() -> None:
    async def scene() -> None:
        s = Scene(fault("move-mirrors", nodes=("n2",)))
        await s.perform()
        s.assert_healthy()
        holders = s.fault()["holders"]
        assert len(holders) == 2 and set(holders) < set(NODES)
        assert s.system.operated == [f"mirrors on {' and '.join(holders)}", "mirrors everywhere"]
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is True

    within(5, scene())


def test_a_stranger_reports_and_hangs_up() -> None:
    async def scene() -> None:
        s = Scene(fault("stray-report", nodes=("n2",)))
        await s.perform()
        s.assert_healthy()
        assert s.system.operated == ["report to n2", "hang up on n2"]
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is True

    within(5, scene())


def test_what_is_refused_when_it_is_healed_took_effect_before() -> None:
    async def scene() -> None:
        s = Scene(fault("failover", nodes=("n2",)))

        async def rejoin(cluster: Cluster, node: str) -> None:
            raise Definite("it does not listen")

        s.system.rejoin = rejoin  # type: ignore[method-assign]
        await s.perform()
        row = s.fault()
        assert row["proved_effective"] is True and "refused" not in row
        assert row["refused_at_end"] == "n2 was not made a slave: it does not listen"

    within(5, scene())


def test_restart_all_stops_and_starts_everyone() -> None:
    async def scene() -> None:
        s = Scene(fault("restart-all", nodes=NODES, target="all"))
        await s.perform()
        s.assert_healthy()
        assert sorted(s.cluster.calls[:3]) == ["stop n1", "stop n2", "stop n3"]
        assert sorted(s.cluster.calls[3:6]) == ["start n1", "start n2", "start n3"]
        assert s.fault()["proved_healed"] is True

    within(5, scene())


@pytest.mark.parametrize("defect", ["cut_does_nothing", "mend_does_nothing", "kill_does_nothing"])
def test_planted_defect_of_the_backend_makes_the_run_unknown(defect: str) -> None:
    async def scene() -> None:
        s = Scene(fault("kill", nodes=("n2",)) if "kill" in defect else partition())
        setattr(s.cluster, defect, True)
        if defect == "kill_does_nothing":
            s.cluster.broken.add("start")  # it runs already
        await s.runner.run()
        s.cluster.broken.clear()
        await s.runner.heal()
        row = s.fault()
        unproved = "proved_healed" if defect == "mend_does_nothing" else "proved_effective"
        assert row[unproved] is False
        result = Stats(min_acked=0).check(s.recorder.history())
        assert result.valid == "unknown"
        assert any("was not proved" in note for note in result.notes)

    within(10, scene())


def test_backend_error_is_recorded_and_the_run_goes_on() -> None:
    async def scene() -> None:
        s = Scene(fault("pause", nodes=("n3",)), partition(number=2))
        s.cluster.broken.add("pause")
        await s.perform()
        by_kind = {row["kind"]: row for row in s.recorder.faults()}
        assert "the backend is broken" in by_kind["pause"]["error"]
        assert by_kind["pause"]["proved_effective"] is False
        assert by_kind["partition-one"]["proved_healed"] is True
        s.assert_healthy()

    within(5, scene())


def test_overlapping_faults_on_one_node_compose() -> None:
    async def scene() -> None:
        s = Scene(
            fault("pause", nodes=("n1",), number=1, duration_ms=LONG_MS),
            fault("kill", nodes=("n1",), number=2, at_ms=100, duration_ms=30),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: s.cluster.calls.count("pause n1") == 2)
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert s.cluster.calls == [
            "pause n1",
            "resume n1",
            "kill n1",
            "start n1",
            "pause n1",  # the pause still holds it
            "resume n1",
            "heal",
        ]
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    within(5, scene())


def test_overlapping_cuts_of_one_link_compose() -> None:
    async def scene() -> None:
        link = (("n1", "n2"),)
        s = Scene(
            fault("partition-one-way", nodes=("n1",), links=link, number=1, duration_ms=LONG_MS),
            fault("partition-one-way", nodes=("n1",), links=link, number=2, duration_ms=30),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: "mend" in s.cluster.calls)
        assert not await s.cluster.reach("n1", "n2")
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    within(5, scene())


def test_partition_around_a_dead_node_is_proved_when_it_is_back() -> None:
    async def scene() -> None:
        s = Scene(
            fault("kill", nodes=("n1",), number=1, duration_ms=150),
            partition(number=2, at_ms=50, duration_ms=500),
        )
        await s.perform()
        s.assert_healthy()
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    within(5, scene())


def test_partition_healed_while_its_node_is_dead_is_proved_later() -> None:
    async def scene() -> None:
        s = Scene(
            partition(number=1, duration_ms=200),
            fault("kill", nodes=("n1",), number=2, at_ms=150, duration_ms=400),
        )
        await s.perform()
        s.assert_healthy()
        by_kind = {row["kind"]: row for row in s.recorder.faults()}
        assert by_kind["partition-one"]["proved_healed"] is True
        healed = by_kind["partition-one"]["row"]["complete_ns"]
        assert healed >= by_kind["kill"]["healed_ns"]

    within(5, scene())


def test_role_target_is_resolved_when_firing_and_written_back() -> None:
    async def scene() -> None:
        s = Scene(
            fault("kill", target="master", number=1),
            fault("partition-isolate-master", target="master", number=2, at_ms=60),
        )
        s.system.claims = {"n3": [{"group": "q1", "role": "master", "epoch": 4}]}
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: "start n3" in s.cluster.calls)
        s.system.claims = {"n2": [{"group": "q1", "role": "master", "epoch": 5}]}
        await run
        await s.runner.heal()
        killed, isolated = s.runner.resolved_actions
        assert killed.nodes == ("n3",)
        assert isolated.nodes == ("n2",)
        assert isolated.links == isolate(NODES, ["n2"])
        assert s.recorder.faults()[1]["nodes"] == ["n2"]

    within(5, scene())


def test_role_that_nobody_has_is_skipped_with_the_reason() -> None:
    async def scene() -> None:
        s = Scene(fault("kill", target="master"))
        await s.perform()
        assert s.fault()["skipped"] == "no node says that it is master of anything"
        assert s.cluster.calls == ["heal"]
        result = Stats(min_acked=0).check(s.recorder.history())
        assert result.counts["skipped-fault-count"] == 1
        assert "Every fault of the plan was skipped: nothing was broken." in result.notes

    within(5, scene())


def test_kill_waits_for_synchronisation_and_is_skipped_without_it() -> None:
    async def scene() -> None:
        s = Scene(fault("kill", nodes=("n1",), settle=True))
        s.system.settled = False
        await s.perform()
        assert "had not synchronised within 50 ms" in s.fault()["skipped"]
        assert s.system.asked_settled == [(QUEUES, 50)]
        assert "kill n1" not in s.cluster.calls
        assert s.fault()["row"]["error"].startswith("skipped: ")

    within(5, scene())


def test_settling_kills_never_overlap_even_if_the_plan_does() -> None:
    async def scene() -> None:
        s = Scene(
            fault("kill", nodes=("n1",), number=1, duration_ms=60, settle=True),
            fault("kill", nodes=("n2",), number=2, at_ms=10, duration_ms=20, settle=True),
        )
        await s.perform()
        assert s.cluster.calls == ["kill n1", "start n1", "kill n2", "start n2", "heal"]

    within(5, scene())


def test_a_settled_kill_that_would_outlast_the_load_is_skipped() -> None:
    async def scene() -> None:
        s = Scene(fault("kill", nodes=("n1",), duration_ms=1000, settle=True), time_limit_ms=900)
        await s.perform()
        assert "no time is left" in s.fault()["skipped"]

    within(5, scene())


def test_pausing_a_dead_node_is_skipped() -> None:
    async def scene() -> None:
        s = Scene(
            fault("kill", nodes=("n1",), number=1, duration_ms=500),
            fault("pause", nodes=("n1",), number=2, at_ms=100),
        )
        await s.perform()
        assert s.recorder.faults()[1]["skipped"] == "its nodes are already down"

    within(5, scene())


def test_heal_ends_what_is_in_force_and_starts_every_node() -> None:
    async def scene() -> None:
        s = Scene(
            fault("kill", nodes=("n1",), number=1, duration_ms=LONG_MS),
            fault("pause", nodes=("n2",), number=2, duration_ms=LONG_MS),
            partition(number=3, duration_ms=LONG_MS),
            fault("stop", nodes=("n3",), number=4, at_ms=LONG_MS),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: {"cut", "kill n1", "pause n2"} <= {*s.cluster.calls})
        assert sorted(s.runner.in_force) == ["kill n1", "partition-one n1", "pause n2"]
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await s.runner.heal()
        s.assert_healthy()
        assert len(s.recorder.faults()) == 3  # the fourth had not begun
        assert all(row["proved_healed"] for row in s.recorder.faults())
        await s.runner.heal()
        s.assert_healthy()

    within(5, scene())


def test_heal_without_a_run_only_heals() -> None:
    async def scene() -> None:
        s = Scene(partition())
        s.cluster.states["n2"] = "exited"
        await s.runner.heal()
        s.assert_healthy()
        assert s.recorder.rows == []

    within(5, scene())


def test_heal_says_what_it_cannot_start() -> None:
    async def scene() -> None:
        s = Scene(fault("kill", nodes=("n1",)))
        s.cluster.broken.add("start")
        await s.runner.run()
        with pytest.raises(HarnessError, match="start n1"):
            await s.runner.heal()
        assert s.fault()["proved_healed"] is False

    within(5, scene())
