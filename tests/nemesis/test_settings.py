"""Faults of power, links, clocks and disks: made, proved, overlapping, healed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from shalott.checkers.runs.stats import Stats
from shalott.cluster.nodes import SOUND_DISK, DiskFaults, LinkShape, Shortage
from shalott.core.plan import ClockPlan, FaultAction, SimPlan
from shalott.nemesis.partitions import touching
from shalott.nemesis.record import FAULTS
from shalott.nemesis.settings import add_disks, add_shapes
from tests.nemesis.test_runner import LONG_MS, Scene, fault, partition, within
from tests.world.clock.turns import passes
from tests.world.harness.nemesis import NODES

pytestmark = pytest.mark.unit

BOTH_WAYS = touching(NODES, ("n2",), outgoing_only=False)
OUTGOING = touching(NODES, ("n2",), outgoing_only=True)


def of_kind(kind: str, amount: float = 0, **more: Any) -> FaultAction:
    """A fault that hits n2, unless it says another node."""
    node = more.pop("node", "n2")
    links = None
    if FAULTS.find(kind).links is not None:
        links = touching(NODES, (node,), outgoing_only=kind.endswith("one-way"))
    told = more.pop("parameters", {})
    made = fault(kind, nodes=(node,), links=links, amount=amount, **more)
    return msgspec.structs.replace(made, parameters=told)


SETTINGS = [
    ("loss", 0.2, "shape n2->n1", LinkShape(loss=0.2)),
    ("delay", 50, "shape n3->n2", LinkShape(delay_ms=50)),
    ("delay-one-way", 50, "shape n2->n3", LinkShape(delay_ms=50)),
    ("clog", 2000, "shape n2->n1", LinkShape(rate_bytes_s=2000)),
    ("jitter", 50, "shape n2->n1", LinkShape(jitter_ms=50)),
    ("duplicate-one-way", 0.1, "shape n2->n3", LinkShape(duplicate=0.1)),
    ("reorder", 0.25, "shape n2->n1", LinkShape(reorder=0.25)),
    ("corrupt", 0.1, "shape n3->n2", LinkShape(corrupt=0.1)),
    ("rate", 1_000_000, "shape n2->n1", LinkShape(rate_bytes_s=1_000_000)),
    ("disk-slow", 20, "disk n2", DiskFaults(slow_ms=20)),
    ("disk-full", 0, "disk n2", DiskFaults(full=True)),
    ("disk-error", 0, "disk n2", DiskFaults(fail_sync=True)),
    ("disk-short", 0, "disk n2", DiskFaults(short=True)),
    ("disk-corrupt", 16, "disk n2", DiskFaults(corrupt_bytes=16)),
    ("cpu-starve", 20, "shortage n2", Shortage(cpu_percent=20)),
    ("memory-limit", 16, "shortage n2", Shortage(memory_left_mib=16)),
    ("fd-exhaust", 8, "shortage n2", Shortage(files_left=8)),
    ("fork-bomb", 64, "shortage n2", Shortage(processes_left=64)),
    ("tmp-full", 0, "shortage n2", Shortage(is_tmp_full=True)),
    ("pause-process", 0, "shortage n2", Shortage(is_stopped=True)),
    ("slow-node", 20, "disk n2", DiskFaults(slow_ms=20)),
    ("clock-jump", -5000, "clock n2", None),
    ("clock-skew", 20_000, "drift n2", None),
]


@pytest.mark.parametrize(("kind", "amount", "check", "setting"), SETTINGS)
def test_a_setting_is_made_proved_restored_and_proved(
    kind: str, amount: float, check: str, setting: LinkShape | DiskFaults | Shortage | None
) -> None:
    async def scene() -> None:
        s = Scene(of_kind(kind, amount))
        s.system.claims = {"n2": []}
        await s.perform()
        s.assert_healthy()
        row = s.fault()
        assert row["error"] is None
        assert row["proved_effective"] is True and row["proved_healed"] is True
        assert row.get("amount", 0) == amount
        probes = [p["extra"] for p in s.recorder.of("probe") if p["extra"]["check"] == check]
        made, healed = (probe["seen"] for probe in probes)
        if setting is None:
            assert made == pytest.approx(amount, rel=0.1)
            assert healed == 0
        else:
            assert type(setting)(**made) == setting
            assert type(setting)(**healed) == type(setting)()
        # Every link that it touches was looked at, twice.
        links = {
            "loss": BOTH_WAYS,
            "delay": BOTH_WAYS,
            "clog": BOTH_WAYS,
            "delay-one-way": OUTGOING,
            "jitter": BOTH_WAYS,
            "duplicate-one-way": OUTGOING,
            "reorder": BOTH_WAYS,
            "corrupt": BOTH_WAYS,
            "rate": BOTH_WAYS,
        }
        shapes = [p for p in s.recorder.of("probe") if p["extra"]["check"].startswith("shape")]
        assert len(shapes) == 2 * len(links.get(kind, ()))

    within(10, scene())


@pytest.mark.parametrize(
    ("kind", "amount", "defect"),
    [
        ("loss", 0.2, "shape_does_nothing"),
        ("jitter", 50, "shape_does_nothing"),
        ("duplicate", 0.1, "shape_does_nothing"),
        ("reorder-one-way", 0.25, "shape_does_nothing"),
        ("corrupt", 0.1, "shape_does_nothing"),
        ("rate", 100_000, "shape_does_nothing"),
        ("clock-strobe", 500, "clock_does_nothing"),
        ("clog-one-way", 2000, "shape_does_nothing"),
        ("clock-jump", 500, "clock_does_nothing"),
        ("clock-skew", 200, "clock_does_nothing"),
        ("disk-slow", 20, "disk_does_nothing"),
        ("slow-node", 20, "disk_does_nothing"),
        ("slow-node", 20, "clock_does_nothing"),
        ("cpu-starve", 20, "shortage_does_nothing"),
        ("memory-limit", 16, "shortage_does_nothing"),
        ("fd-exhaust", 8, "shortage_does_nothing"),
        ("fork-bomb", 64, "shortage_does_nothing"),
        ("tmp-full", 0, "shortage_does_nothing"),
        ("pause-process", 0, "shortage_does_nothing"),
        ("disk-corrupt", 1, "disk_does_nothing"),
        ("power", 0, "power_does_nothing"),
    ],
)
def test_a_setting_that_does_nothing_makes_the_run_unknown(
    kind: str, amount: float, defect: str
) -> None:
    async def scene() -> None:
        s = Scene(of_kind(kind, amount))
        s.system.claims = {"n2": []}
        setattr(s.cluster, defect, True)
        s.cluster.start_is_idempotent = True
        await s.perform()
        assert s.fault()["proved_effective"] is False
        result = Stats(min_acked=0).check(s.recorder.history())
        assert result.valid == "unknown"
        assert any("was not proved effective" in note for note in result.notes)

    within(10, scene())


@pytest.mark.parametrize(
    ("kind", "amount", "defect"),
    [
        ("delay", 50, "shape_does_nothing"),
        ("clock-jump", 500, "clock_does_nothing"),
        ("clock-skew", 200_000, "clock_does_nothing"),
        ("clock-strobe", 500, "clock_does_nothing"),
        ("reorder", 0.25, "shape_does_nothing"),
        ("disk-full", 0, "disk_does_nothing"),
    ],
)
def test_a_setting_that_stays_is_not_proved_healed(kind: str, amount: float, defect: str) -> None:
    async def scene() -> None:
        s = Scene(of_kind(kind, amount, duration_ms=LONG_MS))
        run = asyncio.create_task(s.runner.run())
        await s.proved()
        setattr(s.cluster, defect, True)
        run.cancel()
        await s.runner.heal()
        assert s.fault()["proved_effective"] is True
        assert s.fault()["proved_healed"] is False

    within(10, scene())


def test_a_strobe_sets_the_clock_to_and_fro_until_it_ends() -> None:
    async def scene() -> None:
        s = Scene(of_kind("clock-strobe", 500, duration_ms=150, parameters={"period_ms": 20}))
        run = asyncio.create_task(s.runner.run())
        seen = []
        for wanted in (500, -500, 500):
            await s.cluster.until(lambda now=wanted: s.cluster.clock_settings["n2"][0] == now)  # type: ignore[misc]
            seen.append(wanted)
        await run
        await s.runner.heal()
        s.assert_healthy()
        row = s.fault()
        assert row["proved_effective"] is True and row["proved_healed"] is True
        calls = s.cluster.calls.count("set_clock n2")
        await passes(0.1)
        assert s.cluster.calls.count("set_clock n2") == calls, "nothing strobes any more"

    within(10, scene())


def test_a_correlation_is_handed_on() -> None:
    async def scene() -> None:
        s = Scene(of_kind("loss", 0.2, parameters={"correlation": 0.5}, duration_ms=LONG_MS))
        run = asyncio.create_task(s.runner.run())
        await s.proved()
        assert s.cluster.shapes["n2", "n1"] == LinkShape(loss=0.2, correlation=0.5)
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()

    within(10, scene())


def test_what_the_backend_lacks_is_the_faults_error() -> None:
    async def scene() -> None:
        s = Scene(of_kind("clock-jump", 500), partition(number=2))
        s.cluster.lacking.add("set_clock")
        await s.perform()
        jump, cut = s.recorder.faults()
        assert jump["error"] == "the fake cluster can't set_clock"
        assert jump["proved_effective"] is False and cut["proved_healed"] is True

    within(10, scene())


# -- layers ----------------------------------------------------------------------------------------


def test_overlapping_link_faults_add_up_and_each_takes_its_own_away() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("delay", 50, number=1, duration_ms=LONG_MS),
            of_kind("delay-one-way", 200, number=2, duration_ms=LONG_MS, node="n2"),
            of_kind("loss", 0.5, number=3, at_ms=50, duration_ms=30, node="n1"),
            of_kind("clog", 2000, number=4, at_ms=50, duration_ms=30, node="n1"),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: s.cluster.shapes.get(("n2", "n1")) == _all_of_them())
        assert s.cluster.shapes["n3", "n2"] == LinkShape(delay_ms=50)
        await s.cluster.until(lambda: s.cluster.shapes.get(("n2", "n1")) == LinkShape(delay_ms=250))
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    def _all_of_them() -> LinkShape:
        return LinkShape(delay_ms=250, rate_bytes_s=2000, loss=0.5)

    within(10, scene())


def test_a_jump_on_top_of_a_skew_ends_without_ending_the_skew() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("clock-skew", 20_000, number=1, duration_ms=LONG_MS),
            of_kind("clock-jump", 60_000, number=2, at_ms=100, duration_ms=300),
            proof_timeout_s=2.0,
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: s.cluster.clock_settings["n2"][0] >= 60_000)
        await s.cluster.until(lambda: s.cluster.clock_settings["n2"][0] < 1000)
        offset_ms, drift_ppm, _ = s.cluster.clock_settings["n2"]
        assert drift_ppm == 20_000
        assert 5 < offset_ms < 500  # what 20 ms a second have gained meanwhile
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    within(10, scene())


def test_a_clock_that_was_never_right_is_put_back_where_it_would_be() -> None:
    async def scene() -> None:
        clocks = (ClockPlan(node="n2", offset_ms=5000, drift_ppm=1000),)
        s = Scene(of_kind("clock-jump", 500), sim=SimPlan(seed=1, clocks=clocks))
        s.cluster.clock_settings["n2"] = 5000.0, 1000.0, 0
        before_ms = await s.cluster.clock_offset_ms("n2")
        await s.perform()
        after_ms, drift_ppm, _ = s.cluster.clock_settings["n2"]
        assert drift_ppm == 1000
        assert before_ms < after_ms < before_ms + 20
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is True

    within(10, scene())


def test_sums_of_settings() -> None:
    assert add_shapes([]) == LinkShape() and add_disks([]) == SOUND_DISK
    assert add_shapes(
        [LinkShape(loss=0.5, rate_bytes_s=300), LinkShape(loss=0.5, rate_bytes_s=200, delay_ms=1)]
    ) == LinkShape(loss=0.75, rate_bytes_s=200, delay_ms=1)
    spoilt = [LinkShape(duplicate=0.5, reorder=0.1), LinkShape(duplicate=0.5, jitter_ms=3)]
    assert add_shapes(spoilt) == LinkShape(duplicate=0.75, reorder=0.1, jitter_ms=3)
    assert add_disks(
        [DiskFaults(slow_ms=5, full=True), DiskFaults(slow_ms=7, short=True, corrupt_bytes=3)]
    ) == DiskFaults(slow_ms=12, full=True, short=True, corrupt_bytes=3)


# -- power -----------------------------------------------------------------------------------------


def test_power_is_cut_proved_and_restored() -> None:
    async def scene() -> None:
        s = Scene(of_kind("power"))
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == ["power_off n2", "start n2", "heal"]
        assert s.fault()["proved_effective"] is True and s.fault()["proved_healed"] is True

    within(5, scene())


@pytest.mark.parametrize("kind", ["power-all", "kill-all"])
def test_all_nodes_at_once(kind: str) -> None:
    async def scene() -> None:
        s = Scene(fault(kind, nodes=NODES, target="all"))
        await s.perform()
        s.assert_healthy()
        call = {"power-all": "power_off", "kill-all": "kill"}[kind]
        assert sorted(s.cluster.calls[:3]) == [f"{call} {node}" for node in NODES]
        assert sorted(s.cluster.calls[3:6]) == [f"start {node}" for node in NODES]
        assert s.fault()["proved_healed"] is True

    within(5, scene())


def test_power_takes_what_a_kill_had_left_in_memory_and_starts_when_both_are_over() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("kill", number=1, duration_ms=LONG_MS),
            of_kind("power", number=2, at_ms=50, duration_ms=30),
            of_kind("pause", number=3, at_ms=400, node="n1"),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: "resume n1" in s.cluster.calls)
        assert s.cluster.states["n2"] == "exited"
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert [call for call in s.cluster.calls if "n2" in call] == [
            "kill n2",
            "power_off n2",
            "start n2",
        ]

    within(5, scene())


def test_power_takes_a_paused_node_as_it_is() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("pause", number=1, duration_ms=LONG_MS),
            of_kind("power", number=2, at_ms=50, duration_ms=30),
        )
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: s.cluster.calls.count("pause n2") == 2)
        run.cancel()
        await s.runner.heal()
        s.assert_healthy()
        assert s.cluster.calls[:4] == ["pause n2", "power_off n2", "start n2", "pause n2"]
        assert all(r["proved_effective"] and r["proved_healed"] for r in s.recorder.faults())

    within(5, scene())


# -- nodes that give themselves up -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk-error", "disk-full"])
def test_a_node_that_gives_itself_up_is_started_when_its_disk_is_sound(kind: str) -> None:
    async def scene() -> None:
        s = Scene(of_kind(kind, duration_ms=150))
        s.cluster.gives_up.add("n2")
        await s.perform()
        s.assert_healthy()
        assert s.cluster.calls == ["set_disk n2", "set_disk n2", "start n2", "heal"]
        row = s.fault()
        assert row["exited"] == {"n2": [70]}
        assert row["error"] is None and row["proved_healed"] is True
        assert Stats(min_acked=0).check(s.recorder.history()).counts["unproved-fault-count"] == 0

    within(5, scene())


def test_a_node_that_lives_through_a_disk_fault_has_no_exit_in_the_row() -> None:
    async def scene() -> None:
        s = Scene(of_kind("disk-error"))
        await s.perform()
        assert s.fault()["exited"] == {}
        assert "start n2" not in s.cluster.calls

    within(5, scene())


def test_a_kill_and_a_partition_around_a_node_that_gave_itself_up() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("disk-error", number=1, duration_ms=900),
            of_kind("kill", number=2, at_ms=50, duration_ms=100),
            of_kind("pause", number=3, at_ms=100, duration_ms=100),
            fault(
                "partition-one",
                nodes=("n2",),
                links=touching(NODES, ("n2",), outgoing_only=False),
                number=4,
                at_ms=400,
                duration_ms=200,
            ),
            proof_timeout_s=1.0,
        )
        s.cluster.gives_up.add("n2")
        await s.perform()
        s.assert_healthy()
        rows = {row["kind"]: row for row in s.recorder.faults()}
        assert [row["error"] for row in rows.values() if row["error"]] == [
            "skipped: its nodes are already down"
        ]
        assert all(row["proved_healed"] for row in rows.values() if "skipped" not in row)
        assert "kill n2" not in s.cluster.calls  # it was down already
        assert rows["disk-error"]["exited"] == {"n2": [70]}
        # Nothing could be seen of the partition: its node was down throughout.
        assert "changed nothing" in rows["partition-one"]["skipped"]

    within(10, scene())


def test_a_node_that_cannot_start_from_its_corrupted_disk_is_left_down() -> None:
    """An empty one under its name would vote as if it had promised nothing."""

    async def scene() -> None:
        s = Scene(
            of_kind("disk-corrupt", 16, number=1, duration_ms=100),
            of_kind("kill", number=2, at_ms=900, duration_ms=50),
        )
        s.cluster.gives_up.add("n2")
        await s.perform()
        own = [call for call in s.cluster.calls if call.split()[0] in ("start", "wipe")]
        assert own == ["start n2"] and s.cluster.left_down == ["n2"]
        rows = {row["kind"]: row for row in s.recorder.faults()}
        row = rows["disk-corrupt"]
        assert row["exited"] == {"n2": [70, 70]} and row["left_down"] == ["n2"]
        assert "replaced" not in row
        assert rows["kill"]["proved_healed"]  # its end does not start what can't start

    within(5, scene())


def test_a_node_that_cannot_start_gets_an_empty_disk_where_that_is_asked_for() -> None:
    async def scene() -> None:
        s = Scene(of_kind("disk-corrupt", 16, duration_ms=100, parameters={"replace": True}))
        s.cluster.gives_up.add("n2")
        await s.perform()
        s.assert_healthy()
        own = [call for call in s.cluster.calls if call.split()[0] in ("start", "wipe")]
        assert own == ["start n2", "wipe n2", "start n2"]
        row = s.fault()
        assert row["exited"] == {"n2": [70, 70]} and row["replaced"] == ["n2"]
        assert row["proved_healed"] is True

    within(5, scene())


def test_rot_that_is_found_later_is_replaced_when_the_node_restarts() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("disk-corrupt", 16, number=1, duration_ms=50, parameters={"replace": True}),
            of_kind("kill", number=2, at_ms=900, duration_ms=50),
        )
        s.system.claims = {"n2": []}
        run = asyncio.create_task(s.runner.run())
        await s.cluster.until(lambda: "kill n2" in s.cluster.calls)
        s.cluster.gives_up.add("n2")  # it reads what has rotted at its start only
        await run
        await s.runner.heal()
        s.assert_healthy()
        assert "wipe n2" in s.cluster.calls
        assert s.recorder.faults()[1]["proved_healed"] is True

    within(10, scene())


def test_a_node_that_ends_without_an_excuse_is_not_covered_up() -> None:
    """Nobody held its disk: a kill of what is dead already is the backend's error."""

    async def scene() -> None:
        s = Scene(of_kind("disk-error", number=1, node="n1"), of_kind("kill", number=2))
        s.cluster.states["n2"] = "exited"
        await s.runner.run()
        kill = s.recorder.faults()[1]
        assert kill["error"] is not None and kill["proved_effective"] is False
        await s.runner.heal()
        s.assert_healthy()

    within(10, scene())


def test_rows_of_new_kinds_are_plain_data() -> None:
    async def scene() -> None:
        s = Scene(of_kind("disk-corrupt", 16), of_kind("loss", 0.2, number=2))
        s.system.claims = {"n2": []}
        await s.perform()
        assert all(json.loads(row["extra"]) for row in s.recorder.rows)

    within(5, scene())


def test_a_drift_is_proved_while_another_fault_sets_the_same_clock_to_and_fro() -> None:
    async def scene() -> None:
        s = Scene(
            of_kind("clock-strobe", 5000, number=1, duration_ms=4000),
            of_kind("clock-skew", 20_000, number=2, at_ms=500, duration_ms=700),
        )
        s.system.claims = {"n2": []}
        await s.perform()
        for row in s.recorder.faults():
            assert row["proved_effective"] and row["proved_healed"], s.recorder.of("probe")

    within(20, scene())
