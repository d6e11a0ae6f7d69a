"""The event log: every line, in order, also on a bad disk; and never in the node's way."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shalott.broker.base import events as events_module
from shalott.broker.base.disk import OsDisk
from shalott.broker.base.events import EVENTS_FILE, JsonlEventLog
from shalott.cluster.nodes import DiskFaults
from shalott.cluster.sim.disk.disk import SimDisk
from tests.world.clock.stock_loop import StockLoop
from tests.world.clock.turns import turns
from tests.world.disk.memory_disk import MemoryDisk

pytestmark = pytest.mark.unit


class Ticks:
    """A clock that goes on by one at each look."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def wall_ns(self) -> int:
        return 1_000_000 + self.now_ns


def lines(disk: MemoryDisk) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bytes(disk.names[EVENTS_FILE].cached).splitlines()]


async def opened(disk: MemoryDisk, incarnation: int = 1) -> JsonlEventLog:
    return await JsonlEventLog.open(disk, Ticks(), node="n1", incarnation=incarnation)


def test_an_event_is_one_line_with_both_clocks() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        log = await opened(disk, incarnation=4)
        log.emit("orders", "role", role="master", epoch=7, detail={"from": "mirror"})
        log.emit("", "paused")
        await log.close()
        assert lines(disk) == [
            {
                "at_ns": 1,
                "wall_ns": 1_000_001,
                "node": "n1",
                "incarnation": 4,
                "group": "orders",
                "kind": "role",
                "role": "master",
                "epoch": 7,
                "detail": {"from": "mirror"},
            },
            {
                "at_ns": 2,
                "wall_ns": 1_000_002,
                "node": "n1",
                "incarnation": 4,
                "group": "",
                "kind": "paused",
                "role": "",
                "epoch": 0,
                "detail": {},
            },
        ]

    asyncio.run(body())


def test_lines_keep_their_order_and_the_next_life_goes_on_behind_them() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        disk.write_limit = 37
        for incarnation in (1, 2):
            log = await opened(disk, incarnation)
            for number in range(50):
                log.emit("q", "acked", detail={"n": number})
                if number % 7 == 0:
                    await turns()
            await log.close()
        expected = [(incarnation, n) for incarnation in (1, 2) for n in range(50)]
        assert [(e["incarnation"], e["detail"]["n"]) for e in lines(disk)] == expected

    asyncio.run(body())


def test_a_torn_last_line_is_cut_off() -> None:
    async def body() -> None:
        for torn in (b'{"at_ns": 12', b"x" * 200_000):
            disk = MemoryDisk()
            log = await opened(disk)
            log.emit("q", "role")
            await log.close()
            disk.names[EVENTS_FILE].cached.extend(torn)
            log = await opened(disk, 2)
            log.emit("q", "demoted")
            await log.close()
            assert [event["kind"] for event in lines(disk)] == ["role", "demoted"]

    asyncio.run(body())


def test_short_transfers_cut_off_no_whole_line() -> None:
    async def body() -> None:
        for seed in range(20):
            disk = SimDisk(StockLoop(), seed, "n1")
            disk.set_faults(DiskFaults(short=True))
            for incarnation in range(1, 4):
                log = await JsonlEventLog.open(disk, Ticks(), node="n1", incarnation=incarnation)
                log.emit("q", "role")
                await log.close()
            found = [json.loads(line) for line in disk.read_all(EVENTS_FILE).splitlines()]
            assert [event["incarnation"] for event in found] == [1, 2, 3]

    asyncio.run(body())


def test_events_wait_while_the_disk_is_full() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        log = await opened(disk)
        disk.room = 30  # a part of a line
        for number in range(3):
            log.emit("q", "acked", detail={"n": number})
            await log.flush()
        disk.room = None
        log.emit("q", "acked", detail={"n": 3})
        await log.close()
        assert [event["detail"]["n"] for event in lines(disk)] == [0, 1, 2, 3]

    asyncio.run(body())


def test_a_broken_disk_costs_events_but_never_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "PENDING_LINES_MAX", 10)

    async def body() -> None:
        disk = MemoryDisk()
        log = await opened(disk)

        def fault(operation: str, path: str) -> None:
            raise OSError(errno.EIO, "injected")

        disk.fault = fault
        for number in range(30):
            log.emit("q", "acked", detail={"n": number})
            await log.flush()
        disk.fault = lambda operation, path: None
        await log.close()
        found = lines(disk)
        assert [event["detail"]["n"] for event in found[:-1]] == list(range(20, 30))
        assert (found[-1]["kind"], found[-1]["detail"]) == ("events_dropped", {"count": 20})

    asyncio.run(body())


def test_emitting_never_waits_for_the_disk() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        log = await opened(disk)
        operations = disk.operations
        for _ in range(1000):
            log.emit("q", "acked")
        assert disk.operations == operations
        await log.flush()
        assert len(lines(disk)) == 1000
        assert disk.operations - operations <= 2, "one write for all of them"
        await log.close()

    asyncio.run(body())


def test_after_close_nothing_is_written() -> None:
    async def body() -> None:
        disk = MemoryDisk()
        log = await opened(disk)
        await log.close()
        log.emit("q", "role")
        await log.close()
        assert lines(disk) == []

    asyncio.run(body())


VICTIM = """
import asyncio, sys
from pathlib import Path
from shalott.broker.base.disk import OsDisk
from shalott.broker.base.env import SystemClock
from shalott.broker.base.events import JsonlEventLog

async def main():
    disk = OsDisk(Path(sys.argv[1]))
    log = await JsonlEventLog.open(disk, SystemClock(), node="n1", incarnation=1)
    for number in range(5):
        log.emit("q", "acked", detail={"n": number})
    await log.flush()
    print("flushed", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_what_was_handed_to_the_operating_system_survives_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "-c", VICTIM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "flushed\n"
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(timeout=10)
    found = [json.loads(line) for line in (tmp_path / EVENTS_FILE).read_text().splitlines()]
    assert [event["detail"]["n"] for event in found] == list(range(5))


def test_it_works_on_the_operating_systems_disk(tmp_path: Path) -> None:
    async def body() -> None:
        disk = OsDisk(tmp_path)
        log = await JsonlEventLog.open(disk, Ticks(), node="n1", incarnation=1)
        log.emit("q", "role", role="master")
        await log.close()
        await disk.close()

    asyncio.run(body())
    assert json.loads((tmp_path / EVENTS_FILE).read_text())["role"] == "master"
