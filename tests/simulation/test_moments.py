"""Faults in a moment of a node: a planted defect that random times do not find, each trigger does.

The defects are in windows of about a millisecond: a compaction that syncs its name and not its
content, one that removes the old file before it renames the new one, and KB-RMQ-22, which promotes
a mirror that is not synchronised.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.base import journal
from shalott.broker.base.batches import Scanner
from shalott.broker.base.disk import File, write_all
from shalott.broker.base.journal import Journal, Records
from shalott.broker.rabbit.storage import queue_index
from shalott.core.oracles import DISK_COPIES, SYNC_FIRST
from shalott.core.plan import (
    FaultAction,
    Plan,
    SchedulePlan,
    SimPlan,
    Trigger,
    decode_plan,
    dump_plan,
)
from shalott.core.rng import Stream
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.shrinking.candidates import calmer, measure
from tests.simulation.test_triggers import fault, rows, two_kills

pytestmark = pytest.mark.sim

SEEDS = range(1, 11)
COMPACTED = Trigger(kind="disk", what="sync", node="n1", files="queues/*", moment="after")
RENAMED = Trigger(kind="disk", what="rename", node="n1", files="queues/*/journal", moment="before")
MOMENTS = {
    "role": Trigger(kind="observed", what="role", node="n2", moment="after"),
    "epoch": Trigger(kind="observed", what="epoch", moment="after"),
    "event": Trigger(kind="event", what="sync_started", node="n1", moment="after"),
    "message": Trigger(kind="message", what="SyncBatch", sender="n1", moment="after"),
    "message, before": Trigger(kind="message", what="SyncBatch", sender="n1", moment="before"),
    "message, sent": Trigger(kind="message", what="SyncBatch", sender="n1", moment="sent"),
}


def one_node(seed: int, at_ms: int, when: Trigger | None, kind: str = "power") -> Plan:
    request = Request(
        profile="safe",
        nodes="1",
        concurrency="4",
        rate=40,
        time_limit="9",
        nemesis="none",
        power_loss="all",
        given={"partition-mode": "ignore"},
    )
    plan = make_plan(request, backend="sim", seed=seed)
    lost = fault(1, kind, at_ms, 1500, target="n1", nodes=("n1",), when=when or msgspec.UNSET)
    return msgspec.structs.replace(plan, faults=(lost,))


class Unsynced:
    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    async def sync(self) -> None:
        """Forgotten."""


@pytest.fixture
def small_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_index, "COMPACT_MIN_GARBAGE_BYTES", 4000)


@pytest.fixture
def forgotten_sync(small_journals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction syncs its new file's name, and not what is in it."""
    sound = Journal._write_replacement

    async def forget(own: Journal, file: File, records: Records) -> tuple[int, int]:
        return await sound(own, Unsynced(file), records)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "_write_replacement", forget)


@pytest.mark.usefixtures("forgotten_sync")
def test_power_that_goes_at_a_sync_finds_what_a_compaction_forgot() -> None:
    first = simulate(one_node(1, 500, COMPACTED))
    assert "lost" in first.anomalies
    assert simulate(one_node(1, 500, COMPACTED)).digest == first.digest
    assert simulate(first.plan).digest == first.digest
    (waited,) = rows(first, "trigger")
    (lost,) = rows(first, "power")
    assert waited["extra"]["seen"].startswith("sync of directory queues/")
    assert waited["complete_ns"] == lost["extra"]["effective_ns"], "no time passes in between"


@pytest.mark.usefixtures("small_journals")
def test_the_sound_journal_survives_the_same_moment() -> None:
    outcome = simulate(one_node(1, 500, COMPACTED))
    assert outcome.valid is True and rows(outcome, "trigger")[0]["extra"]["fired"]


@pytest.mark.usefixtures("forgotten_sync")
@pytest.mark.parametrize("seed", SEEDS)
def test_at_random_times_no_client_finds_it(seed: int) -> None:
    """An oracle may, which asks disks at every acknowledgement."""
    at_ms = 500 + Stream(seed, "time of the power loss").below(6500)
    assert {*simulate(one_node(seed, at_ms, None)).anomalies} <= {SYNC_FIRST.kind, DISK_COPIES.kind}


