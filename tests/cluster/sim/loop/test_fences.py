"""Fences: what a simulated program can't do says so, with what to do instead."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shalott.cluster.sim.loop.fences import SimFence
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess

pytestmark = pytest.mark.unit

LOOP_CALLS: dict[str, Callable[[SimLoop], object]] = {
    "executor": lambda loop: loop.run_in_executor(None, print),
    "to_thread": lambda loop: loop.create_task(asyncio.to_thread(print)),
    "threadsafe": lambda loop: loop.call_soon_threadsafe(print),
    "subprocess": lambda loop: loop.subprocess_exec(print, "true"),
    "signal": lambda loop: loop.add_signal_handler(2, print),
    "reader": lambda loop: loop.add_reader(0, print),
    "datagram": lambda loop: loop.create_datagram_endpoint(print),
    "unix": lambda loop: loop.create_unix_connection(print, "x"),
}


@pytest.mark.parametrize("name", [name for name in LOOP_CALLS if name != "to_thread"])
def test_the_loop_refuses(name: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        with pytest.raises(SimFence, match=": "):
            LOOP_CALLS[name](loop)

    SimLoop().run(main(), SimProcess("n1"))


def test_to_thread_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(SimFence, match="no threads"):
            await asyncio.to_thread(print)

    SimLoop().run(main(), SimProcess("n1"))


REAL: dict[str, Callable[[], object]] = {
    "open": lambda: Path(__file__).open(),  # noqa: SIM115
    "listdir": lambda: list(Path(__file__).parent.iterdir()),
    "socket": socket.socket,
    "subprocess": lambda: subprocess.Popen(["true"]),
}


@pytest.mark.parametrize("name", REAL)
def test_a_fenced_process_can_not_reach_the_real_world(name: str) -> None:
    async def main() -> None:
        with pytest.raises(SimFence, match="n1#1 tried"):
            REAL[name]()

    SimLoop().run(main(), SimProcess("n1"))


def test_the_harness_may_and_so_may_everybody_afterwards() -> None:
    async def main() -> str:
        return Path(__file__).read_text()  # noqa: ASYNC240

    assert SimLoop().run(main(), SimProcess("harness", fenced=False))
    assert Path(__file__).read_text()
    thread = threading.Thread(target=print, args=("",))
    thread.start()
    thread.join()
