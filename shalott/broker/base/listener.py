"""Servers whose start may be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def listen(accepted: Accepted, host: str, port: int) -> asyncio.Server:
    """asyncio.start_server, but when cancelled it leaves nothing that listens.

    asyncio.start_server listens already while it waits for the loop's next round. Cancelled there,
    it leaves a server that can't be closed, and the port is taken for ever.

    Raises:
        OSError: the port can't be had.
    """
    opening = asyncio.create_task(asyncio.start_server(accepted, host, port))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            (await opening).close()
        raise
