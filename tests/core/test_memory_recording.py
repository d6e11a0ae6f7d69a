"""The recorder in memory says exactly what the recorder in a file would have said."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, events_table
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import NEMESIS, Completion, Invocation, OpType
from shalott.core.recording import HistoryWriter, RunRecorder, loop_clock_ns
from shalott.core.rng import Stream
from shalott.harness.run.run import Outcome, RunContext, run
from shalott.harness.run.store import Store
from tests.core.test_recording import Ticks
from tests.harness.conftest import nothing_stays_offered
from tests.world.harness.memory import MemoryWorld, kill_n2, memory_plan

__all__ = ["nothing_stays_offered"]
pytestmark = pytest.mark.unit

KINDS: Sequence[OpType] = ("ok", "fail", "info")
Script = Callable[[RunRecorder, Ticks], None]


def everything(record: RunRecorder, clock: Ticks) -> None:
    """Every way to fill every column."""
    taken = record.invoke(0, "n1", Invocation(f="dequeue", key="q"))
    clock.ns += 7
    put = record.invoke(1, "n2", Invocation(f="enqueue", key="q", value=(5 << 32) + 1))
    clock.ns += 7
    record.complete(taken, Completion(type="ok", value=(5 << 32) + 2, offset=3, redelivered=False))
    record.complete(put, Completion(type="info", error='nobody knows "why": \u00e9\n'))
    never = record.invoke(2, "n3", Invocation(f="enqueue", key="q", value=9))
    extra = {"fault": 1, "seen": None, "links": [["a", "b"]]}
    fault = record.invoke(NEMESIS, "", Invocation(f="kill", extra=extra))
    extra["seen"] = True  # what is recorded is what it was
    probe = record.invoke(NEMESIS, "n1", Invocation(f="probe", extra={"check": "reach a->b"}))
    record.complete(probe, Completion(type="ok", extra={"seen": False}))
    kept = record.invoke(NEMESIS, "n1", Invocation(f="observe", value=4, extra={"kept": 1}))
    record.complete(kept, Completion(type="fail", redelivered=True))
    assert (never, fault) == (2, 3)


def drawn(seed: int) -> Script:
    """Hundreds of calls in any order, completions of old operations among them."""

    def record_drawn(record: RunRecorder, clock: Ticks) -> None:
        rng, under_way = Stream(seed, "script"), list[int]()
        for _ in range(600):
            clock.ns += rng.below(1000)
            if under_way and rng.below(2):
                index = under_way.pop(rng.below(len(under_way)))
                record.complete(
                    index,
                    Completion(
                        type=rng.choice(KINDS),
                        value=rng.choice((None, rng.below(1 << 52))),
                        offset=rng.choice((None, 1, 2)),
                        redelivered=rng.choice((None, True, False)),
                        error=rng.choice((None, "", "empty")),
                        extra=rng.choice((None, {}, {"n": rng.below(9)})),
                    ),
                )
            else:
                process, value = rng.below(5) - 1, rng.choice((None, rng.below(1 << 52)))
                f = rng.choice(("enqueue", "dequeue", "probe"))
                extra = rng.choice((None, {"n": 1}))
                due_ns = rng.choice((None, rng.below(1 << 40)))
                under_way.append(
                    record.invoke(
                        process,
                        "n1",
                        Invocation(f=f, key="q", value=value, extra=extra),
                        due_ns=due_ns,
                    )
                )

    return record_drawn


def nothing(record: RunRecorder, clock: Ticks) -> None:
    pass


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("script", [nothing, everything, *map(drawn, range(5))])
def test_the_same_calls_give_the_same_history(tmp_path: Path, script: Script, close: bool) -> None:
    clocks = Ticks(), Ticks()
    written = HistoryWriter(tmp_path / "history.jsonl", clock_ns=clocks[0], wall_ns=lambda: 5)
    kept = MemoryRecorder(clocks[1], lambda: 5)
    both: tuple[RunRecorder, RunRecorder] = (written, kept)
    for record, clock in zip(both, clocks, strict=True):
        script(record, clock)
        if close:
            record.close()
    written.flush()
    of_file, of_memory = written.history(), kept.history()
    assert of_memory.ops.schema.equals(HISTORY_SCHEMA)
    assert of_memory.ops.equals(of_file.ops)
    assert of_memory.complete == of_file.complete == close
    assert kept.counts == written.counts and kept.start_wall_ns == 5
    assert kept.now_ns() == written.now_ns()
    of_memory.ops.validate(full=True)
    written.close()


def test_events_are_taken_as_they_are() -> None:
    row = {"at_ns": 1, "wall_ns": 1, "run_ns": 1, "node": "n1", "incarnation": 1, "group": "",
           "kind": "role", "role": "running", "epoch": 0, "detail": None}  # fmt: skip
    kept = MemoryRecorder(Ticks(), lambda: 0)
    assert kept.history().events is EMPTY_EVENTS
    assert kept.history(events_table([row])).events.num_rows == 1


def test_a_whole_run_is_recorded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorders: list[MemoryRecorder] = []

    def in_memory(path: Path) -> RunRecorder:
        recorders.append(MemoryRecorder(loop_clock_ns(), lambda: 1_700_000_000_000_000_000))
        return recorders[-1]

    memory = MemoryWorld(make_recorder=in_memory)
    memory.offer()
    plan, store = memory_plan(faults=(kill_n2(),)), Store(tmp_path)
    directory = store.create(plan.name)

    async def main() -> Outcome:
        return await run(plan, directory, memory.world(plan), RunContext(command="again"))

    outcome = asyncio.run(main())
    assert outcome.valid is True and outcome.exit_code == 0, outcome
    stored = directory.load_history()
    assert stored.complete and stored.ops.equals(recorders[0].history().ops)
    assert stored.events.num_rows == 3
    assert not directory.recording.exists()


@pytest.mark.explore
def test_what_pyarrow_imports_late_is_there_before_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("import sys\nsys.asked_for = True\nraise ImportError\n")
    code = "import sys, shalott.core.memory_recording\nsys.exit(not hasattr(sys, 'asked_for'))"
    search = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": search}, check=False
    )
    assert done.returncode == 0
