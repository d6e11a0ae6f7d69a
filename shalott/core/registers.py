"""Registers that clients read, write and compare-and-set, and the generator that draws it.

As in Jepsen's etcd tutorial: independent keys, each of which has a group of clients to itself and
a limited number of operations, so that each is judged quickly.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, stream_key

READ, WRITE, CAS = "read", "write", "cas"
VALUES = 5  # 0 to 4, so that they come again
PACKED = 10  # a cas is one number: PACKED * the value that must be there + the value to put


class Registered(Protocol):
    """A client of one node's registers; not open yet when made.

    Each method raises Definite if it certainly was not done, Unreachable if nothing was sent, and
    Indefinite if it may have been done, or may yet be. A read changes nothing: one that failed in
    any way may be Definite.
    """

    async def open(self) -> None: ...

    async def read(self, key: str) -> int | None:
        """The value; None of a key that was never written."""
        ...

    async def write(self, key: str, value: int) -> None: ...

    async def cas(self, key: str, old: int, new: int) -> bool:
        """Whether ``old`` was there, and ``new`` is now; False: certainly nothing was written."""
        ...

    async def close(self) -> None: ...


class MakeRegistered(Protocol):
    """A Registered of the node that listens there."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Registered: ...


class RegisterMix(msgspec.Struct, frozen=True):
    """Operations for ever, as the seed draws them. ``unique``: no value is written twice, and there
    is no cas, so that each read tells its write."""

    part: str
    seed: int
    concurrency: int
    clients_per_key: int
    ops_per_key: int
    cas: bool = True
    unique: bool = False
    done: dict[int, int] = {}  # operations so far, by group of clients

    def next(self, context: Context) -> tuple[Answer, Generator]:
        group = context.process % self.concurrency // self.clients_per_key
        count = self.done.get(group, 0)
        key = stream_key(self.seed, self.part, group)
        kind, pair = divmod(draw_below(key, count, 3 * VALUES**2), VALUES**2)
        first, second = divmod(pair, VALUES)
        f = (READ, WRITE, CAS)[kind]
        if f == CAS and (self.unique or not self.cas):
            f = WRITE
        value = {READ: None, WRITE: second, CAS: PACKED * first + second}[f]
        if self.unique and f == WRITE:
            value = count
        name = f"{self.part}.{group}.{count // self.ops_per_key}"
        successor = msgspec.structs.replace(self, done={**self.done, group: count + 1})
        return Scheduled(context.now_ns, Invocation(f=f, key=name, value=value)), successor

    def update(self, event: Completed) -> Generator:
        return self
