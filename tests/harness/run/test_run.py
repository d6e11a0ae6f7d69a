"""Whole runs in memory: the good one, the planted losses, and everything that may break."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from shalott.cluster.nodes import HelperEnd, NodeExit
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.doors import load_module
from shalott.core.errors import BootFailed, Definite, HarnessError, Indefinite
from shalott.core.op import Invocation
from shalott.core.plan import Plan
from shalott.core.recording import HistoryWriter, record_to_file
from shalott.harness.report.results import read_results
from shalott.harness.run import stage
from shalott.harness.run.run import Outcome, RunContext, run
from shalott.harness.run.store import RunDirectory, Store
from tests.checkers.runs.test_extra_checkers import PLUG_IN
from tests.plug_ins import PlugIns, plug_ins
from tests.world.clock.latency import sim
from tests.world.clock.turns import turns
from tests.world.harness.memory import MemorySystem, MemoryWorld, Trap, kill_n2, memory_plan

pytestmark = pytest.mark.unit

__all__ = ["plug_ins"]


class Runner:
    """Runs plans in a world in memory, in virtual time, and keeps what there is to look at."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self._monkeypatch = monkeypatch
        self.directory: RunDirectory | None = None

    def __call__(
        self, memory: MemoryWorld, plan: Plan, interrupt_after_s: float | None = None
    ) -> Outcome:
        memory.offer()
        self.directory = self.store.create(plan.name)
        loop = SimLoop()
        if memory.make_recorder is record_to_file:
            memory.make_recorder = lambda path: HistoryWriter(path, clock_ns=virtual_ns)

        async def main() -> Outcome:
            assert self.directory is not None
            interrupt = asyncio.Event()
            if interrupt_after_s is not None:
                asyncio.get_running_loop().call_later(interrupt_after_s, interrupt.set)
            return await run(
                plan,
                self.directory,
                memory.world(plan),
                RunContext(command="again"),
                interrupt=interrupt,
            )

        return loop.run(main(), SimProcess("harness", fenced=False))


def virtual_ns() -> int:
    return sim().now_ns


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(Store(tmp_path / "store"), monkeypatch)


def phases(outcome: Outcome) -> list[str]:
    rows = outcome.directory.load_history().ops.to_pylist()
    return [json.loads(row["extra"])["phase"] for row in rows if row["f"] == "phase"]


def test_a_good_run_is_valid_and_leaves_every_file(runs: Runner) -> None:
    memory = MemoryWorld()
    outcome = runs(memory, memory_plan(faults=(kill_n2(),)))
    assert (outcome.valid, outcome.failures, outcome.exit_code) == (True, (), 0), outcome.results
    files = {path.name for path in outcome.directory.path.iterdir()}
    assert files == {
        "plan.json", "history.parquet", "events.parquet", "results.json", "report.html",
        "junit.xml", "log.txt", "nodes", "SHA256SUMS",
    }  # fmt: skip
    assert phases(outcome) == ["boot", "load", "heal", "settle", "drain", "end"]
    assert memory.cluster.calls[-2:] == ["collect", "teardown"]
    history = outcome.directory.load_history()
    assert history.complete and history.events.num_rows == 3
    fs = set(history.ops["f"].to_pylist())
    assert fs == {"enqueue", "dequeue", "phase", "observe", "operator", "kill"}
    assert outcome.directory.load_plan() == memory_plan(faults=(kill_n2(),))
    assert (runs.store.root / "latest").resolve() == outcome.directory.path.resolve()


def test_lost_messages_make_the_run_invalid(runs: Runner) -> None:
    outcome = runs(MemoryWorld(Trap(lose_every=4)), memory_plan())
    assert (outcome.valid, outcome.exit_code) == (False, 1)
    lost = next(r for r in outcome.results if r.checker == "total-queue").counts["lost-count"]
    rows = outcome.directory.load_history().ops.to_pylist()
    assert lost == sum(row["f"] == "enqueue" and row["type"] == "ok" for row in rows) // 4


