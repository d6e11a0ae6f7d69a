"""How many operations a second the harness records against a client that does nothing.

    python -m benchmarks.recording [SECONDS] [deliveries]

Everything but the network is the real thing: the queue workload's generator with its rate limit far
away, workers with their timeouts, the recorder with its flushes, the progress line on. With
``deliveries`` no worker asks: a consumer's client records each delivery and its acknowledgement as
the workload consume does. Prints what was measured, and ends with 1 if the history is not whole or
the rate is below the promise of 5,000 rows a second.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from shalott.core.generator import Stagger, TimeLimit
from shalott.core.op import Completion, Invocation
from shalott.core.plan import Plan
from shalott.core.queue_generator import queue_mix
from shalott.core.recording import HistoryWriter, recover
from shalott.core.rng import stream_key
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.stage import Interpreter, Stage
from shalott.harness.run.terminal import watch_plainly, watch_terminal

PROMISED_HZ = 5000
NODES = ("n1", "n2", "n3")
CONCURRENCY = 12
PREFETCH = 100  # deliveries that come at once


class NothingClient:
    """Answers at once."""

    async def open(self) -> None:
        pass

    async def invoke(self, invocation: Invocation) -> Completion:
        return Completion(type="ok", value=invocation.value)

    async def close(self) -> None:
        pass


@dataclass
class Scene:
    """As much of a stage as the progress line looks at."""

    plan: Plan
    record: HistoryWriter
    nemesis: Scene | None = None
    phase: str = "load"
    phase_began_ns: int = 0
    in_force: tuple[str, ...] = ("partition-halves",)


async def measure(path: Path, seconds: float) -> tuple[int, float, float]:
    """(operations, seconds, CPU seconds) of one load."""
    plan = make_plan(Request(time_limit=f"{seconds + 10:g}"), backend="none", seed=1)
    record = HistoryWriter(path)
    scene = Scene(plan, record)
    scene.nemesis = scene
    watch = watch_terminal if sys.stderr.isatty() else partial(watch_plainly, stream=sys.stderr)
    background = [
        asyncio.create_task(record.keep_flushed()),
        asyncio.create_task(watch(cast(Stage, scene))),
    ]
    interpreter = Interpreter(
        NODES, CONCURRENCY, lambda node: NothingClient(), record, op_timeout_ms=5000, seed=1
    )
    mix = queue_mix(("q.1", "q.2", "q.3"), 0.6, 1)
    paced = Stagger(mix, 1e9 / 1_000_000, stream_key(1, "stagger"))
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await interpreter.run(TimeLimit(paced, int(seconds * 1e9)))
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)
    record.close()
    return sum(record.counts.values()), took_s, cpu_s


async def measure_deliveries(path: Path, seconds: float) -> tuple[int, float, float]:
    """The same of deliveries, each acknowledged, as one consumer's client records them."""
    record = HistoryWriter(path)
    flushing = asyncio.create_task(record.keep_flushed())
    began_s, cpu_s, tag = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began_s < seconds:
        for _ in range(PREFETCH):
            tag += 1
            given = {"consumer": "c12.3", "channel": "n1.12.3", "tag": tag}
            record.happened(
                3,
                "n1",
                "deliver",
                Completion(type="ok", key="shalott.1", value=tag, redelivered=False, extra=given),
            )
            said = {"channel": "n1.12.3", "tag": tag}
            index = record.invoke(
                3, "n1", Invocation(f="ack", key="shalott.1", value=tag, extra=said)
            )
            record.complete(index, Completion(type="ok"))
        await asyncio.sleep(0)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    record.close()
    return sum(record.counts.values()), took_s, cpu_s


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "deliveries"]
    seconds = float(words[0]) if words else 5.0
    task = measure_deliveries if "deliveries" in sys.argv else measure
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "history.jsonl")
        count, took_s, cpu_s = asyncio.run(task(path, seconds))
        size = path.stat().st_size
        began_s = time.perf_counter()
        history = recover(path)
        paired_s = time.perf_counter() - began_s
    rate_hz = count / took_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"recorded {count:,} operations in {took_s:.2f} s: {rate_hz:,.0f} operations a second"
        f" ({cpu_s / count * 1e6:.1f} µs of CPU each, {size / count:.0f} bytes each)\n"
        f"read back and paired {history.ops.num_rows:,} rows in {paired_s:.2f} s;"
        f" peak memory {peak_mb:,.0f} MB\n"
    )
    whole = history.complete and history.ops.num_rows == count
    return 0 if whole and rate_hz >= PROMISED_HZ else 1


if __name__ == "__main__":
    sys.exit(main())
