"""A live run as it is followed: what is told of a recording while it grows, and of its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from shalott.core.recording import Record
from shalott.harness.serve.live_runs import (
    SILENT_NS,
    TROUBLES_MAX,
    Follower,
    LivePart,
    LiveRuns,
    follow,
)
from shalott.harness.serve.request import StoreFiles
from tests.harness.serve.conftest import Asking
from tests.world.harness.served_store import LIVE, recorded, row, write_table

pytestmark = pytest.mark.unit


def line(*cells: object, **more: object) -> bytes:
    return msgspec.json.encode(Record(*cells, **more)) + b"\n"  # type: ignore[arg-type]


def test_operations_are_counted_by_the_second_of_their_end() -> None:
    follower = Follower()
    follower.feed(recorded(25))
    part = follower.part()
    assert part.totals == {"ok": 20, "fail": 5, "info": 0}
    assert part.seconds == ((0, 8, 2, 0), (1, 8, 2, 0), (2, 4, 1, 0))
    assert part.open == 0
    assert [trouble.error for trouble in part.troubles] == ["refused"] * 5


def test_a_part_tells_only_what_is_new() -> None:
    follower = Follower()
    follower.feed(recorded(25))
    follower.part()
    follower.feed(recorded(3, begin=25))
    part = follower.part()
    assert part.seconds == ((2, 7, 1, 0),)
    assert part.troubles == ()
    assert part.totals["ok"] == 23


def test_a_torn_line_waits_for_its_end_and_damage_is_counted() -> None:
    follower = Follower()
    whole = recorded(2)
    follower.feed(whole[:-5])
    assert follower.part().totals["ok"] == 1
    follower.feed(whole[-5:] + b"no json\n\xff\n")
    part = follower.part()
    assert (part.totals["ok"], part.damaged_lines) == (2, 2)
    assert part.bytes == len(whole) + 10


def test_faults_and_phases_under_way_are_told() -> None:
    follower = Follower()
    follower.feed(line(0, "invoke", 1, -1, "", "phase", extra='{"phase": "load"}'))
    follower.feed(line(1, "invoke", 2, -1, "", "kill", extra='{"nodes": ["n2"]}'))
    follower.feed(line(2, "invoke", 3, 4, "n1", "enqueue", "q", 7))
    part = follower.part()
    assert (part.phase, part.faults, part.open) == ("load", ("kill n2",), 1)
    follower.feed(line(1, "info", 9))
    assert follower.part().faults == ()


def test_many_troubles_are_few_in_a_part() -> None:
    follower = Follower()
    follower.feed(recorded(1000))
    assert len(follower.part().troubles) == TROUBLES_MAX


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    """Each step of the run is taken when the one before was seen."""
    run = tmp_path / "a" / "run"
    run.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    recording = run / "history.jsonl"
    recording.write_bytes(recorded(10))

    async def whole() -> list[LivePart]:
        places = StoreFiles(tmp_path)
        parts = []
        async for part in follow(places, places.run("a/run"), look_s=0.001):
            parts.append(part)
            if len(parts) == 1:
                with recording.open("ab") as file:
                    file.write(recorded(10, begin=10))
            elif len(parts) == 2:
                (run / "results.json").write_text("{}")
                recording.unlink()
        return parts

    parts = asyncio.run(asyncio.wait_for(whole(), 60))
    assert [part.totals["ok"] for part in parts] == [8, 16, 16]
    assert [part.ended for part in parts] == [False, False, True]


def test_its_events_are_parts_and_an_end(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    run.mkdir(parents=True)
    for name in ("plan.json", "results.json"):
        (run / name).write_text("{}")
    (run / "history.jsonl").write_bytes(recorded(10))
    answer = Asking(tmp_path).get("/api/run/follow", {"run": "a/run"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [each.split("\n") for each in answer.text.split("\n\n") if each]
    assert [each[0] for each in events] == ["event: part", "event: ended"]
    last = msgspec.json.decode(events[-1][1].removeprefix("data: "), type=LivePart)
    assert last.totals == {"ok": 8, "fail": 2, "info": 0}


def test_live_runs_are_those_that_grow_or_did(store: Path) -> None:
    changed_ns = (store / LIVE / "history.jsonl").stat().st_mtime_ns
    for later_ns, growing in ((1, True), (2 * SILENT_NS, False)):
        live = LiveRuns(store, lambda later=later_ns: changed_ns + later)  # type: ignore[misc]
        (found,) = live.find(()).live
        assert (found.run, found.growing) == (LIVE, growing)


def test_a_new_run_is_found_though_its_directory_was_listed_before(tmp_path: Path) -> None:
    live = LiveRuns(tmp_path)
    assert live.find(()).live == ()
    write_table(tmp_path, [row("a/old")])
    for name in ("a/one", "a/two"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "history.jsonl").write_text("")
        assert name in [each.run for each in live.find(()).live]
