"""The watchdog: each cause of a stall is told apart, and each stall is a row of the history."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shalott.cluster.precedence import may_go_first
from shalott.cluster.stalls import STALL_S, TICK_S, Stall
from shalott.cluster.waiting import wait_until
from shalott.core.recording import record_to_file
from shalott.harness.run.watchdog import Look, judge_gap, look, record_stall, watch_for_stalls

pytestmark = pytest.mark.unit

LATE_S = 2.0


def after(gap_s: float, **more: float) -> Look:
    """A look that much after one at 100 s; what is not named has not moved."""
    moved = {"boot_s": gap_s, "cpu_s": 0.0, "waited_s": 0.0, "stolen_s": 0.0, **more}
    return Look(at_s=100 + gap_s, **{name: 100 + value for name, value in moved.items()})


BEFORE = after(0)


@pytest.mark.parametrize(
    ("kind", "moved", "thread_away_s"),
    [
        ("stopped", {}, LATE_S),
        ("busy", {"cpu_s": 1.5}, LATE_S),  # a thread does not run beside who holds the GIL
        ("busy", {"cpu_s": 1.5}, 0.06),
        ("blocked", {}, 0.06),
        ("starved", {"waited_s": 1.8}, LATE_S),
        ("steal", {"stolen_s": 1.2, "waited_s": 1.8}, LATE_S),
    ],
)
def test_what_kept_it_from_running(
    kind: str, moved: dict[str, float], thread_away_s: float
) -> None:
    (stall,) = judge_gap(BEFORE, after(LATE_S + TICK_S, **moved), thread_away_s)
    assert stall.kind == kind
    assert (stall.begin_s, stall.end_s) == pytest.approx((100 + TICK_S, 100 + TICK_S + LATE_S))


def test_being_a_little_late_is_no_stall() -> None:
    assert judge_gap(BEFORE, after(TICK_S + STALL_S - 0.01), 0.3) == []


def test_a_machine_that_slept_is_seen_though_its_clock_did_not_count_it() -> None:
    (stall,) = judge_gap(BEFORE, after(TICK_S, boot_s=60), 0.05)
    assert stall.kind == "suspended" and stall.asleep_s == pytest.approx(60 - TICK_S)
    assert stall.begin_s == stall.end_s


def test_the_witnesses_move_as_they_should() -> None:
    first = look()
    begun_s = time.process_time()
    while time.process_time() - begun_s < 0.02:
        pass
    second = look()
    assert second.cpu_s - first.cpu_s >= 0.02
    assert second.at_s > first.at_s and second.boot_s > first.boot_s
    assert second.waited_s >= first.waited_s and second.stolen_s >= first.stolen_s


def stand_still(seconds: float, spin: bool) -> None:
    """Computing, or waiting for the kernel: the event loop does not turn."""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < seconds:
        if not spin:
            time.sleep(seconds)


def rows(tmp_path: Path, *, seconds: float, spin: bool) -> list[dict[str, Any]]:
    """The stalls of a harness whose event loop does something else for so long."""

    async def main() -> list[dict[str, Any]]:
        record = record_to_file(tmp_path / "history.jsonl")
        cluster: Any = SimpleNamespace(links=None)  # it carries no traffic
        async with watch_for_stalls(cluster, record):
            await asyncio.sleep(2 * TICK_S)
            stand_still(seconds, spin)
            await asyncio.sleep(2 * TICK_S)
        record.close()
        return [row for row in record.history().ops.to_pylist() if row["f"] == "stall"]

    return asyncio.run(main())


@pytest.mark.parametrize(("spin", "kinds"), [(False, ("blocked",)), (True, ("busy", "starved"))])
def test_an_event_loop_that_does_not_turn_is_a_row(
    tmp_path: Path, spin: bool, kinds: tuple[str, ...]
) -> None:
    (row,) = rows(tmp_path, seconds=2 * STALL_S, spin=spin)
    extra = msgspec.json.decode(row["extra"])
    assert (row["process"], row["type"]) == (-1, "info")
    assert extra["kind"] in kinds
    assert extra["end_ns"] - extra["begin_ns"] > STALL_S * 1e9
    assert extra["begin_ns"] >= 0 and extra["end_ns"] <= row["complete_ns"]


def test_a_stall_of_what_carries_the_traffic_is_a_row_too(tmp_path: Path) -> None:
    async def main() -> dict[str, Any]:
        record = record_to_file(tmp_path / "history.jsonl")
        now_s = asyncio.get_running_loop().time()
        record_stall(record, Stall("relays", now_s - 0.5, now_s))
        record.close()
        (row,) = record.history().ops.to_pylist()
        extra: dict[str, Any] = msgspec.json.decode(row["extra"])
        return extra

    extra = asyncio.run(main())
    assert extra["kind"] == "relays" and extra["begin_ns"] == 0


@pytest.mark.skipif(not may_go_first(), reason="this machine gives nobody the real-time class")
def test_while_it_watches_the_harness_runs_first_with_threads_of_later(tmp_path: Path) -> None:
    async def main() -> list[bool]:
        record = record_to_file(tmp_path / "history.jsonl")
        cluster: Any = SimpleNamespace(links=None)
        over = threading.Event()
        later = threading.Thread(target=over.wait, daemon=True)
        async with watch_for_stalls(cluster, record):
            first = [is_first(0)]
            later.start()
            first += [await wait_until(lambda: is_first(later.native_id or 0), 10, TICK_S)]
        first += [is_first(0), is_first(later.native_id or 0)]
        over.set()
        record.close()
        return first

    assert asyncio.run(main()) == [True, True, False, False]


def is_first(thread: int) -> bool:
    return bool(os.sched_getscheduler(thread) & os.SCHED_RR)
