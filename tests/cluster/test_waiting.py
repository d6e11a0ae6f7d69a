"""Waiting by asking: until the answer is yes, or the event loop's time is past the deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from tenacity import retry_if_exception_type, wait_exponential, wait_fixed

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.waiting import ask_until, retrying, wait_until

pytestmark = pytest.mark.unit

HOUR_S = 3600.0


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """In virtual time."""
    return SimLoop().run(main, SimProcess("harness", fenced=False))


def test_the_deadline_and_the_pauses_are_the_loops_time() -> None:
    async def main() -> list[float]:
        loop, asked = asyncio.get_running_loop(), []
        began_s = loop.time()

        async def ask() -> bool:
            asked.append(round(loop.time() - began_s, 6))
            return False

        assert not await ask_until(ask, 2 * HOUR_S, wait_fixed(HOUR_S))
        return asked

    began_s = time.monotonic()
    assert run(main()) == [0.0, HOUR_S, 2 * HOUR_S, 3 * HOUR_S]
    assert time.monotonic() - began_s < 60


def test_pauses_grow_as_asked() -> None:
    async def main() -> list[float]:
        loop, asked = asyncio.get_running_loop(), []

        async def ask() -> bool:
            asked.append(loop.time())
            return len(asked) == 5

        assert await ask_until(ask, 10, wait_exponential(multiplier=0.1, exp_base=2, max=0.3))
        return [round(b - a, 6) for a, b in zip(asked, asked[1:], strict=False)]

    assert run(main()) == [0.1, 0.2, 0.3, 0.3]


def test_a_yes_ends_the_waiting_also_after_the_deadline() -> None:
    async def main() -> bool:
        return await wait_until(lambda: True, 0, 1) and not await wait_until(lambda: False, 0, 1)

    assert run(main())


def test_an_attempt_is_repeated_for_named_errors_only_and_raises_in_the_end() -> None:
    async def main() -> tuple[int, int]:
        counts = [0, 0]

        async def fail(which: int, error: Exception) -> None:
            counts[which] += 1
            raise error

        retry = retry_if_exception_type(ValueError)
        with pytest.raises(ValueError, match="again"):
            await retrying(2.5, wait_fixed(1), retry)(fail, 0, ValueError("again"))
        with pytest.raises(KeyError):
            await retrying(2.5, wait_fixed(1), retry)(fail, 1, KeyError("once"))
        return counts[0], counts[1]

    assert run(main()) == (4, 1)


def test_a_cancelled_waiter_ends_at_once() -> None:
    async def main() -> None:
        waiting = asyncio.ensure_future(wait_until(lambda: False, HOUR_S, 1))
        await asyncio.sleep(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())
