"""The progress line tells phase, time, rates and faults."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from shalott.core.recording import HistoryWriter
from shalott.core.steps import tell_step
from shalott.harness.run.stage import Stage
from shalott.harness.run.terminal import Rates, pasted, progress_text, watch_plainly
from tests.world.clock import virtual
from tests.world.harness.memory import MemoryWorld, Trap, memory_plan

pytestmark = pytest.mark.unit


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    plan, memory = memory_plan(time_limit_ms=60_000), MemoryWorld()
    record = HistoryWriter(tmp_path / "history.jsonl")
    record.close()
    world = memory.world(plan)
    return Stage(plan, world, memory.record.build(plan), record, world.make_nemesis(record))


def test_the_line_tells_everything(stage: Stage) -> None:
    stage.phase = "load"
    stage.record.counts = {"ok": 1234, "fail": 5, "info": 1}
    stage.nemesis.in_force.append("partition-halves n1")
    line = progress_text(stage, Rates(ok=199.6, fail=1, info=0)).plain
    assert line.startswith("load") and "/60 s" in line
    assert "ok 200/s (1,234)" in line and "fail 1/s (5)" in line and "info 0/s (1)" in line
    assert line.endswith("faults: partition-halves n1")


class Told(io.StringIO):
    """A stream that says when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed = asyncio.Event()

    def flush(self) -> None:
        self.flushed.set()


def test_the_plain_watch_writes_a_line_at_every_new_phase(stage: Stage) -> None:
    stream = Told()

    async def main() -> None:
        watch = asyncio.create_task(watch_plainly(stage, stream, interval_s=3600))
        for phase in ("boot", "load", "drain"):
            stage.phase = phase
            stream.flushed.clear()
            async with asyncio.timeout(10):
                await stream.flushed.wait()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    virtual.run(main())
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["boot", "load", "drain"]


def lines_until(stage: Stage, holds: Callable[[list[str]], bool], act: Callable[[], None]) -> None:
    """Watch until the lines written hold; ``act`` is done when the watch has begun."""
    stream = Told()

    async def main() -> None:
        watch = asyncio.create_task(watch_plainly(stage, stream, interval_s=3600))
        async with asyncio.timeout(10):
            await stream.flushed.wait()
            act()
            while not holds(stream.getvalue().splitlines()):
                stream.flushed.clear()
                await stream.flushed.wait()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    virtual.run(main())


def test_steps_of_a_build_stand_in_place_of_operations(stage: Stage) -> None:
    stage.phase = "boot"
    step = "building the node image (broker), step 3 of 6, once, about a minute"

    def told(lines: list[str]) -> bool:
        assert not any("ok" in line.split() for line in lines)
        return any(line.endswith(step) for line in lines)

    lines_until(stage, told, lambda: tell_step(step))


def test_what_a_settling_cluster_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shalott.harness.run.terminal.IDLE_INTERVAL_S", 0.0)
    plan = memory_plan(time_limit_ms=60_000)
    memory = MemoryWorld(Trap(settles=False, parted_from=("n3",)))
    record = HistoryWriter(tmp_path / "parted.jsonl")
    record.close()
    world = memory.world(plan)
    parted = Stage(plan, world, memory.record.build(plan), record, world.make_nemesis(record))
    parted.phase = "settle"
    awaited = "awaiting: n1 reports a partition from n3"
    lines_until(parted, lambda lines: any(awaited in line for line in lines), lambda: None)


@pytest.mark.parametrize(
    ("program", "on_path", "said"),
    [
        ("a dir/shalott", "", "'{place}/a dir/shalott' test --seed 1"),
        ("a dir/shalott", "/usr/local/bin/shalott", "shalott test --seed 1"),
        ("a dir/pytest", "", "shalott test --seed 1"),
    ],
)
def test_a_command_can_be_pasted_where_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, on_path: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a dir").mkdir()
    Path(program).touch()
    monkeypatch.setattr("sys.argv", [program, "test"])
    monkeypatch.setattr("shutil.which", lambda name: on_path or None)
    assert pasted("shalott test --seed 1") == said.format(place=tmp_path)
