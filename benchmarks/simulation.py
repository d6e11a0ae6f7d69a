"""How fast the deterministic simulation is, and where its time goes.

    python -m benchmarks.simulation [--seeds A-B] [--profile safe] [--where]

Prints, for plans as ``shalott search`` draws them, virtual cluster-seconds a CPU second, callbacks
and segments a CPU second, and with ``--where`` the rooms in which the CPU time was spent; then the
loop alone. CPU time of one process, that is of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from cluster.sim.loop import SimLoop
from cluster.sim.processes import SimProcess
from harness.simulate import SimOutcome, simulate
from harness.swarm import Subject, draw_plan

ROOT = Path(__file__).parent.parent
LOOP_CALLBACKS = 400_000
QUEUE_ROUNDS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="1-10", help="a range, both ends included")
    parser.add_argument("--profile", default="safe")
    parser.add_argument("--where", action="store_true", help="profile the runs (slower)")
    arguments = parser.parse_args()
    first, last = (int(text) for text in arguments.seeds.split("-"))
    profiler = cProfile.Profile() if arguments.where else None
    outcomes = [run_seed(seed, arguments.profile, profiler) for seed in range(first, last + 1)]
    print_outcomes(outcomes)
    if profiler is not None:
        print_where(profiler)
    print_loop()


def run_seed(seed: int, profile: str, profiler: cProfile.Profile | None) -> SimOutcome:
    plan = draw_plan(Subject(profile=profile), seed)
    if profiler is None:
        return simulate(plan)
    return profiler.runcall(simulate, plan)


def print_outcomes(outcomes: list[SimOutcome]) -> None:
    out = sys.stdout.write
    rates = [outcome.virtual_ns / 1e9 / outcome.wall_s for outcome in outcomes]
    for outcome, rate in zip(outcomes, rates, strict=True):
        plan = outcome.plan
        out(
            f"seed {plan.seed:>6}  {len(plan.cluster.nodes)} nodes  {len(plan.faults):>2} faults"
            f"  {outcome.virtual_ns / 1e9:6.1f} virtual s  {outcome.wall_s:5.2f} CPU s"
            f"  {rate:6.0f} virtual s/s  {outcome.callbacks:>8} callbacks"
            f"  {outcome.segments:>7} segments  {outcome.valid}\n"
        )
    wall_s = sum(outcome.wall_s for outcome in outcomes)
    virtual_s = sum(outcome.virtual_ns for outcome in outcomes) / 1e9
    out(
        f"all: {virtual_s / wall_s:.0f} virtual cluster-seconds a CPU second"
        f" (median run {statistics.median(rates):.0f}),"
        f" {sum(o.callbacks for o in outcomes) / wall_s:,.0f} callbacks/s,"
        f" {sum(o.segments for o in outcomes) / wall_s:,.0f} segments/s\n"
    )


def print_where(profiler: cProfile.Profile) -> None:
    """Own time by package of this project, library or the interpreter."""
    rooms: Counter[str] = Counter()
    for (filename, _, _), (_, _, own_s, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        rooms[room_of(filename)] += own_s
    total = sum(rooms.values())
    for room, own_s in rooms.most_common(16):
        sys.stdout.write(f"  {100 * own_s / total:5.1f} %  {room}\n")


def room_of(filename: str) -> str:
    path = Path(filename)
    if path.is_relative_to(ROOT) and ".venv" not in path.parts:
        return "/".join(path.relative_to(ROOT).parts[:2])
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
