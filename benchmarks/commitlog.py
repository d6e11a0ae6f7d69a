"""How fast the RocketMQ store appends, and how fast it is back after an unclean stop.

    python benchmarks/commitlog.py [--dir DIR] [--gib 10] [--seconds 5] [--in-flight 256]

Everything runs on one core. Bars: 20,000 messages of 1 KiB a second with async flush, and 60 s to
recover 10 GiB of log.

- ``append``: so many puts in flight, each waits until its message is in the operating system's
  hands. ``dispatched`` counts until the last message can be consumed.
- ``recover after a kill``: a store with so many GiB takes messages at full speed and is killed with
  SIGKILL; the time is that of opening it again, as its last checkpoint lets it.
- ``recover without a checkpoint``: the same log and nothing else. Every message is checked, the log
  is written anew (nobody knows what of it is on the disk), and all consume queues are built.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path
from typing import Any

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder, filler
from shalott.broker.rocket.commitlog.store import MessageStore
from shalott.broker.rocket.config import StoreConfig

BODY = bytes(range(256)) * 4
PROPERTIES = "UNIQ_KEY\x017F00000100002A9F0000000000001000\x02TAGS\x01blue\x02"
QUEUES = 4
SEGMENT_BYTES = 1 << 30
CONFIG = StoreConfig(segment_bytes=SEGMENT_BYTES)
BATCH_MESSAGES = 4096
OFFSETS = struct.Struct(">qq")
SPARE_BYTES = 2 << 30  # of the disk, left free
KILLED_AFTER_S = 4.0


class NoEvents:
    def emit(
        self,
        group: str,
        kind: str,
        *,
        role: str = "",
        epoch: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None: ...


def message(queue_id: int) -> Message:
    return Message(topic="Benchmark", queue_id=queue_id, body=BODY, properties=PROPERTIES)


async def opened(disk: OsDisk) -> MessageStore:
    env = Env("n1", 1, SystemClock(), seeded_rng(1, 1), disk, NoEvents())
    return await MessageStore.open(env, CONFIG)


async def appends_per_second(
    directory: Path, seconds: float, in_flight: int
) -> tuple[float, float, float]:
    """(messages a second, the same until dispatched, CPU seconds a second)."""
    disk = OsDisk(directory)
    store = await opened(disk)
    count = 0
    ends = time.perf_counter() + seconds

    async def produce(queue_id: int) -> None:
        nonlocal count
        while time.perf_counter() < ends:
            stage = store.append([message(queue_id)])
            await store.log.written(stage.end)
            count += 1

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(produce(number % QUEUES) for number in range(in_flight)))
    elapsed = time.perf_counter() - start
    await store.dispatched(store.log.max_offset)
    dispatched = time.perf_counter() - start
    busy = (time.process_time() - cpu) / dispatched
    await store.close()
    await disk.close()
    return count / elapsed, count / dispatched, busy


def write_log(directory: Path, gib: float) -> int:
    """Fill ``gib`` of a commit log as a store would have; returns the count of messages."""
    target = directory / "commitlog"
    target.mkdir(parents=True)
    encoder = Encoder(1 << 22)
    sent = [message(queue_id) for queue_id in range(QUEUES)]
    samples = [encoder.encode(one, 0, 0, 1) for one in sent]
    size = len(samples[0])
    batch = bytearray(b"".join(samples) * (BATCH_MESSAGES // QUEUES))
    end, count = int(gib * (1 << 30)), 0
    for start in range(0, end, SEGMENT_BYTES):
        limit = min(SEGMENT_BYTES, end - start)
        with (target / f"{start:020d}").open("wb", buffering=0) as file:
            position = 0
            while (fit := min(BATCH_MESSAGES, (limit - position - 8) // size) // QUEUES) > 0:
                for index in range(fit * QUEUES):
                    place = start + position + index * size
                    OFFSETS.pack_into(batch, index * size + 20, count // QUEUES, place)
                    count += 1
                file.write(memoryview(batch)[: fit * QUEUES * size])
                position += fit * QUEUES * size
            if limit == SEGMENT_BYTES:
                file.write(filler(SEGMENT_BYTES - position))
    return count


async def recovery_seconds(directory: Path, wanted: int) -> float:
    """Until the store has recovered and all ``wanted`` messages are in the queues."""
    disk = OsDisk(directory)
    start = time.perf_counter()
    store = await opened(disk)
    elapsed = time.perf_counter() - start
    found = sum(store.reader.queue_range("Benchmark", queue)[1] for queue in range(QUEUES))
    if found < wanted:
        raise SystemExit(f"{wanted - found} of {wanted} messages are gone")
    await store.close()
    await disk.close()
    return elapsed


def run_until_killed(directory: Path, in_flight: int, running: ProcessEvent) -> None:
    async def run() -> None:
        disk = OsDisk(directory)
        store = await opened(disk)
        running.set()

        async def produce(queue_id: int) -> None:
            while True:
                await store.log.written(store.append([message(queue_id)]).end)

        await asyncio.gather(*(produce(number % QUEUES) for number in range(in_flight)))

    asyncio.run(run())


def live_and_die(directory: Path, in_flight: int) -> None:
    """A store runs on the log for a while and is killed."""
    running = Event()
    process = Process(target=run_until_killed, args=(directory, in_flight, running))
    process.start()
    assert process.pid is not None
    running.wait()
    time.sleep(KILLED_AFTER_S)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def log_gib(directory: Path) -> float:
    sizes = (path.stat().st_size for path in (directory / "commitlog").iterdir())
    return sum(sizes) / (1 << 30)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def measure(directory: Path, gib: float, seconds: float, in_flight: int) -> None:
    rate, dispatched, busy = asyncio.run(
        appends_per_second(directory / "append", seconds, in_flight)
    )
    shutil.rmtree(directory / "append")
    say(f"append: {rate:,.0f} messages/s of 1 KiB, {dispatched:,.0f}/s until dispatched")
    say(f"    with {busy:.0%} of a core: {dispatched / busy:,.0f} messages per second of CPU")
    if gib <= 0:
        return
    start = time.perf_counter()
    count = write_log(directory / "log", gib)
    say(f"wrote {gib:g} GiB, {count:,} messages, in {time.perf_counter() - start:.1f} s")
    cpu = time.process_time()
    elapsed = asyncio.run(recovery_seconds(directory / "log", count))
    cpu = time.process_time() - cpu
    gib = log_gib(directory / "log")
    say(f"recover without a checkpoint: {elapsed:.1f} s ({cpu:.1f} s of CPU) for {gib:.2f} GiB")
    live_and_die(directory / "log", in_flight)
    elapsed = asyncio.run(recovery_seconds(directory / "log", count))
    say(f"recover after a kill: {elapsed:.1f} s for {log_gib(directory / 'log'):.2f} GiB")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say(f"peak memory: {peak / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=None, help="of the disk; made if absent")
    parser.add_argument("--gib", type=float, default=10, help="of log to recover; 0: none")
    parser.add_argument("--seconds", type=float, default=5, help="of appending")
    parser.add_argument("--in-flight", type=int, default=256, help="puts that wait at a time")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.dir is not None:
        options.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        needed = int(options.gib * (1 << 30)) + SPARE_BYTES
        free = shutil.disk_usage(name).free
        if free < needed:
            raise SystemExit(f"{needed >> 20} MiB of disk are needed, {free >> 20} are free")
        measure(Path(name), options.gib, options.seconds, options.in_flight)


if __name__ == "__main__":
    main()
