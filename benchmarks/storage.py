"""How many persistent messages a backing queue makes durable in a second.

    python benchmarks/storage.py [--dir DIR] [--seconds 2]

One queue, group commit, on the disk that DIR is on. ``outstanding`` is how many publishes wait for
their confirm at a time: 1 shows what one sync costs, more shows what sharing it gives.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from shalott.broker.base.disk import OsDisk
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.backing_queue import BackingQueue

BODY_BYTES = (64, 1024)
OUTSTANDING = (1, 10, 100, 1000)


async def confirmed_per_second(
    directory: Path, body_bytes: int, outstanding: int, seconds: float
) -> float:
    """Publish with a window of ``outstanding``; consume as well, so that journals are compacted."""
    disk = OsDisk(directory)
    queue = await BackingQueue.create(disk, f"queues/{body_bytes}-{outstanding}")
    body = bytes(body_bytes)
    marks: deque[int] = deque()
    published = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        while len(marks) < outstanding:
            published += 1
            marks.append(queue.publish(Content(published, "", "q", b"", body, persistent=True)))
        await queue.index.wait_durable(marks[0])
        while marks and marks[0] <= queue.index.durable_mark:
            marks.popleft()
        if queue.messages.ready > 5000:
            queue.drop(queue.messages.ready)
    await queue.index.wait_durable(queue.index.mark)
    elapsed = time.perf_counter() - start
    await queue.wipe()
    await disk.close()
    return published / elapsed


async def recovered_per_second(directory: Path, count: int) -> float:
    disk = OsDisk(directory)
    queue = await BackingQueue.create(disk, "queues/recovery")
    for number in range(count):
        queue.publish(Content(number, "", "q", b"", bytes(64), persistent=True))
    await queue.close()
    start = time.perf_counter()
    queue = await BackingQueue.recover(disk, "queues/recovery")
    elapsed = time.perf_counter() - start
    assert queue.messages.ready == count
    await queue.wipe()
    await disk.close()
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, help="where to write; default: a temporary directory")
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as name:
        directory = Path(name)
        sys.stdout.write("body bytes  outstanding  confirmed/s\n")
        for body_bytes in BODY_BYTES:
            for outstanding in OUTSTANDING:
                rate = asyncio.run(
                    confirmed_per_second(directory, body_bytes, outstanding, arguments.seconds)
                )
                sys.stdout.write(f"{body_bytes:>10}  {outstanding:>11}  {rate:>11,.0f}\n")
        rate = asyncio.run(recovered_per_second(directory, 100_000))
        sys.stdout.write(f"recovery of 100,000 messages of 64 bytes: {rate:,.0f}/s\n")


if __name__ == "__main__":
    main()
