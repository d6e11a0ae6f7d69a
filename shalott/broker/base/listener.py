"""Servers whose start may be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import SupportsIndex

from shalott.broker.base.tls import TlsConfig

HANDSHAKE_TIMEOUT_S = 5.0  # of TLS: rabbitmq.conf, ssl_handshake_timeout
SHUTDOWN_TIMEOUT_S = 2.0


class Ear(asyncio.StreamReader):
    """A reader whose owner ``hears`` of bytes when they come, before the task that waits for them
    has its turn."""

    hears: Callable[[], None] | None = None

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        if self.hears is not None:
            self.hears()
        super().feed_data(data)


Accepted = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def listen(
    accepted: Accepted, host: str, port: int, tls: TlsConfig | None = None
) -> asyncio.Server:
    """asyncio.start_server with an Ear, but when cancelled it leaves nothing that listens.

    On ``::`` it is for IPv4 too. With ``tls`` what is accepted has shaken hands.

    asyncio.start_server listens already while it waits for the loop's next round. Cancelled there,
    it leaves a server that can't be closed, and the port is taken for ever.

    Raises:
        OSError: the port can't be had.
        ConfigError: the files of TLS can't be used.
    """
    hosts = ["::", "0.0.0.0"] if host == "::" else host
    loop = asyncio.get_running_loop()

    def made() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(Ear(loop=loop), accepted, loop=loop)

    if tls is None:
        starting = loop.create_server(made, hosts, port)
    else:
        starting = loop.create_server(
            made,
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
