"""What a library that recovers by itself is asked to do, whichever it is.

Errors: Definite and Indefinite where the library's own words leave no doubt; what else it raises is
for the client to judge by what was on the wire.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shalott.core.errors import UsageError
from shalott.core.subscription import Subscription

PACKAGES: Mapping[str, str] = {"aio-pika": "aio_pika", "pika": "pika"}  # --client -> module


def require_library(name: str) -> None:
    """Raises UsageError, one sentence, if it is not installed."""
    if importlib.util.find_spec(PACKAGES[name]) is None:
        raise UsageError(f"--client {name} needs the package {name}: pip install shalott[clients]")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message, to be published as mandatory and persistent."""

    exchange: str
    routing_key: str
    body: bytes
    ttl_ms: int | None = None
    priority: int | None = None


class Library(Protocol):
    """The connections of one client. Consumers have the names of their slots."""

    @property
    def holds(self) -> tuple[str, ...]:
        """Consumers that were made, were not ended on purpose, and that the library did not give
        up."""
        ...

    async def open(self, host: str, port: int) -> None:
        """Raises Unreachable."""
        ...

    async def publish(self, message: Outgoing) -> None:
        """Until the library says that it is confirmed. Raises whatever the library does, and
        Indefinite if time is up while it may still send; it sends nothing once this has ended
        otherwise."""
        ...

    async def subscribe(self, name: str, queue: str, wanted: Subscription) -> None:
        """Raises Definite if the server refused it, or nothing was asked."""
        ...

    async def cancel(self, name: str) -> None: ...

    async def close_channel(self, name: str) -> None: ...

    async def calm(self) -> None:
        """Acknowledge everything from now on; channels that keep messages are closed."""
        ...

    def unsettled(self, queue: str) -> int:
        """Messages of that queue of which nothing was said yet."""
        ...

    async def drop(self) -> None:
        """As when the application dies: nothing more is said, and the library recovers nothing."""
        ...

    async def close(self) -> None:
        """In order."""
        ...
