"""``python -m shalott.broker --config node.toml``: run one node until SIGTERM or SIGINT.

SIGUSR1 makes it print where every task waits. Exit codes: 0 after an orderly stop, 70 when the node
gave itself up (its disk failed, say), 78 for a bad configuration or a port in use.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shalott.broker.base.disk import OsDisk
from shalott.broker.base.env import Platform, SystemClock, seeded_rng
from shalott.broker.base.errors import BrokerError, ConfigError
from shalott.broker.base.events import JsonlEventLog
from shalott.broker.nodes import load_config, open_node
from shalott.broker.rabbit.config import NodeConfig
from shalott.broker.rabbit.node.node_state import MEMBER, BeginAgain, ShutDown, begin_standing
from shalott.broker.rocket.config import RocketConfig

if TYPE_CHECKING:
    from shalott.broker.nodes import AnyNode
    from shalott.broker.rabbit.node.node import Node

log = logging.getLogger("shalott.broker")

EXIT_GAVE_UP = 70
EXIT_CONFIG = 78
DISK_WRITERS = 4


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m shalott.broker", description="Run one broker node."
    )
    parser.add_argument("--config", type=Path, required=True, help="the node's TOML file")
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.config)
    except ConfigError as error:
        sys.stderr.write(f"broker: {error}\n")
        return EXIT_CONFIG
    if isinstance(config, NodeConfig) and not config.memory_bytes:
        config = msgspec.structs.replace(config, memory_bytes=machine_memory())
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s.%(msecs)03d {config.name} %(levelname).1s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    return asyncio.run(serve(config))


def machine_memory(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of the machine's memory, or of what its container may have."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = cgroup.read_text().strip() if cgroup.exists() else ""
    return min(total, int(limit)) if limit.isdigit() else total


def count_start(data_dir: Path) -> int:
    """Count a start in a file beside ``data_dir``, and return the count; 0 if that can't be."""
    counter = data_dir.with_name(f"{data_dir.name}.starts")
    try:
        text = counter.read_text() if counter.exists() else "0"
        starts = int(text) + 1 if text.isdigit() else 1
        counter.write_text(str(starts))
    except OSError as error:
        log.info("starts are not counted outside the data directory: %s", error)
        return 0
    return starts


async def serve(config: NodeConfig | RocketConfig) -> int:
    """Run the node; returns the process's exit code."""
    clock = SystemClock()
    seed = config.seed or int.from_bytes(os.urandom(8), "big")
    events: list[JsonlEventLog] = []

    async def open_events(incarnation: int) -> JsonlEventLog:
        log = await JsonlEventLog.open(disk, clock, node=config.name, incarnation=incarnation)
        events.append(log)
        return log

    try:
        # A mirrored node's queues have a directory each.
        writers = 1 if isinstance(config, RocketConfig) else DISK_WRITERS
        disk = OsDisk(Path(config.data_dir), writers)
        standing = MEMBER if isinstance(config, RocketConfig) else await begin_standing(disk)
        platform = Platform(
            clock=clock,
            make_rng=partial(seeded_rng, seed),
            disk=disk,
            open_events=open_events,
            starts=count_start(Path(config.data_dir)),
        )
        node = await open_node(config, platform, standing=standing)
        await node.start()
    except (BrokerError, OSError) as error:
        sys.stderr.write(f"broker: {config.name} can't start: {error}\n")
        return EXIT_CONFIG
    giving = None
    if isinstance(config, NodeConfig):
        memory = cast("Node", node).memory
        giving = asyncio.create_task(give_back(lambda: memory.used), name="giving back")
    again = await until_asked_to_stop(node)
    if giving is not None:
        giving.cancel()
    for log in events:
        await log.close()
    if again is not None:
        await again.prepare(disk)
    await disk.close()
    if again is not None:
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


async def until_asked_to_stop(node: AnyNode) -> BeginAgain | None:
    """Wait for a signal or the node's own end; stop it in order, unless it failed. None: for
    good."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    loop.add_signal_handler(signal.SIGUSR1, tell_tasks)
    ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(asked.wait()), node.fatal]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if node.fatal.done():
        error = node.fatal.result()
        if isinstance(error, BeginAgain):
            await node.stop()
            return error
        if isinstance(error, ShutDown):
            await node.stop()
            return None
        if isinstance(error, ConfigError):
            sys.stderr.write(f"broker: {node.config.name} can't start: {error}\n")
            os._exit(EXIT_CONFIG)
        logging.getLogger("shalott.broker").critical("giving up: %s", error)
        # An orderly end would pretend that what is on disk can be trusted.
        os._exit(EXIT_GAVE_UP)
    await node.stop()
    return None


def tell_tasks() -> None:
    """Print where every task waits: what a node that hangs is asked with SIGUSR1."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


# -- memory ----------------------------------------------------------------------------------------
# The C library keeps what is freed below something that is still used, and a broker frees bodies
# between small objects that stay: after a queue of 150 MB was deleted, all of it was free and
# none of it returned (docs/explanation/memory.md). ``malloc_trim`` returns the free pages. It
# belongs to the C library and to a real process, so it is called from outside the broker, which
# runs in a simulation too.


LOOK_EVERY_S = 2.0
WORTH_BYTES = 32 << 20


async def give_back(used: Callable[[], int]) -> None:
    """For ever: each time ``used``, bytes that queues hold, has fallen by much."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only GNU's has it
    most = used()
    while trim is not None:
        await asyncio.sleep(LOOK_EVERY_S)
        now = used()
        most = max(most, now)
        if most - now >= WORTH_BYTES:
            trim(0)
            most = now


if __name__ == "__main__":
    sys.exit(main())
