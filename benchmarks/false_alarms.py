"""Whether a sound broker is ever called broken on a busy machine whose harness stands still.

    python -m benchmarks.false_alarms [--cluster local] [--runs 200] [--at-once 8] [--burners 2]

Makes short runs of our own systems under the profile ``safe``, several at once, beside processes
that only burn CPU. Each harness gets SIGSTOP at random moments and SIGCONT up to four seconds
later, as a suspended laptop or a starved machine would do it. No run may be invalid; some will be
unknown, since a stall can spoil a run, and what spoilt them is counted. Prints every verdict that
is not "valid", then the totals and the load. Exit code 1 if a run was called invalid.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

SYSTEMS = ("mirrored", "master-slave", "dledger", "controller")
NEMESES = ("partition", "partition-one", "partition-halves", "kill", "pause", "restart-all", "none")
MOST_STOPS = 3
LONGEST_STOP_S = 4.0
LOAD_S = 24
RUN_TIMEOUT_S = 400
VERDICTS = {0: "valid", 1: "invalid", 2: "unknown"}


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: ``stops`` are the moments and lengths of its harness's stops, in seconds."""

    command: tuple[str, ...]
    verdict: str
    headline: str
    stops: tuple[tuple[float, float], ...]


async def run_one(number: int, cluster: str, store: Path, permits: asyncio.Semaphore) -> Ran:
    draw = random.Random(f"false alarms {number}")
    where = store / str(number)
    command = (
        *("test", "--system", draw.choice(SYSTEMS), "--profile", "safe", "--cluster", cluster),
        *("--nemesis", draw.choice(NEMESES), "--seed", str(number), "--rate", "30"),
        *("--time-limit", str(LOAD_S), "--nemesis-interval", "10", "--nemesis-duration", "8"),
    )
    stops = sorted(
        (draw.uniform(2, LOAD_S + 8), draw.uniform(0.2, LONGEST_STOP_S))
        for _ in range(draw.randint(0, MOST_STOPS))
    )
    async with permits:
        where.mkdir(parents=True)
        with (where / "printed.log").open("wb") as printed:
            harness = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "shalott.harness.cli.main", *command),
                *("--store", str(where)),
                stdout=printed,
                stderr=asyncio.subprocess.STDOUT,
            )
        stopping = asyncio.create_task(stop_at(harness, stops))
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                code = await harness.wait()
        except TimeoutError:
            harness.send_signal(signal.SIGTERM)
            code = -1 if await harness.wait() is None else 99
        finally:
            stopping.cancel()
            if harness.returncode is None:  # the user ends this: the run cleans up
                harness.send_signal(signal.SIGCONT)
                harness.send_signal(signal.SIGINT)
                await harness.wait()
    return Ran(command, VERDICTS.get(code, f"exit code {code}"), headline_in(where), tuple(stops))


async def stop_at(
    harness: asyncio.subprocess.Process, stops: Sequence[tuple[float, float]]
) -> None:
    began = time.monotonic()
    for at_s, lasts_s in stops:
        await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
        if harness.returncode is not None:
            return
        harness.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            if harness.returncode is None:
                harness.send_signal(signal.SIGCONT)


def headline_in(where: Path) -> str:
    found = sorted(where.glob("*/*/results.json"))
    if not found:
        return "no results"
    results = json.loads(found[-1].read_text())
    notes = [
        f"{each['checker']}: {note}"
        for each in results["results"]
        if each["valid"] is not True
        for note in (*each["notes"], *(a["summary"] for a in each["anomalies"]))[:2]
    ]
    return " | ".join((str(results["headline"]), *notes))


async def run_all(arguments: argparse.Namespace, store: Path) -> list[Ran]:
    permits = asyncio.Semaphore(arguments.at_once)
    burners = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
        for _ in range(arguments.burners)
    ]
    ran: list[Ran] = []
    numbers = range(arguments.first, arguments.first + arguments.runs)
    try:
        tasks = [run_one(each, arguments.cluster, store, permits) for each in numbers]
        for finished in asyncio.as_completed(tasks):
            one = await finished
            ran.append(one)
            if one.verdict != "valid":
                stops = ", ".join(f"{at:.1f}+{lasts:.1f} s" for at, lasts in one.stops) or "none"
                print(f"{one.verdict}: {one.headline}", flush=True)
                print(f"    shalott {' '.join(one.command)}  (stopped: {stops})", flush=True)
            if len(ran) % 20 == 0:
                print(f"{len(ran)} runs, load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        for burner in burners:
            burner.kill()
    return ran


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cluster", default="local", choices=("local", "docker"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="the first run's seed")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--burners", type=int, default=2, help="processes that only burn CPU")
    parser.add_argument("--keep", type=Path, help="the directory of the runs, which is kept")
    arguments = parser.parse_args()
    store = arguments.keep or Path(mkdtemp(prefix="shalott-false-alarms-"))
    ran = asyncio.run(run_all(arguments, store))
    totals = Counter(one.verdict for one in ran)
    stops = sum(len(one.stops) for one in ran)
    print(f"{dict(totals)} in {len(ran)} runs on {arguments.cluster}, {stops} stops of a harness")
    if arguments.keep is None and not totals["invalid"]:
        shutil.rmtree(store)
    raise SystemExit(1 if totals["invalid"] else 0)


if __name__ == "__main__":
    main()
