"""Waiting for what has to be asked again and again, because it does not tell when it changes.

tenacity asks. Deadlines and pauses are in the event loop's time, which is virtual in a simulation:
tenacity's own ``stop_after_delay`` reads the machine's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_fixed
from tenacity.retry import RetryBaseT
from tenacity.wait import WaitBaseT


def retrying(timeout_s: float, wait: WaitBaseT, retry: RetryBaseT) -> AsyncRetrying:
    """Attempts until one is not to be repeated, or the deadline is past; at least one is made.

    An attempt that raised raises in the end, too.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s

    def is_late(_: RetryCallState) -> bool:
        return loop.time() > deadline_s

    return AsyncRetrying(stop=is_late, wait=wait, retry=retry, sleep=asyncio.sleep, reraise=True)


async def ask_until(ask: Callable[[], Awaitable[bool]], timeout_s: float, wait: WaitBaseT) -> bool:
    """Ask until the answer is yes; False if it still is no at the deadline."""
    asking = retrying(timeout_s, wait, retry_if_result(lambda answer: not answer))
    asking.retry_error_callback = lambda _: False
    return bool(await asking(ask))


async def wait_until(condition: Callable[[], bool], timeout_s: float, interval_s: float) -> bool:
    """Look until the condition holds; False if it still doesn't at the deadline."""

    async def look() -> bool:
        return condition()

    return await ask_until(look, timeout_s, wait_fixed(interval_s))
