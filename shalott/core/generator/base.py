"""What a generator is: a pure value that says which operation comes next.

After jepsen.generator, which moved from mutable to pure generators because only those can be
tested, composed and replayed. A generator is asked by one worker at a time and answers with an
operation and the moment it is due, with ``Pending`` (nothing for you now, ask again), or with None
(exhausted); it returns its successor and changes nothing. It hears of completions through
``update``.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shalott.core.op import Invocation, OpType


class Context(msgspec.Struct, frozen=True):
    """Who asks, and when."""

    now_ns: int
    process: int
    node: str
    in_flight: int = 0  # operations of all processes that have not completed yet
    holds: tuple[str, ...] = ()  # what the client of who asks holds (``Holding``)


class Scheduled(msgspec.Struct, frozen=True):
    """Do this at ``at_ns``, or at once if that has passed.

    ``when_lost``: or as soon as the client notices that it has lost what it holds (``Watchful``).
    ``due_ns``: when the generator's schedule wanted it, which may be long before ``at_ns`` if no
    worker was free; None if no schedule paces it. Latencies are measured from there too.
    """

    at_ns: int
    invocation: Invocation
    when_lost: bool = False
    due_ns: int | None = None


class Pending(msgspec.Struct, frozen=True):
    """Ask again when an operation has completed, or at ``until_ns``, whichever comes first."""

    until_ns: int | None = None


class Completed(msgspec.Struct, frozen=True):
    """What a generator hears of an operation's end."""

    now_ns: int
    process: int
    node: str
    invocation: Invocation
    kind: OpType
    error: str | None = None


Answer = Scheduled | Pending | None


class Generator(Protocol):
    def next(self, context: Context) -> tuple[Answer, Generator]: ...

    def update(self, event: Completed) -> Generator: ...
