"""Servers whose start may be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from shalott.broker.base.tls import TlsConfig

HANDSHAKE_TIMEOUT_S = 5.0  # of TLS: rabbitmq.conf, ssl_handshake_timeout
SHUTDOWN_TIMEOUT_S = 2.0

Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def listen(
    accepted: Accepted, host: str, port: int, tls: TlsConfig | None = None
) -> asyncio.Server:
    """asyncio.start_server, but when cancelled it leaves nothing that listens.

    On ``::`` it is for IPv4 too. With ``tls`` what is accepted has shaken hands.

    asyncio.start_server listens already while it waits for the loop's next round. Cancelled there,
    it leaves a server that can't be closed, and the port is taken for ever.

    Raises:
        OSError: the port can't be had.
        ConfigError: the files of TLS can't be used.
    """
    hosts = ["::", "0.0.0.0"] if host == "::" else host
    if tls is None:
        starting = asyncio.start_server(accepted, hosts, port)
    else:
        starting = asyncio.start_server(
            accepted,
            hosts,
            port,
            ssl=tls.context(),
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
    opening = asyncio.create_task(starting)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            (await opening).close()
        raise
