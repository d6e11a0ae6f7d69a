"""Programs of the host end with their caller, and nothing that they started goes on."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from shalott.cluster.docker.namespaces import run_program
from shalott.cluster.owner import process_state
from shalott.cluster.waiting import wait_until
from tests.world.clock.turns import turns

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


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_caller_waits_for_the_end_of_one_that_can_not_be_signalled_any_more(
    cancels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by itself at that very moment: it is reaped, and its loop was not told yet."""
    create, started = asyncio.create_subprocess_exec, []
    reader, writer = os.pipe()

    async def start(*arguments: Any, **settings: Any) -> asyncio.subprocess.Process:
        started.append(await create(*arguments, **settings))
        return started[-1]

    def no_such_group(pid: int, number: int) -> None:
        asyncio.get_running_loop().call_later(0.05, os.close, writer)
        raise ProcessLookupError

    async def scenario() -> None:
        os.set_inheritable(reader, True)
        script = f"read line </proc/{os.getpid()}/fd/{reader}"
        running = asyncio.create_task(run_program("sh", "-c", script))
        assert await wait_until(lambda: bool(started), 5, 0.001)
        for _ in range(cancels):
            running.cancel()
            await turns(2)
        await asyncio.wait([running], timeout=5)
        assert running.done() and running.cancelled()
        assert started[0].returncode is not None

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(os, "killpg", no_such_group)
    asyncio.run(scenario())
    os.close(reader)
