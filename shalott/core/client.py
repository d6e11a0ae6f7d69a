"""The client protocol: one client serves one process, one operation at a time.

After jepsen.client: ``open`` must not change the system's logical state, so when it raises, the
operation that needed it certainly did not happen. ``invoke`` returns a Completion, raises
``Definite`` when the operation certainly did not happen and ``Indefinite`` when it may have;
anything else that it raises, or returns (``completion_of``), is treated as Indefinite.
``Unreachable`` is the Definite that asks for a new connection. Mapping an unknown outcome to fail
is the gravest bug a harness can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from shalott.core.errors import Indefinite, UsageError
from shalott.core.history import Recorder
from shalott.core.op import Completion, Invocation

DONE = Completion(type="ok")
NO_COMPLETION = "not a Completion"  # of every sentence about an answer that is none
INT64 = 2**63


class Client(Protocol):
    """Bound to one node's endpoint when made."""

    async def open(self) -> None: ...

    async def invoke(self, invocation: Invocation) -> Completion: ...

    async def close(self) -> None: ...


def completion_of(client: Client, answer: object) -> Completion:
    """What ``invoke`` returned, if it is a Completion that a history can hold.

    Raises Indefinite, naming the client's class: the operation may have happened.
    """
    method = f"{type(client).__name__}.invoke"
    if not isinstance(answer, Completion):
        raise Indefinite(f"{method} returned {_named(answer)}, {NO_COMPLETION}")
    kind, value = answer.type, answer.value
    if kind not in ("ok", "fail", "info"):
        raise Indefinite(f"{method} returned the type {kind!r}, {NO_COMPLETION} of ok, fail, info")
    if value is not None and not (isinstance(value, int) and -INT64 <= value < INT64):
        what = "an int beyond 64 bits" if isinstance(value, int) else _named(value)
        raise Indefinite(f"{method} returned {what} as value, {NO_COMPLETION} of an int64")
    for name, text in (("key", answer.key), ("error", answer.error)):
        if text is not None and not isinstance(text, str):
            raise Indefinite(f"{method} returned {_named(text)} as {name}, {NO_COMPLETION} of text")
    return answer


def _named(answer: object) -> str:
    return "None" if answer is None else f"a {type(answer).__name__}"


@runtime_checkable
class Recording(Protocol):
    """A client to which things happen between operations, as deliveries to a consumer: it records
    them itself, under the process that it serves."""

    def record_in(self, recorder: Recorder, process: int, node: str) -> None:
        """Called once, before ``open``."""
        ...


@dataclass(slots=True)
class ClientRows:
    """What such a client records by itself: rows of the process that it serves."""

    recorder: Recorder
    process: int
    node: str

    def now_ns(self) -> int:
        return self.recorder.now_ns()

    def begin(self, f: str, key: str, extra: Mapping[str, object], value: int | None = None) -> int:
        begun = Invocation(f=f, key=key, value=value, extra=extra)
        return self.recorder.invoke(self.process, self.node, begun)

    def end(self, row: int, completion: Completion = DONE) -> None:
        self.recorder.complete(row, completion)

    def happened(self, f: str, completion: Completion) -> None:
        self.recorder.happened(self.process, self.node, f, completion)


@runtime_checkable
class Holding(Protocol):
    """A client that holds things between operations, as subscriptions, which it may lose at any
    time: generators are told of them (``Context.holds``)."""

    @property
    def holds(self) -> tuple[str, ...]:
        """Their names, as the workload's generator knows them."""
        ...


@runtime_checkable
class Watchful(Protocol):
    """A client that notices, between two operations, that what it holds is no longer its own."""

    async def until_lost(self) -> None:
        """Return when it notices. May be cancelled."""
        ...


@runtime_checkable
class Lingering(Protocol):
    """A client that may stay connected when an operation had no answer, and is asked no more."""

    @property
    def lingers(self) -> bool: ...


class MakeClient(Protocol):
    """A client of the node that listens there; not open yet."""

    def __call__(self, host: str, port: int) -> Client: ...


OWN = "own"  # the client that is no library


def refuse_in_simulation(name: str, backend: str) -> None:
    """Raises UsageError: libraries have clocks, sockets and threads of their own."""
    if name != OWN and backend == "sim":
        raise UsageError(
            f"--client {name} runs on real clusters only: a simulated network has no place for a"
            " library with sockets of its own"
        )
