"""What a library that recovers by itself is asked to do, whichever it is.

Errors: Definite and Indefinite where the library's own words leave no doubt; what else it raises is
for the client to judge by what was on the wire.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from shalott.core.errors import UsageError
from shalott.core.subscription import PLAIN, Settling, Subscription, Verdict

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
        """Until the library says that it is confirmed. Raises what the library does, and
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


PROOF_S = 0.05  # so long a settlement waits for others before the question that proves it


@dataclass(slots=True)
class Settler:
    """What an application says of the deliveries of one channel, and when.

    The plan decides (core/subscription.py), as it does for our own client; a library only carries
    it out. ``say`` and ``ask`` begin something and do not wait for it. ``ask`` sends the question
    behind which a settlement is proved: a passive queue.declare. ``came`` counts on over the
    channels that a library opens one after the other.
    """

    settling: Settling
    say: Callable[[int, Verdict], None]
    ask: Callable[[str], None]
    came: int = 0
    unsettled: dict[int, str] = field(default_factory=dict)  # tag -> queue
    kept: dict[int, None] = field(default_factory=dict)  # of them: nothing will be said of these
    is_over: bool = False
    is_recovering: bool = False
    _timers: dict[int, asyncio.TimerHandle] = field(default_factory=dict)
    _unproved: dict[str, None] = field(default_factory=dict)
    _proof: asyncio.TimerHandle | None = None

    def delivered(self, tag: int, queue: str) -> None:
        """It wants to be settled."""
        if self.is_over or self.is_recovering:
            return  # what comes before the answer to basic.recover was taken back by it
        verdict = self.settling.verdict(self.came)
        self.came += 1
        self.unsettled[tag] = queue
        if verdict.said == "never":
            self.kept[tag] = None
            return
        loop = asyncio.get_running_loop()
        self._timers[tag] = loop.call_later(verdict.after_ms / 1000, self._due, tag, verdict)

    def recovered(self) -> None:
        """basic.recover was answered."""
        self.is_recovering = False

    def calm(self) -> None:
        """Acknowledge what comes from now on, at once."""
        self.settling = PLAIN

    def over(self) -> None:
        """Nothing can be said any more."""
        self.is_over = True
        for timer in (*self._timers.values(), *([self._proof] if self._proof else [])):
            timer.cancel()
        self._timers.clear()
        self.unsettled.clear()
        self.kept.clear()

    @property
    def is_idle(self) -> bool:
        """Nothing more will be said, or proved."""
        return not (self._timers or self._unproved or self.is_recovering)

    def _due(self, tag: int, verdict: Verdict) -> None:
        self._timers.pop(tag, None)
        if tag not in self.unsettled:
            return
        settled = [tag]
        if verdict.said == "recover":
            settled = list(self.unsettled)
            self.is_recovering = True
        elif verdict.multiple:
            settled = [other for other in self.unsettled if other <= tag]
        for other in settled:
            self._unproved[self.unsettled.pop(other)] = None
            self.kept.pop(other, None)
            timer = self._timers.pop(other, None)
            if timer is not None:
                timer.cancel()
        self.say(tag, verdict)
        if self._proof is None:
            loop = asyncio.get_running_loop()
            self._proof = loop.call_later(PROOF_S, self._prove)

    def _prove(self) -> None:
        self._proof = None
        queues, self._unproved = self._unproved, {}
        for queue in queues:
            self.ask(queue)
