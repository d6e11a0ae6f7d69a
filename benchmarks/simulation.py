"""How fast the deterministic simulation is, and where its time goes.

    python -m benchmarks.simulation [--systems A,B] [--seeds A-B] [--profile safe] [--where]

Simulates plans as ``shalott search`` draws them and prints, for each run and each system, virtual
cluster-seconds a CPU second. A machine is never as fast as another, nor as itself when others use
it, so a system has three more figures: what a callback costs in callbacks of the loop alone, which
is measured between the runs; Python calls for each client operation, counted in one more run of
the first plan; and behaviours a CPU minute, which are the kinds of events, and the pairs of kinds
of which one came after the other, that all its runs showed. Then the rooms of the project in which
the CPU time was spent. CPU time of one process, that is of one core. A first run of each system,
which loads modules and fills caches, is not counted.

Where the time goes is sampled: a timer that counts CPU time looks every 2 ms at what is running.
Unlike a profiler that is told of every call, it does not make short functions look dear.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.core.plan import Plan
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import draw_plan, plain_subject

ROOT = Path(__file__).parent.parent
SYSTEMS = "mirrored,master-slave,dledger,controller"
LOOP_CALLBACKS = 100_000
QUEUE_ROUNDS = 20_000
SAMPLE_S = 0.002
ROOMS_MAX = 20
FUNCTIONS_MAX = 50

Samples = Counter[tuple[str, str]]  # of (file, function)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--systems", default=SYSTEMS)
    parser.add_argument("--seeds", default="1-4", help="a range, both ends included")
    parser.add_argument("--profile", default="safe")
    parser.add_argument("--where", action="store_true", help="also the dearest functions")
    arguments = parser.parse_args()
    first, last = (int(text) for text in arguments.seeds.split("-"))
    samples: Samples = Counter()
    for system in arguments.systems.split(","):
        subject = plain_subject(system, arguments.profile)
        plans = [draw_plan(subject, seed) for seed in range(first, last + 1)]
        simulate(plans[0])
        gc.collect()
        gc.freeze()  # as the workers of a search do
        measure(system, plans, samples)
    print_where(samples, FUNCTIONS_MAX if arguments.where else 0)


def measure(system: str, plans: list[Plan], samples: Samples) -> None:
    outcomes: list[SimOutcome] = []
    alone_s: dict[str, list[float]] = {chain.__name__: [], ping_pong.__name__: []}
    for plan in plans:
        for work in (chain, ping_pong):
            alone_s[work.__name__].append(callback_s(work))
        with sampling(samples):
            outcomes.append(simulate(plan, order=True))
        print_outcome(outcomes[-1])
    print_all(system, outcomes, {name: min(costs) for name, costs in alone_s.items()})
    calls = count_calls(plans[0])
    sys.stdout.write(
        f"{system}: {calls / operations_of(outcomes[0]):,.0f} Python calls for each client"
        f" operation of seed {plans[0].seed}, on {len(plans[0].cluster.nodes)} nodes\n\n"
    )


def count_calls(plan: Plan) -> int:
    """Of functions of Python's: how many a run makes is the same whatever else the machine does."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(simulate, plan)
    return sum(entry.callcount for entry in profile.getstats())


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


def print_all(system: str, outcomes: list[SimOutcome], alone_s: dict[str, float]) -> None:
    """``alone_s``: what a callback of the loop alone cost."""
    spent_s = sum(outcome.wall_s for outcome in outcomes)
    virtual_s = sum(outcome.virtual_ns for outcome in outcomes) / 1e9
    each_s = spent_s / sum(outcome.callbacks for outcome in outcomes)
    behaviours = len({pair for outcome in outcomes for pair in outcome.order})
    sys.stdout.write(
        f"{system}: {virtual_s / spent_s:.1f} virtual cluster-seconds a CPU second for all runs"
        f" together, {statistics.median(map(rate_of, outcomes)):.1f} in the median run\n"
        f"{system}: {each_s * 1e6:.1f} us a callback, {each_s / alone_s['chain']:.0f} times that"
        f" of the loop alone with a chain of callbacks, {each_s / alone_s['ping_pong']:.0f} times"
        f" with two tasks and two queues\n"
        f"{system}: {sum(o.segments for o in outcomes) / spent_s:,.0f} segments and"
        f" {sum(map(operations_of, outcomes)) / spent_s:,.0f} client operations a CPU second;"
        f" {behaviours} behaviours, {behaviours * 60 / spent_s:,.0f} a CPU minute\n"
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
        return "/".join(parts[:-1][:3]) or parts[0]
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    return "asyncio" if "asyncio" in path.parts else "the interpreter"


def callback_s(work: Callable[[], Coroutine[object, object, None]]) -> float:
    """CPU time a callback of the loop alone: a chain of callbacks, or two tasks that hand items to
    each other."""
    loop = SimLoop()
    began = time.process_time()
    loop.run(work(), SimProcess("harness"))
    return (time.process_time() - began) / loop.callbacks


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