@pytest.fixture
def early_removal(small_journals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction removes the old file, then gives the new one its name."""
    sound = Journal._write_replacement

    async def remove(own: Journal, file: File, records: Records) -> tuple[int, int]:
        written = await sound(own, file, records)
        await own._disk.remove(own._path)
        return written

    monkeypatch.setattr(Journal, "_write_replacement", remove)


@pytest.mark.usefixtures("early_removal")
def test_a_kill_before_a_rename_finds_what_a_compaction_removed() -> None:
    first = simulate(one_node(1, 500, RENAMED, "kill"))
    assert "lost" in first.anomalies
    assert rows(first, "trigger")[0]["extra"]["fired"]


@pytest.mark.usefixtures("early_removal")
@pytest.mark.parametrize("seed", SEEDS)
def test_at_random_times_a_kill_misses_the_removal(seed: int) -> None:
    at_ms = 500 + Stream(seed, "time of the kill").below(6500)
    assert simulate(one_node(seed, at_ms, None, "kill")).valid is True


@pytest.fixture
def hasty_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts empties its journal before it writes again what it found."""
    sound = journal._recover

    async def empty(file: File, path: str, scanner: Scanner) -> None:
        found = await file.pread(1 << 20, 0)
        await file.truncate(0)
        await file.sync()
        await write_all(file, found, 0)
        await sound(file, path, scanner)

    monkeypatch.setattr(journal, "_recover", empty)


@pytest.mark.usefixtures("hasty_start")
def test_a_node_that_is_killed_again_while_it_starts_loses_its_journal() -> None:
    plan = one_node(1, 3000, None, "kill")
    assert simulate(plan).valid is True
    (first,) = plan.faults
    again = msgspec.structs.replace(
        first, id=2, at_ms=3001, duration_ms=1000, target="there", nodes=None,
        when=Trigger(kind="disk", what="sync", fault=1, moment="after", files="queues/*/journal"),
    )  # fmt: skip
    outcome = simulate(msgspec.structs.replace(plan, faults=(first, again)))
    assert "lost" in outcome.anomalies
    assert outcome.plan.faults[1].nodes == ("n1",)
    assert simulate(outcome.plan).digest == outcome.digest


def test_another_node_is_hit_when_the_second_kill_is_over() -> None:
    """The first node is up and synchronised long before it is killed again."""
    first = fault(1, "kill", 2000, 1000, target="n2", nodes=("n2",), settle=True)
    late = Trigger(kind="disk", what="sync", fault=1, count=60, moment="before")
    again = fault(2, "kill", 2001, 1500, target="there", when=late)
    other = fault(3, "kill", 3500, 1000, target="n1", nodes=("n1",), settle=True)
    plan = msgspec.structs.replace(two_kills(1, 3000, None, ""), faults=(first, again, other))
    outcome = simulate(plan)
    assert outcome.valid is True
    _, second, third = sorted(
        (row["extra"] for row in rows(outcome, "kill")), key=lambda e: e["fault"]
    )
    assert second["nodes"] == ["n2"] and second["proved_effective"]
    assert second["effective_ns"] > 3_500_000_000
    assert third["effective_ns"] > second["healed_ns"]


def at_moment(when: Trigger, bug: str = "KB-RMQ-22", **more: Any) -> SimOutcome:
    """The mirror is killed and comes back; its master is killed in a moment of that."""
    plan = two_kills(1, 3000, when, bug)
    mirror, master = plan.faults
    hit = msgspec.structs.replace(master, **{"target": "n1", "nodes": ("n1",), **more})
    outcome = simulate(msgspec.structs.replace(plan, faults=(mirror, hit)))
    assert outcome.error is None
    return outcome


@pytest.mark.parametrize("name", MOMENTS)
def test_each_moment_of_a_synchronisation_finds_the_bug_in_one_run(name: str) -> None:
    """Random times: tests/simulation/test_triggers.py."""
    outcome = at_moment(MOMENTS[name])
    (waited,) = rows(outcome, "trigger")
    assert waited["extra"]["fired"], waited
    assert waited["complete_ns"] == rows(outcome, "kill")[1]["extra"]["effective_ns"]
    assert "lost" in outcome.anomalies
    assert outcome.sometimes[f"trigger_{name.partition(',')[0]}"] == 1


def test_the_sound_broker_survives_a_kill_with_a_message_on_its_way() -> None:
    assert at_moment(MOMENTS["message, before"], "").valid is True


def test_a_set_that_loses_a_member_pulls_at_once() -> None:
    outcome = at_moment(Trigger(kind="observed", what="set", node="n1", moment="after"), at_ms=1000)
    (waited,) = rows(outcome, "trigger")
    assert waited["extra"]["seen"] == "the set changed of shalott.1"
    assert waited["complete_ns"] == rows(outcome, "kill")[1]["extra"]["effective_ns"]


def test_the_node_where_it_happens_can_be_the_target() -> None:
    outcome = at_moment(MOMENTS["message, sent"], "", target="there", nodes=None)
    assert rows(outcome, "kill")[1]["extra"]["nodes"] == ["n1"]
    resolved: tuple[FaultAction, ...] = outcome.plan.faults
    assert resolved[1].nodes == ("n1",)
    assert simulate(outcome.plan).digest == outcome.digest


def test_a_moment_that_never_comes_is_told() -> None:
    never = msgspec.structs.replace(COMPACTED, files="no/such/file", within_ms=500)
    outcome = simulate(one_node(1, 1000, never))
    assert outcome.valid == "unknown" and outcome.sometimes["trigger_never"] == 1
    assert "did not fire within 500 ms" in rows(outcome, "power")[0]["extra"]["skipped"]


def test_a_node_that_was_held_and_not_killed_goes_on() -> None:
    """A pause takes hold of it where it stands; a call under way is done when it goes on."""
    when = Trigger(kind="disk", what="write", node="n1", count=3, moment="before")
    outcome = simulate(one_node(1, 1000, when, "pause"))
    assert outcome.valid is True
    (paused,) = rows(outcome, "pause")
    assert paused["extra"]["proved_effective"] and paused["extra"]["proved_healed"]


@pytest.mark.parametrize("by", ["process", "message"])
def test_a_schedule_repeats_and_is_taken_away_by_a_shrinker(by: Any) -> None:
    own = SchedulePlan(by=by, seed=3, window_us=5000, points=(50, 700))
    plan = one_node(1, 1000, None)
    plan = msgspec.structs.replace(plan, sim=SimPlan(seed=1, schedule=own))
    first = simulate(plan)
    assert first.valid is True
    assert simulate(decode_plan(dump_plan(plan), "the plan")).digest == first.digest
    bare = msgspec.structs.replace(plan, sim=SimPlan(seed=1))
    assert simulate(bare).digest != first.digest
    tried = [each.sim.schedule for each in calmer(plan) if each.sim]
    assert msgspec.UNSET in tried and msgspec.structs.replace(own, points=(700,)) in tried
    assert all(measure(each) < measure(plan) for each in calmer(plan))


def test_a_suspended_node_takes_no_time_for_what_it_did_not_live() -> None:
    """Its monotonic clock is behind the wall clock by as long as it stood still."""
    outcome = simulate(one_node(1, 2000, None, "suspend"))
    (stood,) = rows(outcome, "suspend")
    assert outcome.valid is True and stood["extra"]["proved_healed"]
    stood_ns = stood["extra"]["stood_ms"]["n1"] * 1e6
    assert 1.4e9 < stood_ns < 1.6e9
    gaps = [each["run_ns"] - each["at_ns"] for each in outcome.history.events.to_pylist()]
    assert abs(max(gaps) - min(gaps) - stood_ns) < 1e6
    assert simulate(outcome.plan).digest == outcome.digest


def test_connections_that_are_held_back_are_overtaken() -> None:
    plan = two_kills(1, 3000, None, "")
    held = fault(1, "hold-back", 2000, 1500, target="n1", nodes=("n1",), links=(("n1", "n2"),))
    outcome = simulate(msgspec.structs.replace(plan, faults=(held,)))
    (row,) = rows(outcome, "hold-back")
    assert row["extra"]["proved_effective"] and row["extra"]["proved_healed"]
    assert outcome.valid is True
