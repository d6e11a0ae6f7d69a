"""Queues as clients of any system use them: send, receive, and settle what was received.

A message is delivered to one client, which settles it once it is done with it; what is not settled
comes out again, sooner or later. A queue that forgets what it delivers has nothing to settle
(``Queues.acknowledges``, cluster/systems/record.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was delivered. ``redelivered``: whether the system says that it had been
    delivered before, None if it does not say. ``token``: what settling it needs, as the client's
    library has it; the harness gives it back unseen."""

    body: bytes
    redelivered: bool | None = None
    token: object = None


class Queued(Protocol):
    """A client of one node's queues; not open yet when made.

    Each method raises Definite if it certainly was not done, Unreachable if nothing was sent, and
    Indefinite if it may have been done, or may yet be: a client library's time-out, or a
    connection that ended after the request was sent.
    """

    async def open(self) -> None: ...

    async def send(self, queue: str, body: bytes) -> None:
        """Return when the system has acknowledged the message."""
        ...

    async def receive(self, queue: str) -> Received | None:
        """The next message; None: there is none, and none that was delivered and is not settled.

        Where the second is not known to be so, as behind a node that died, raise Definite: the
        drain then asks again, and ends when each node said None twice.
        """
        ...

    async def settle(self, received: Received) -> None:
        """Acknowledge it. Definite: it is not settled, and will be delivered again."""
        ...

    async def close(self) -> None: ...


class MakeQueued(Protocol):
    """A Queued of the node that listens there."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Queued: ...
