"""How fast the deterministic simulation is, and where its time goes.

    python -m benchmarks.simulation [--seeds A-B] [--profile safe] [--where]

Simulates plans as ``shalott search`` draws them and prints, for each and for all of them, virtual
cluster-seconds a CPU second, callbacks, segments and client operations a CPU second; then the rooms
of the project in which the CPU time was spent, and the loop alone. CPU time of one process, that is
of one core. A first run, which loads modules and fills caches, is not counted.

Where the time goes is sampled: a timer that counts CPU time looks every 2 ms at what is running.
Unlike a profiler that is told of every call, it does not make short functions look dear.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import Subject, draw_plan

ROOT = Path(__file__).parent.parent
LOOP_CALLBACKS = 400_000
QUEUE_ROUNDS = 60_000
SAMPLE_S = 0.002
ROOMS_MAX = 20
FUNCTIONS_MAX = 50

Samples = Counter[tuple[str, str]]  # of (file, function)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="1-10", help="a range, both ends included")
    parser.add_argument("--profile", default="safe")
    parser.add_argument("--where", action="store_true", help="also the dearest functions")
    arguments = parser.parse_args()
    first, last = (int(text) for text in arguments.seeds.split("-"))
    simulate(draw_plan(Subject(profile=arguments.profile), first))
    gc.collect()
    gc.freeze()  # as the workers of a search do
    samples: Samples = Counter()
    outcomes = []
    for seed in range(first, last + 1):
        with sampling(samples):
            outcomes.append(simulate(draw_plan(Subject(profile=arguments.profile), seed)))
        print_outcome(outcomes[-1])
    print_all(outcomes)
    print_where(samples, FUNCTIONS_MAX if arguments.where else 0)
    print_loop()


@contextmanager
def sampling(samples: Samples) -> Iterator[None]:
    """Note in ``samples`` which function of which file is running, every SAMPLE_S of CPU time."""

    def look(_: int, frame: FrameType | None) -> None:
        if frame is not None:
            samples[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def print_outcome(outcome: SimOutcome) -> None:
    plan = outcome.plan
    sys.stdout.write(
        f"seed {plan.seed:>6}  {len(plan.cluster.nodes)} nodes  {len(plan.faults):>2} faults"
        f"  {outcome.virtual_ns / 1e9:6.1f} virtual s  {outcome.wall_s:5.2f} CPU s"
        f"  {rate_of(outcome):5.0f} virtual s/s  {outcome.callbacks:>7} callbacks"
        f"  {outcome.segments:>6} segments  {operations_of(outcome):>5} operations"
        f"  {outcome.valid}\n"
    )
    sys.stdout.flush()


def rate_of(outcome: SimOutcome) -> float:
    return outcome.virtual_ns / 1e9 / outcome.wall_s


def operations_of(outcome: SimOutcome) -> int:
    return sum(outcome.sometimes.get(f"client_{kind}", 0) for kind in ("ok", "fail", "info"))


def print_all(outcomes: list[SimOutcome]) -> None:
    spent_s = sum(outcome.wall_s for outcome in outcomes)
    virtual_s = sum(outcome.virtual_ns for outcome in outcomes) / 1e9
    sys.stdout.write(
        f"virtual cluster-seconds a CPU second: {virtual_s / spent_s:.1f} for all runs together,"
        f" {statistics.median(map(rate_of, outcomes)):.1f} in the median run\n"
        f"callbacks a CPU second: {sum(o.callbacks for o in outcomes) / spent_s:,.0f}\n"
        f"segments a CPU second: {sum(o.segments for o in outcomes) / spent_s:,.0f}\n"
        f"client operations a CPU second: {sum(map(operations_of, outcomes)) / spent_s:,.0f}\n"
    )


def print_where(samples: Samples, functions: int) -> None:
    """Own time by package of this project, library or the interpreter."""
    total = sum(samples.values())
    if not total:
        return
    rooms: Counter[str] = Counter()
    for (filename, _), count in samples.items():
        rooms[room_of(filename)] += count
    sys.stdout.write("where the time goes:\n")
    for room, count in rooms.most_common(ROOMS_MAX):
        sys.stdout.write(f"  {100 * count / total:5.1f} %  {room}\n")
    for (filename, function), count in samples.most_common(functions):
        sys.stdout.write(f"  {100 * count / total:5.1f} %  {function}  ({room_of(filename)})\n")


@cache
def room_of(filename: str) -> str:
    path = Path(filename).resolve()
    if path.is_relative_to(ROOT) and ".venv" not in path.parts:
        parts = path.relative_to(ROOT).parts
        return "/".join(parts[:2]) if len(parts) > 2 else parts[0]
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    return "asyncio" if "asyncio" in path.parts else "the interpreter"


def print_loop() -> None:
    """The loop alone: a chain of callbacks, and two tasks that hand items to each other."""
    for name, work in (("call_soon chain", chain), ("queue ping-pong", ping_pong)):
        loop = SimLoop()
        began = time.process_time()
        loop.run(work(), SimProcess("harness"))
        spent_s = time.process_time() - began
        sys.stdout.write(f"loop alone, {name}: {loop.callbacks / spent_s:,.0f} callbacks/s\n")


async def chain() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def step(left: int) -> None:
        if left:
            loop.call_soon(step, left - 1)
        else:
            done.set_result(None)

    step(LOOP_CALLBACKS)
    await done


async def ping_pong() -> None:
    there, back = asyncio.Queue[int](), asyncio.Queue[int]()

    async def echo() -> None:
        while True:
            back.put_nowait(await there.get())

    task = asyncio.create_task(echo())
    for number in range(QUEUE_ROUNDS):
        there.put_nowait(number)
        await back.get()
    task.cancel()


if __name__ == "__main__":
    main()
