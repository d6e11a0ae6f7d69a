"""Transactions over several keys: what does them, and the generators that draw them.

A transaction is a sequence of micro-operations, as in jepsen.tests.cycle: ``("r", key, None)``
reads a key, ``("append", key, element)`` adds to the list that is there, ``("w", key, value)``
writes a register. Keys and values are whole numbers; no value is written twice to one key, so that
a reader's value tells its writer. They stand in the history as the ``value`` of ``extra``.

The generators are Elle's (elle.txn/wr-txns): a few keys are in use at a time, the last of them
twice as often as the one before; a key that was written so often makes room for a new one, so that
lists stay short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.rng import draw_below, draw_u64, stream_key

TXN = "txn"
READ = "r"
Write = Literal["append", "w"]
Mop = tuple[str, int, object]
RETRY_PAUSE_NS = 200_000_000


class Transactor(Protocol):
    """A client of one node that does transactions; not open yet when made."""

    async def open(self) -> None: ...

    async def transact(self, mops: Sequence[Mop]) -> Sequence[Mop]:
        """Do all of it in one transaction and return it with what its reads saw: a list or a
        register's value, None of a key that was never written.

        Raises Definite if it was aborted or never begun, Unreachable if nothing was sent,
        Indefinite if it may have been committed, and may yet be.
        """
        ...

    async def close(self) -> None: ...


class MakeTransactor(Protocol):
    """A Transactor of the node that listens there."""

    def __call__(self, host: str, port: int, *, timeout_ms: int) -> Transactor: ...


def invocation_of(mops: Iterable[Mop]) -> Invocation:
    return Invocation(f=TXN, extra={"value": list(mops)})


def mops_of(invocation: Invocation) -> tuple[Mop, ...]:
    assert invocation.extra is not None
    return tuple(invocation.extra["value"])


class TransactionMix(msgspec.Struct, frozen=True):
    """Transactions for ever, as the seed draws them. ``keys`` are in use, ``written`` says how
    often each was written; ``uniform``: all of them are as likely."""

    write: Write
    keys: tuple[int, ...]
    key_limit: int  # keys from here on were never used
    shortest: int
    longest: int
    writes_a_key: int
    uniform: bool
    stream: int
    count: int = 0
    written: Mapping[int, int] = {}

    def next(self, context: Context) -> tuple[Answer, Generator]:
        draws = draw_u64(self.stream, self.count)  # the key of this transaction's own stream
        length = self.shortest + draw_below(draws, 0, self.longest - self.shortest + 1)
        keys, written, limit = list(self.keys), dict(self.written), self.key_limit
        mops: list[Mop] = []
        position = 0
        while len(mops) < length:
            place = self._place(draws, position + 1)
            is_write = draw_below(draws, position + 2, 2)
            position += 2
            key = keys[place]
            if not is_write:
                mops.append((READ, key, None))
            elif written.get(key, 0) < self.writes_a_key:
                written[key] = written.get(key, 0) + 1
                mops.append((self.write, key, written[key]))
            else:
                keys[place], limit = limit, limit + 1
                del written[key]
        successor = msgspec.structs.replace(
            self, keys=tuple(keys), key_limit=limit, written=written, count=self.count + 1
        )
        return Scheduled(context.now_ns, invocation_of(mops)), successor

    def _place(self, draws: int, position: int) -> int:
        """Without a logarithm, so that every machine draws the same."""
        if self.uniform:
            return draw_below(draws, position, len(self.keys))
        return (1 + draw_below(draws, position, (1 << len(self.keys)) - 1)).bit_length() - 1

    def update(self, event: Completed) -> Generator:
        return self


def transaction_mix(
    write: Write,
    *,
    keys: int,
    shortest: int,
    longest: int,
    writes_a_key: int,
    uniform: bool,
    seed: int,
) -> TransactionMix:
    return TransactionMix(
        write=write,
        keys=tuple(range(keys)),
        key_limit=keys,
        shortest=shortest,
        longest=longest,
        writes_a_key=writes_a_key,
        uniform=uniform,
        stream=stream_key(seed, TXN, write),
    )


class ReadAll(msgspec.Struct, frozen=True):
    """Every key is read at every node, some at a time; what failed is asked again."""

    batches: tuple[tuple[int, ...], ...]
    nodes: tuple[str, ...]
    asked: Mapping[str, int] = {}  # batches so far, by node
    again: Mapping[str, tuple[int, ...]] = {}  # numbers of batches, by node
    free_ns: Mapping[str, int] = {}  # a node that refused is left alone until then

    def next(self, context: Context) -> tuple[Answer, Generator]:
        node = context.node
        if node not in self.nodes:
            return None, self
        free_ns = self.free_ns.get(node, 0)
        if context.now_ns < free_ns:
            return Pending(free_ns), self
        again, asked = self.again.get(node, ()), self.asked.get(node, 0)
        if again:
            number = again[0]
            successor = msgspec.structs.replace(self, again={**self.again, node: again[1:]})
        elif asked < len(self.batches):
            number = asked
            successor = msgspec.structs.replace(self, asked={**self.asked, node: asked + 1})
        else:
            return (Pending(), self) if context.in_flight else (None, self)
        reads = invocation_of((READ, key, None) for key in self.batches[number])
        return Scheduled(context.now_ns, reads), successor

    def update(self, event: Completed) -> Generator:
        if event.invocation.f != TXN or event.kind == "ok":
            return self
        number = self.batches.index(tuple(key for _, key, _ in mops_of(event.invocation)))
        again = (*self.again.get(event.node, ()), number)
        return msgspec.structs.replace(
            self,
            again={**self.again, event.node: again},
            free_ns={**self.free_ns, event.node: event.now_ns + RETRY_PAUSE_NS},
        )


def read_all(nodes: Sequence[str], keys: int, batch: int) -> ReadAll:
    """Keys 0 to ``keys`` - 1, so many at a time."""
    batches = (range(first, min(first + batch, keys)) for first in range(0, keys, batch))
    return ReadAll(batches=tuple(map(tuple, batches)), nodes=tuple(nodes))
