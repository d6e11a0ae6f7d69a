"""Programs of the host end with their caller, and nothing that they started goes on."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from shalott.cluster.docker.programs import run_program
from shalott.cluster.owner import process_state
from shalott.cluster.waiting import wait_until

pytestmark = pytest.mark.unit


def test_input_output_and_exit_code_are_passed_on() -> None:
    done = asyncio.run(run_program("sh", "-c", "cat; echo bad >&2; exit 3", script="in"))
    assert (done.exit_code, done.output, done.errors) == (3, "in", "bad\n")


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_cancelled_caller_takes_the_whole_program_along(
    is_starting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, known = asyncio.create_subprocess_exec, asyncio.Event()

    async def start(*arguments: Any, **settings: Any) -> asyncio.subprocess.Process:
        process = await create(*arguments, **settings)
        if is_starting:
            await known.wait()
        known.set()
        return process

    async def scenario() -> None:
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        script = f"sleep 60 & echo $! >/proc/{os.getpid()}/fd/{writer}; wait"
        running = asyncio.create_task(run_program("sh", "-c", script))
        try:
            child = int(await asyncio.to_thread(os.read, reader, 20))
            if not is_starting:
                await known.wait()
        finally:
            running.cancel()
            asyncio.get_running_loop().call_later(0.01, known.set)
            os.close(reader)
            os.close(writer)
        await asyncio.wait([running], timeout=5)
        assert running.done() and running.cancelled()
        assert await wait_until(lambda: process_state(child) in ("", "Z"), 5, 0.01)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    asyncio.run(scenario())