def test_what_a_client_that_is_gone_held_is_drained_when_it_is_back(
    runs: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "PAUSE_S", 0.01)
    memory = MemoryWorld(Trap(holds_every=4))
    outcome = runs(memory, memory_plan())
    assert outcome.valid is True, outcome.results
    assert memory.service.enqueued > 4
    assert not memory.service.held and not memory.service.queues["q.1"]


def test_what_a_client_that_is_gone_never_gives_back_is_lost(
    runs: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "PAUSE_S", 0.01)
    monkeypatch.setattr(stage, "WITHIN_S", 0.1)
    outcome = runs(MemoryWorld(Trap(holds_every=4, looks_until_back=10_000)), memory_plan())
    assert outcome.valid is False


def test_a_checker_of_somebody_elses_makes_the_run_invalid(runs: Runner, plug_ins: PlugIns) -> None:
    plug_ins.module("mine", PLUG_IN.replace("1_000_000", "0"))
    load_module("mine")
    outcome = runs(MemoryWorld(), memory_plan())
    assert (outcome.valid, outcome.exit_code) == (False, 1)
    stored = read_results(outcome.directory.path / "results.json")
    (late,) = [result for result in stored.results if result.checker == "late"]
    assert (stored.valid, late.valid, late.anomalies[0].kind) == (False, False, "late")
    others = [r.valid for r in stored.results if r.checker != "late"]
    assert len(others) >= 5 and all(valid is True for valid in others)
    assert late.anomalies[0].summary.rstrip(".") in stored.headline
    for file in ("report.html", "junit.xml"):
        assert "were late" in (outcome.directory.path / file).read_text()


def test_a_checker_of_somebody_elses_that_crashes_makes_the_run_unknown(
    runs: Runner, plug_ins: PlugIns
) -> None:
    plug_ins.module("mine", PLUG_IN.replace("late = [", "late = 1 / 0, ["))
    load_module("mine")
    outcome = runs(MemoryWorld(), memory_plan())
    assert (outcome.valid, outcome.failures, outcome.exit_code) == ("unknown", (), 2)
    stored = read_results(outcome.directory.path / "results.json")
    assert stored.headline.startswith("Unknown: The checker late crashed: ZeroDivisionError")


def test_messages_delivered_twice_are_counted_but_allowed(runs: Runner) -> None:
    outcome = runs(MemoryWorld(Trap(repeat_every=3)), memory_plan())
    assert outcome.valid is True
    total = next(r for r in outcome.results if r.checker == "total-queue")
    assert total.counts["duplicated-count"] > 0


def test_what_a_workload_sets_up_is_there_before_the_load_and_in_no_history(runs: Runner) -> None:
    memory = MemoryWorld(setup=(Invocation(f="enqueue", key="q.1", value=99),))
    outcome = runs(memory, memory_plan())
    rows = outcome.directory.load_history().ops.to_pylist()
    assert not any(row["f"] == "enqueue" and row["value"] == 99 for row in rows)
    assert sum(row["f"] == "dequeue" and row["value"] == 99 for row in rows) == 1


def test_a_workload_that_can_not_be_set_up_has_not_booted(runs: Runner) -> None:
    memory = MemoryWorld(setup=(Invocation(f="enqueue", key="q.1", value=1), Invocation(f="sing")))
    outcome = runs(memory, memory_plan())
    assert outcome.exit_code == 255
    assert "the workload can't be set up: no sing here" in outcome.failures[0]
    assert phases(outcome) == ["boot"]


@pytest.mark.parametrize("fails", [Indefinite("no answer"), Definite("no queue yet")])
def test_what_may_be_set_up_twice_is_asked_for_again(runs: Runner, fails: Exception) -> None:
    setup = (
        Invocation(f="enqueue", key="q.1", value=98),
        Invocation(f="enqueue", key="q.1", value=99),
    )
    memory = MemoryWorld(Trap(refusals=[fails, fails]), setup=setup, setup_repeats=True)
    outcome = runs(memory, memory_plan())
    assert not outcome.failures
    rows = outcome.directory.load_history().ops.to_pylist()
    assert sum(row["f"] == "dequeue" and row["value"] in (98, 99) for row in rows) == 2


