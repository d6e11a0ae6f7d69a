"""The watchdog: what kept the harness from running becomes rows of the history.

A harness that does not run for a while answers no broker, heals no fault in time and polls no node;
what it measures then is its own absence. The watchdog wakes every ``TICK_S``. When it wakes more
than ``STALL_S`` late, that is a stall: a row of process -1, f "stall", ``extra`` = {"kind",
"begin_ns", "end_ns"} (cluster/stalls.py names the kinds). What judges a run does not charge it to
the system (checkers/runs/stalls.py).

Why it was late is told by four witnesses. A thread, which wakes as often, was late too if the whole
process did not run. The processor time of the process says whether it computed. The kernel's
schedstat says how long it waited for a CPU, and /proc/stat how much of the CPUs the machine's host
took (steal). A machine that slept is seen by CLOCK_BOOTTIME, which counts that, against
CLOCK_MONOTONIC, which does not.

It is for runs in real time; a simulation has no use for it, since there nothing takes time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.cluster import Cluster
from shalott.cluster.precedence import threads_first
from shalott.cluster.stalls import STALL_S, TICK_S, CarriesTraffic, Stall, StallKind
from shalott.core.history import Recorder
from shalott.core.op import NEMESIS, Completion, Invocation

log = logging.getLogger("shalott.run")

STEAL_FIELD = 8  # of the line "cpu" in /proc/stat
MOST = 0.5  # the share of a stall that decides its kind


@dataclass(frozen=True, slots=True)
class Look:
    """What the witnesses said at one moment; all in seconds."""

    at_s: float  # CLOCK_MONOTONIC
    boot_s: float  # CLOCK_BOOTTIME
    cpu_s: float  # the process's, on any CPU
    waited_s: float  # the main thread's, for a CPU
    stolen_s: float  # a CPU's, on average


def look() -> Look:
    return Look(
        at_s=time.monotonic(),
        boot_s=_boot_time_s(),
        cpu_s=time.process_time(),
        waited_s=_waited_s(),
        stolen_s=_stolen_s(),
    )


def judge_gap(before: Look, after: Look, thread_away_s: float) -> list[Stall]:
    """The stalls between two looks that should have been ``TICK_S`` apart.

    ``thread_away_s``: the longest that the watchdog's thread did not run meanwhile.
    """
    found: list[Stall] = []
    begin_s, late_s = before.at_s + TICK_S, after.at_s - before.at_s - TICK_S
    if late_s > STALL_S:
        kind = _kind(before, after, late_s, thread_away_s)
        found.append(Stall(kind, begin_s, after.at_s))
    asleep_s = (after.boot_s - before.boot_s) - (after.at_s - before.at_s)
    if asleep_s > STALL_S:
        found.append(Stall("suspended", after.at_s, after.at_s, asleep_s))
    return found


def _kind(before: Look, after: Look, late_s: float, thread_away_s: float) -> StallKind:
    computed_s, waited_s = after.cpu_s - before.cpu_s, after.waited_s - before.waited_s
    if computed_s + waited_s >= MOST * late_s:  # it wanted to run
        if computed_s >= waited_s:
            return "busy"
        return "steal" if after.stolen_s - before.stolen_s >= MOST * waited_s else "starved"
    return "blocked" if thread_away_s < MOST * late_s else "stopped"


class ThreadWitness:
    """A thread that only notes when it could not run."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._last_s = time.monotonic()
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def take_longest_s(self) -> float:
        """The longest that it did not run since this was last asked, also if it still does not."""
        away_s = max(self._longest_s, time.monotonic() - self._last_s)
        self._longest_s = 0.0
        return away_s

    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            now_s = time.monotonic()
            self._longest_s = max(self._longest_s, now_s - self._last_s)
            self._last_s = now_s


@contextlib.asynccontextmanager
async def watch_for_stalls(cluster: Cluster, record: Recorder) -> AsyncIterator[None]:
    """While it lasts, every stall of the harness, and of what carries the nodes' traffic, is
    recorded, and the harness runs before the nodes (cluster/precedence.py)."""

    def tell(stall: Stall) -> None:
        record_stall(record, stall)

    if isinstance(cluster.links, CarriesTraffic):
        cluster.links.tell_stalls(tell)
    witness = ThreadWitness()
    witness.start()
    with threads_first() as put_new_ones_first:
        watching = asyncio.create_task(_watch(witness, tell, put_new_ones_first))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            witness.stop()


async def _watch(
    witness: ThreadWitness, tell: Callable[[Stall], None], put_new_ones_first: Callable[[], None]
) -> None:
    before = look()
    try:
        while True:
            await asyncio.sleep(TICK_S)
            put_new_ones_first()
            after = look()
            for stall in judge_gap(before, after, witness.take_longest_s()):
                tell(stall)
            before = after
    except asyncio.CancelledError:  # the last one ends with the run
        for stall in judge_gap(before, look(), witness.take_longest_s()):
            tell(stall)
        raise


def record_stall(record: Recorder, stall: Stall) -> None:
    """Write its row. The event loop's clock must be the recorder's, as it is in a real run."""
    shift_ns = record.now_ns() - round(asyncio.get_running_loop().time() * 1e9)
    extra = {
        "kind": stall.kind,
        "begin_ns": max(0, round(stall.begin_s * 1e9) + shift_ns),
        "end_ns": max(0, round(stall.end_s * 1e9) + shift_ns),
    }
    if stall.asleep_s:
        extra["asleep_ns"] = round(stall.asleep_s * 1e9)
    index = record.invoke(NEMESIS, "", Invocation(f="stall", extra=extra))
    record.complete(index, Completion(type="info", extra=extra))
    lasted_s = stall.asleep_s or stall.end_s - stall.begin_s
    log.warning("a stall of the harness's: %s, %.2f s", stall.kind, lasted_s)


def _boot_time_s() -> float:
    """Where the machine has no such clock, no sleep is seen."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _waited_s() -> float:
    """Of this thread; 0 where the kernel does not count it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _stolen_s() -> float:
    try:
        with Path("/proc/stat").open() as lines:
            ticks = int(lines.readline().split()[STEAL_FIELD])
    except (OSError, ValueError, IndexError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
