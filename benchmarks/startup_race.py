"""How often the startup race ends for good, with its known bugs and without, over many seeds.

    python -m benchmarks.startup_race --seeds 1-1000            # the broker as it is
    python -m benchmarks.startup_race --seeds 1-100 --bugs      # with RabbitMQ's four bugs

Every seed is a simulated cluster of two nodes with a few mirrored queues, under the settings of
`shalott test --scenario startup-race` but for a shorter load: all nodes are stopped once, in good
order, at the same time, and start at their own pace. What is counted is what becomes of each queue:
it has its master and its mirror again, it has no mirror, or it exists and no process serves it,
20 s after everything is healed. A figure is a count, so the machine's speed is no part of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import Counter

from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.run.startup_race import STARTUP_RACE
from shalott.harness.run.story import Material, make_material

QUEUES = 4
TELL_EVERY = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1-100", help="FIRST-LAST")
    parser.add_argument("--bugs", action="store_true", help="switch the four known bugs on")
    parser.add_argument(
        "--one-bug-less", action="store_true", help="leave out each of them in turn"
    )
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    seeds = range(first, last + 1)
    bugs = tuple(STARTUP_RACE.settings["bug"])
    if arguments.one_bug_less:
        for left_out in bugs:
            measure(seeds, tuple(bug for bug in bugs if bug != left_out))
    else:
        measure(seeds, bugs if arguments.bugs else ())


def measure(seeds: range, bugs: tuple[str, ...]) -> None:
    began = time.monotonic()
    ends: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for count, seed in enumerate(seeds, 1):
        found, red = ends_of(seed, bugs)
        ends.update(found)
        runs.update({"for good": int(any(end != "recovered" for end in found)), "stuck": int(red)})
        if count % TELL_EVERY == 0:
            print(f"  {count} seeds: {dict(ends)}", flush=True)
    total = sum(ends.values())
    print(f"known bugs on: {', '.join(bugs) or 'none'}")
    print(
        f"  seeds {seeds.start}-{seeds.stop - 1}, {total} queues, {time.monotonic() - began:.0f} s"
    )
    for end in ("recovered", "no mirror", "takes no message"):
        print(f"  {end:17} {ends[end]:6} queues")
    print(f"  seeds with a queue that did not recover: {runs['for good']} of {len(seeds)}")
    print(f"  seeds that the checker 'liveness' calls stuck: {runs['stuck']} of {len(seeds)}")


def ends_of(seed: int, bugs: tuple[str, ...]) -> tuple[list[str], bool]:
    """What became of each queue, and whether the checkers call the cluster stuck.

    Raises RuntimeError: the run did not come to its end.
    """
    request = STARTUP_RACE.request(
        Request(cluster="sim", bug=bugs, time_limit="10", given={"queues": str(QUEUES)})
    )
    # No bug at all counts, though it is what the command line says by default.
    request = dataclasses.replace(request, bug=bugs)
    plan = STARTUP_RACE.staged(make_plan(request, backend="sim", seed=seed))
    outcome = simulate(plan, stop_early=False)
    if outcome.error is not None:
        raise RuntimeError(f"seed {seed}: {outcome.error}")
    return queue_ends(outcome), "stuck" in outcome.anomalies


def queue_ends(outcome: SimOutcome) -> list[str]:
    """By the replicas that there are when the run is over."""
    material = make_material(outcome.history, ())
    queues = {queue for _, claims in material.seen.values() for queue in claims}
    return [_end(material, queue) for queue in sorted(queues)]


def _end(material: Material, queue: str) -> str:
    roles = [e.role for e in material.events if e.kind == "replica" and e.group == queue]
    if "master" not in roles:
        return "takes no message"
    return "recovered" if "mirror" in roles else "no mirror"


if __name__ == "__main__":
    main()