def test_what_may_not_be_set_up_twice_is_asked_for_once(runs: Runner) -> None:
    setup = (Invocation(f="enqueue", key="q.1", value=1),)
    memory = MemoryWorld(Trap(refusals=[Indefinite("no answer")]), setup=setup)
    outcome = runs(memory, memory_plan())
    assert "the workload can't be set up: no answer" in outcome.failures[0]


def test_a_set_up_that_is_refused_again_and_again_has_not_booted(
    runs: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "SETUP_PAUSE_S", 0)
    memory = MemoryWorld(setup=(Invocation(f="sing"),), setup_repeats=True)
    outcome = runs(memory, memory_plan())
    assert "the workload can't be set up: no sing here" in outcome.failures[0]


def test_a_cluster_that_does_not_settle_is_drained_and_said_so(runs: Runner) -> None:
    outcome = runs(MemoryWorld(Trap(settles=False)), memory_plan())
    assert outcome.valid == "unknown"
    assert any("had not settled" in note for note in outcome.notes)


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_node_that_dies_of_a_healed_fault_is_started_once_more(
    runs: Runner, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    memory = MemoryWorld()

    async def die_and_settle(*ignored: object) -> bool:
        for _ in range(deaths):
            memory.service.down["n2"] = True
            memory.cluster.on_exit(NodeExit(node="n2", exit_code=70))
            for _ in range(100):
                await turns()
        return not memory.service.down["n2"]

    monkeypatch.setattr(MemorySystem, "await_settled", die_and_settle)
    outcome = runs(memory, memory_plan())
    died = [row for row in outcome.directory.load_history().ops.to_pylist() if row["f"] == "died"]
    assert len(died) == deaths
    assert settle_row(outcome)["settled"] is (deaths == 1)


def settle_row(outcome: Outcome) -> dict[str, object]:
    rows = outcome.directory.load_history().ops.to_pylist()
    found = [json.loads(row["extra"]) for row in rows if row["f"] == "phase"]
    (settle,) = [extra for extra in found if extra["phase"] == "settle"]
    assert isinstance(settle, dict)
    return settle


def test_the_settle_row_says_whether_it_settled_and_what_was_missing(runs: Runner) -> None:
    assert settle_row(runs(MemoryWorld(), memory_plan())) == {
        "phase": "settle", "settled": True, "reason": ""
    }  # fmt: skip
    trap = Trap(settles=False, parted_from=("n3",))
    assert settle_row(runs(MemoryWorld(trap), memory_plan())) == {
        "phase": "settle", "settled": False, "reason": "n1 reports a partition from n3"
    }  # fmt: skip
    restless = settle_row(runs(MemoryWorld(Trap(settles=False)), memory_plan()))
    assert restless["reason"] == "it changed from look to look"


CRASHES = [
    ("boot", ["boot"]),
    ("await_ready", ["boot"]),
    ("configure", ["boot"]),
    ("nemesis.run", ["boot", "load"]),
    ("kill", ["boot", "load"]),
    ("heal", ["boot", "load", "heal"]),
    ("nemesis.heal", ["boot", "load"]),
    ("mend_partition", ["boot", "load", "heal"]),
    ("await_settled", ["boot", "load", "heal", "settle"]),
]


@pytest.mark.parametrize(("method", "reached"), CRASHES)
@pytest.mark.parametrize("error", [RuntimeError, HarnessError])
def test_a_crash_of_the_harness_saves_heals_and_tears_down(
    runs: Runner, method: str, reached: list[str], error: type[Exception]
) -> None:
    memory = MemoryWorld(Trap(crash=method, error=lambda: error("planted crash")))
    outcome = runs(memory, memory_plan(faults=(kill_n2(),)))
    assert outcome.exit_code == 255
    assert "planted crash" in outcome.failures[0]
    assert outcome.valid == "unknown"
    assert phases(outcome) == reached
    assert "collect" in memory.cluster.calls and memory.cluster.calls[-1] == "teardown"
    assert memory.cluster.calls.count("teardown") == 1
    results = json.loads((outcome.directory.path / "results.json").read_text())
    assert results["valid"] == "unknown"
    assert "planted crash" in (outcome.directory.path / "report.html").read_text()
    assert "planted crash" in (outcome.directory.path / "log.txt").read_text()


def test_a_node_that_cannot_be_asked_is_an_observation_too(runs: Runner) -> None:
    trap = Trap(crash="observe", error=lambda: HarnessError("no answer"))
    outcome = runs(MemoryWorld(trap), memory_plan())
    assert not outcome.failures
    rows = outcome.directory.load_history().ops.to_pylist()
    seen = [row for row in rows if row["f"] == "observe"]
    assert len(seen) > 6 and {row["node"] for row in seen} == {"n1", "n2", "n3"}
    assert {(row["type"], row["error"]) for row in seen} <= {("info", "no answer"), ("info", None)}


def test_an_observation_that_swallows_its_end_does_not_hold_the_run(
    runs: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clients of others do that clean up after whatever ended them."""
    observe = MemorySystem.observe

    async def swallow(self: MemorySystem, cluster: object, node: str) -> Mapping[str, object]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.04)
        return await observe(self, cluster, node)

    monkeypatch.setattr(MemorySystem, "observe", swallow)
    outcome = runs(MemoryWorld(), memory_plan())
    assert phases(outcome)[-1] == "end"
    assert not outcome.failures


@pytest.mark.parametrize("method", ["collect", "teardown", "read_events"])
def test_a_crash_after_the_experiment_is_no_verdict(runs: Runner, method: str) -> None:
    memory = MemoryWorld(Trap(crash=method, lose_every=4))
    outcome = runs(memory, memory_plan())
    assert (outcome.valid, outcome.exit_code) == ("unknown", 255)
    no_verdict(outcome)
    assert phases(outcome)[-1] == "end"
    assert "teardown" in memory.cluster.calls
    assert outcome.directory.load_history().complete


def no_verdict(outcome: Outcome) -> None:
    """What every file says of a run that failed, though messages were lost in it."""
    directory = outcome.directory.path
    stored = read_results(directory / "results.json")
    assert stored.valid == "unknown" and stored.headline.startswith("Unknown: "), stored.headline
    assert all(result.valid is not False for result in stored.results)
    (lost,) = [each for each in stored.results if each.checker == "total-queue"]
    assert lost.valid == "unknown" and lost.counts["lost-count"] > 0, "what was seen is kept"
    junit = (directory / "junit.xml").read_text()
    assert "<failure" not in junit and "<error" in junit
    assert "Invalid" not in (directory / "report.html").read_text()


def test_the_end_of_a_helper_makes_the_run_unknown_and_excuses_its_nodes(
    runs: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryWorld(Trap(lose_every=4))

    async def lose_the_disk(*asked: object) -> bool:
        memory.cluster.on_exit(NodeExit(node="n2", exit_code=1))
        ended = HelperEnd(helper="file system", node="n2", reason="the disk's process ended")
        memory.cluster.on_helper_end(ended)
        return True

    monkeypatch.setattr(MemorySystem, "await_settled", lose_the_disk)
    outcome = runs(memory, memory_plan())
    assert (outcome.valid, outcome.exit_code) == ("unknown", 2)
    no_verdict(outcome)
    stored = read_results(outcome.directory.path / "results.json")
    assert "the disk's process ended" in stored.headline
    (deaths,) = [each for each in stored.results if each.checker == "deaths"]
    assert (deaths.valid, deaths.counts["died-count"]) == (True, 0)


def test_disks_are_read_again_before_the_drain_if_the_plan_says_so(runs: Runner) -> None:
    memory = MemoryWorld()
    outcome = runs(memory, msgspec.structs.replace(memory_plan(), reread=True))
    assert phases(outcome) == ["boot", "load", "heal", "settle", "reread", "drain", "end"]
    assert (outcome.valid, outcome.exit_code) == (True, 0), outcome.results
    assert memory.cluster.calls.count("kill") == memory.cluster.calls.count("start") == 3
    rows = outcome.directory.load_history().ops.to_pylist()
    restarts = [json.loads(row["extra"]) for row in rows if row["f"] == "operator"]
    assert {"restarted": ["n1", "n2", "n3"]} in restarts


def test_boot_failed_is_told_as_the_system_names_it(runs: Runner) -> None:
    trap = Trap(crash="await_ready", error=lambda: BootFailed("n2 exited with code 1"))
    outcome = runs(MemoryWorld(trap), memory_plan())
    assert outcome.failures == ("the phase boot: n2 exited with code 1",)


@pytest.mark.parametrize("where", ["boot", "mend_partition", "await_settled", ""])
def test_an_interrupt_in_any_phase_ends_in_order(runs: Runner, where: str) -> None:
    memory = MemoryWorld(Trap(hang=where))
    plan = memory_plan(time_limit_ms=200 if where else 60_000)
    outcome = runs(memory, plan, interrupt_after_s=0.5)
    assert outcome.interrupted and (outcome.valid, outcome.exit_code) == ("unknown", 2)
    assert any("interrupted" in note for note in outcome.notes)
    assert memory.cluster.calls[-2:] == ["collect", "teardown"]
    assert outcome.directory.load_history().complete


def test_the_end_of_the_load_ends_the_nemesis(runs: Runner) -> None:
    outcome = runs(MemoryWorld(Trap(hang="nemesis.run")), memory_plan())
    assert outcome.exit_code == 0


def test_an_interrupt_under_a_fault_heals_it(runs: Runner) -> None:
    memory = MemoryWorld()
    plan = memory_plan(time_limit_ms=5000, faults=(kill_n2(at_ms=50, duration_ms=4000),))
    outcome = runs(memory, plan, interrupt_after_s=0.4)
    assert outcome.exit_code == 2
    assert memory.nemeses[0].in_force == []
    rows = outcome.directory.load_history().ops.to_pylist()
    kill = next(row for row in rows if row["f"] == "kill")
    assert json.loads(kill["extra"])["proved_healed"] is True
    # Everything still in the queue is not lost: nobody asked for it.
    total = next(r for r in outcome.results if r.checker == "total-queue")
    assert total.valid == "unknown" and total.counts["lost-provably-count"] == 0


def test_targets_found_when_a_fault_fired_are_written_back(runs: Runner) -> None:
    action = msgspec.structs.replace(kill_n2(), target="master", nodes=None)
    outcome = runs(MemoryWorld(), memory_plan(faults=(action,)))
    assert outcome.directory.load_plan().faults[0].nodes == ("n1",)


def test_a_cluster_left_running_is_healed_and_its_nodes_started(runs: Runner) -> None:
    memory = MemoryWorld()
    plan = memory_plan(
        time_limit_ms=5000, faults=(kill_n2(at_ms=50, duration_ms=4000),), leave_running=True
    )
    runs(memory, plan, interrupt_after_s=0.4)
    assert "teardown" not in memory.cluster.calls
    assert not any(memory.service.down.values())


def test_a_run_cancelled_from_outside_still_ends_in_order(
    runs: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = MemoryWorld()
    memory.offer()
    plan = memory_plan(time_limit_ms=5000)
    directory = runs.store.create(plan.name)

    async def main() -> Outcome:
        task = asyncio.create_task(
            run(plan, directory, memory.world(plan), RunContext(command="again"))
        )
        asyncio.get_running_loop().call_later(0.3, task.cancel)
        return await task

    outcome = asyncio.run(main())
    assert outcome.interrupted and outcome.exit_code == 2
    assert memory.cluster.calls[-1] == "teardown"


def test_a_full_disk_stops_the_run_and_keeps_what_was_recorded(runs: Runner) -> None:
    from tests.core.test_recording import FullDisk

    def small_disk(path: Path) -> HistoryWriter:
        return HistoryWriter(path, clock_ns=virtual_ns, write=FullDisk(room=20_000))

    memory = MemoryWorld(make_recorder=small_disk)
    outcome = runs(memory, memory_plan(time_limit_ms=20_000))
    assert outcome.exit_code == 255
    assert "No space left on device" in outcome.failures[0]
    assert "free some space" in outcome.failures[0]
    assert len(outcome.failures) == 1
    history = outcome.directory.load_history()
    assert not history.complete and history.ops.num_rows > 50
    assert memory.cluster.calls[-1] == "teardown"
