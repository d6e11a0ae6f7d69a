"""pika's publisher: what was given up before it was begun is never sent."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from shalott.clients.amqp_libraries.library import Outgoing
from shalott.clients.amqp_libraries.pika_library import PikaPublisher
from shalott.core.errors import Definite, Indefinite
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit

MESSAGE = Outgoing("", "q", b"x")


class Publisher(PikaPublisher):
    """Sends nowhere; what it is asked to send is held until it may go on."""

    def __init__(self) -> None:
        super().__init__(parameters=None)  # type: ignore[arg-type]
        self.sent: list[Outgoing | None] = []
        self.began = asyncio.Event()
        self.may_end: Any = None

    def _publish(self, message: Outgoing | None) -> None:
        self.sent.append(message)
        self._loop.call_soon_threadsafe(self.began.set)
        if self.may_end is not None:
            self.may_end.wait(5)


def test_what_was_not_begun_in_time_is_certainly_not_sent() -> None:
    async def main() -> None:
        publisher = Publisher()
        with pytest.raises(Definite, match="busy"):
            await publisher.do(MESSAGE, 0.01)
        publisher.start()
        await publisher.end()
        assert publisher.sent == []

    asyncio.run(main())


def test_what_its_waiter_was_cancelled_from_is_not_sent_later() -> None:
    async def main() -> None:
        publisher = Publisher()
        waiting = asyncio.create_task(publisher.do(MESSAGE, 60))
        await turns()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        publisher.start()
        await publisher.end()
        assert publisher.sent == []

    asyncio.run(main())


def test_what_was_begun_may_be_sent() -> None:
    async def main() -> None:
        import threading

        publisher = Publisher()
        publisher.may_end = threading.Event()
        publisher.start()
        doing = asyncio.create_task(publisher.do(MESSAGE, 0.2))
        async with asyncio.timeout(5):
            await publisher.began.wait()
        with pytest.raises(Indefinite, match="no answer"):
            await doing
        publisher.may_end.set()
        await publisher.end()
        assert publisher.sent == [MESSAGE]

    asyncio.run(main())
