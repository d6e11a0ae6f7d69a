"""The clocks of a run: the harness's own, and those of the hosts on which the nodes run.

The harness's wall clock is read beside its monotonic one ten times a second, from the start of the
recording until the nodes' files are there. Hosts with a kernel of their own are asked for both of
their clocks again and again. A wall clock that moved against a monotonic one was stepped: a row of
process -1, f "clock-step", says whose, by how much, and when. What nodes wrote down is placed
accordingly (core/timeline.py). Runs in real time only: in a simulation no clock is stepped but by
its faults, and events carry the true time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable

from shalott.cluster.cluster import Cluster, ReadsClocks
from shalott.cluster.faketime import wall_beside_monotonic_ns
from shalott.cluster.parts import MovesClocks
from shalott.core.errors import HarnessError
from shalott.core.history import Recorder
from shalott.core.json_value import Json
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.recording import RunRecorder
from shalott.core.timeline import STEP_NS, ClockStep, NodeClock, Reading, RunStart, WallClock

log = logging.getLogger("shalott.run")

TICK_S = 0.1
HOSTS_S = 2.0  # between readings of one host
READINGS = 3  # of a host, of which the quickest answer counts
READ_WITHIN_S = 5.0


class ClockWatch:
    """``beside_ns``: the harness's wall clock less its monotonic one, now."""

    def __init__(
        self,
        cluster: Cluster,
        record: RunRecorder,
        *,
        beside_ns: Callable[[], int] = wall_beside_monotonic_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cluster = cluster
        self._record = record
        self._beside_ns = beside_ns
        self._monotonic_ns = monotonic_ns
        self._origin_ns = monotonic_ns() - record.now_ns()
        self._own = WallClock([(0, record.start_wall_ns)])
        self._looked_ns, self._ahead_ns = 0, record.start_wall_ns
        self._nodes: dict[str, NodeClock] = {}
        self._is_over = False

    async def keep_watching(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for node in self._cluster.nodes:
                group.create_task(self._watch_host(node))
            while True:
                self.look()
                await asyncio.sleep(TICK_S)

    def look(self) -> None:
        """At the harness's own clock."""
        now_ns = self._record.now_ns()
        ahead_ns = self._beside_ns() + self._origin_ns
        moved_ns = ahead_ns - self._ahead_ns
        if abs(ahead_ns - self._own.points[-1][1]) > STEP_NS:
            self._own.set((self._looked_ns + now_ns) // 2, ahead_ns)
        if abs(moved_ns) > STEP_NS:  # else it is slewed at most, as NTP does
            record_step(self._record, ClockStep("", moved_ns, self._looked_ns, now_ns))
        self._looked_ns, self._ahead_ns = now_ns, ahead_ns

    async def _watch_host(self, node: str) -> None:
        hosts = getattr(self._cluster, "hosts", None)
        if not isinstance(hosts, ReadsClocks):
            return
        while True:
            with contextlib.suppress(HarnessError, OSError, TimeoutError):  # not there yet, or gone
                if not await self._read(node, hosts):
                    return
            await asyncio.sleep(TICK_S if node not in self._nodes else HOSTS_S)

    async def _read(self, node: str, hosts: ReadsClocks) -> bool:
        """Whether that node's clocks are others than the harness's."""
        best: tuple[int, Reading] | None = None
        for _ in range(READINGS):
            before_ns = self._record.now_ns()
            async with asyncio.timeout(READ_WITHIN_S):
                seen = await hosts.read_clocks(node)
            if seen is None:
                self._nodes[node] = NodeClock(self._own, origin_ns=self._origin_ns)
                return False
            after_ns = self._record.now_ns()
            middle_ns = (before_ns + after_ns) // 2
            reading = Reading(middle_ns, seen.wall_ns, seen.monotonic_ns)
            if best is None or after_ns - before_ns < best[0]:
                best = after_ns - before_ns, reading
        assert best is not None
        clock = self._nodes.setdefault(node, NodeClock(WallClock()))
        step = clock.read(best[1])
        if step is not None and not self._is_over:
            record_step(self._record, ClockStep(node, step.by_ns, step.begin_ns, step.end_ns))
        return True

    def start(self) -> RunStart:
        """What places the nodes' events, now that the run is over."""
        self.look()
        self._is_over = True
        nodes = {node: self._moved(node, clock) for node, clock in self._nodes.items()}
        return RunStart.make(
            self._record.start_wall_ns, self._own, nodes, end_ns=self._record.now_ns()
        )

    def _moved(self, node: str, clock: NodeClock) -> NodeClock:
        """With what faults did to that node's wall clock."""
        parts = getattr(self._cluster, "parts", None)
        moved = getattr(parts, "clocks", None)
        told = moved.history.get(node, ()) if isinstance(moved, MovesClocks) else ()
        if not told:
            return clock
        faults = WallClock([(-(1 << 62), 0), *((at - self._origin_ns, by) for at, by in told)])
        times = sorted({at for at, _ in (*clock.wall.points, *faults.points[1:])})
        points = [(at, clock.wall.ahead_at(at) + faults.ahead_at(at)) for at in times]
        return dataclasses.replace(clock, wall=WallClock(points))


def record_step(record: Recorder, step: ClockStep) -> None:
    """Write its row."""
    extra: dict[str, Json] = {
        "by_ns": step.by_ns, "begin_ns": step.begin_ns, "end_ns": step.end_ns
    }  # fmt: skip
    index = record.invoke(NEMESIS, step.node, Invocation(f="clock-step", extra=extra))
    record.complete(index, Completion(type="info", extra=extra))
    whose = f"the wall clock of {step.node}" if step.node else "the harness's wall clock"
    log.warning("%s was stepped by %+.3f s", whose, step.by_ns / 1e9)


def record_doubts(record: Recorder, reasons: list[str]) -> None:
    """What can't be placed on the run's clock, which makes the run unknown."""
    for reason in reasons:
        extra: dict[str, Json] = {"reason": reason}
        index = record.invoke(NEMESIS, "", Invocation(f="unplaced", extra=extra))
        record.complete(index, Completion(type="info", extra=extra))
        log.warning("%s", reason)
