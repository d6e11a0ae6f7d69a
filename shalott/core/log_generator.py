"""Generators of the log workload: the mix of sends and polls, the wait for transactions, and the
final reading of everything.

A send carries a run-unique id, made as those of the queue workload are. A poll without a value goes
on from where its process stands in the queue; one with a value reads from that offset, and one
with a negative value goes so many messages back. An operator may add a queue to the topic: it is
sent to once that was acknowledged, and polled once a message was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from shalott.core.generator import Answer, Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation
from shalott.core.queue_generator import COUNTER_BITS, EMPTY, RETRY_PAUSE_NS
from shalott.core.rng import draw_below, draw_float, draw_u64, stream_key

BACK_MAX = 64  # so many messages a jump goes back at most
NO_OFFSET = "there is no offset"  # so begins the error of a poll that the broker sent elsewhere
NO_QUEUE = "there is no queue"  # so begins that of a poll whose broker has no such queue
JUMP_FRACTION = 0.1  # of the polls
POP = "pop"
GROW, GROW_FRACTION = "grow", 0.005  # of all, until one is acknowledged
POP_PAUSE_NS, POP_QUIET_NS = 1_000_000_000, 12_000_000_000  # after one that found nothing
SETTLE = "settle"
SETTLE_PAUSE_NS = 1_000_000_000


class LogMix(msgspec.Struct, frozen=True):
    """Sends and polls for ever, as the seed draws them."""

    keys: tuple[str, ...]
    send_fraction: float
    jump_fraction: float
    mix_key: int
    queue_key: int
    jump_key: int
    value_base: int
    count: int = 0
    sent: int = 0
    pop_fraction: float = 0.0  # of the polls
    pop_key: int = 0
    added: str = ""  # the queue that an operator adds
    is_grown: bool = False
    is_used: bool = False  # a message in it was acknowledged
    grow_key: int = 0

    def next(self, context: Context) -> tuple[Answer, Generator]:
        count = self.count
        is_send = draw_float(self.mix_key, count) < self.send_fraction
        keys = self._open(is_send)
        key = keys[draw_below(self.queue_key, count, len(keys))]
        if self._grows():
            is_send, invocation = False, Invocation(f=GROW, key=self.added)
        elif is_send:
            invocation = Invocation(f="send", key=key, value=self.value_base + self.sent)
        elif self.pop_fraction and draw_float(self.pop_key, count) < self.pop_fraction:
            invocation = Invocation(f=POP, key=key)
        else:
            invocation = Invocation(f="poll", key=key, value=self._jump())
        successor = msgspec.structs.replace(self, count=count + 1, sent=self.sent + is_send)
        return Scheduled(context.now_ns, invocation), successor

    def _grows(self) -> bool:
        wanted = bool(self.added) and not self.is_grown
        return wanted and draw_float(self.grow_key, self.count) < GROW_FRACTION

    def _open(self, is_send: bool) -> tuple[str, ...]:
        is_open = self.is_grown if is_send else self.is_used
        return (*self.keys, self.added) if is_open else self.keys

    def _jump(self) -> int | None:
        drawn = draw_float(self.jump_key, self.count)
        if drawn >= self.jump_fraction:
            return None
        return -1 - int(drawn / self.jump_fraction * BACK_MAX)

    def update(self, event: Completed) -> Generator:
        if not self.added or event.kind != "ok" or event.invocation.key != self.added:
            return self
        is_used = self.is_used or event.invocation.f == "send"
        return msgspec.structs.replace(self, is_grown=True, is_used=is_used)


def log_mix(
    keys: Sequence[str],
    send_fraction: float,
    seed: int,
    pop_fraction: float = 0.0,
    added: str = "",
) -> LogMix:
    return LogMix(
        keys=tuple(keys),
        send_fraction=send_fraction,
        jump_fraction=JUMP_FRACTION,
        mix_key=stream_key(seed, "log", "mix"),
        queue_key=stream_key(seed, "log", "key"),
        jump_key=stream_key(seed, "log", "jump"),
        pop_fraction=pop_fraction,
        pop_key=stream_key(seed, "log", "pop"),
        added=added,
        grow_key=stream_key(seed, "log", "grow"),
        value_base=(draw_u64(stream_key(seed, "log", "run"), 0) >> 44) << COUNTER_BITS,
    )


class Settle(msgspec.Struct, frozen=True):
    """Ask until the brokers have decided every transaction: what is committed can be read then."""

    key: str
    begin_ns: int = 0
    is_asked: bool = False
    is_over: bool = False

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.is_over:
            return None, self
        if self.is_asked:
            return Pending(), self
        at_ns = max(context.now_ns, self.begin_ns)
        asked = msgspec.structs.replace(self, is_asked=True)
        return Scheduled(at_ns, Invocation(f=SETTLE, key=self.key)), asked

    def update(self, event: Completed) -> Generator:
        if event.invocation.f != SETTLE:
            return self
        begin_ns = event.now_ns + SETTLE_PAUSE_NS
        return Settle(self.key, begin_ns, is_over=event.kind == "ok")


class PopAll(msgspec.Struct, frozen=True):
    """Pop, and acknowledge all that comes, until nothing came for longer than a message is out."""

    key: str
    begin_ns: int = 0
    quiet_ns: int = 0  # since when nothing comes; 0: not known
    is_asked: bool = False
    is_over: bool = False

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if self.is_over:
            return None, self
        if self.is_asked:
            return Pending(), self
        at_ns = max(context.now_ns, self.begin_ns)
        asked = msgspec.structs.replace(self, is_asked=True)
        return Scheduled(at_ns, Invocation(f=POP, key=self.key, extra={"calm": True})), asked

    def update(self, event: Completed) -> Generator:
        if event.invocation.f != POP or not (event.invocation.extra or {}).get("calm"):
            return self
        is_empty = event.kind == "ok" and event.error == EMPTY
        quiet_ns = (self.quiet_ns or event.now_ns) if is_empty else 0
        pause_ns = 0 if event.kind == "ok" and not is_empty else POP_PAUSE_NS
        is_over = is_empty and event.now_ns - quiet_ns >= POP_QUIET_NS
        return PopAll(self.key, event.now_ns + pause_ns, quiet_ns, is_over=is_over)


class Later(msgspec.Struct, frozen=True):
    """What is made when it is first asked: then it is known what has to be done."""

    make: Callable[[], Generator]

    def next(self, context: Context) -> tuple[Answer, Generator]:
        return self.make().next(context)

    def update(self, event: Completed) -> Generator:
        return self


class ReadAll(msgspec.Struct, frozen=True):
    """Read every queue at every node from offset 0 until a poll finds nothing more there.

    A queue is read at a node by one process, which knows where it stands; if that fails, another
    one begins anew. A process that the broker sends elsewhere goes on there.
    """

    open: tuple[tuple[str, str], ...]  # (node, key) that were not read to the end
    readers: Mapping[tuple[str, str], int]  # process by (node, key)
    retry_ns: Mapping[tuple[str, str], int]  # not before

    def next(self, context: Context) -> tuple[Answer, Generator]:
        if not self.open:
            return None, self
        here = [place for place in self.open if place[0] == context.node]
        own = [place for place in here if self.readers.get(place) == context.process]
        if own:
            return Scheduled(context.now_ns, Invocation(f="poll", key=own[0][1])), self
        free = [place for place in here if place not in self.readers]
        if not free:
            return Pending(), self
        place = min(free, key=lambda place: self.retry_ns.get(place, 0))
        at_ns = max(context.now_ns, self.retry_ns.get(place, 0))
        readers = {**self.readers, place: context.process}
        invocation = Invocation(f="poll", key=place[1], value=0)
        return Scheduled(at_ns, invocation), msgspec.structs.replace(self, readers=readers)

    def update(self, event: Completed) -> Generator:
        place = (event.node, event.invocation.key)
        if place not in self.open or self.readers.get(place) != event.process:
            return self
        if event.kind == "fail" and event.error == EMPTY:
            left = tuple(one for one in self.open if one != place)
            return msgspec.structs.replace(self, open=left)
        if event.kind == "ok" or (event.error or "").startswith(NO_OFFSET):
            return self
        readers = {at: process for at, process in self.readers.items() if at != place}
        retry_ns = {**self.retry_ns, place: event.now_ns + RETRY_PAUSE_NS}
        return ReadAll(self.open, readers, retry_ns)


def read_all(nodes: Sequence[str], keys: Sequence[str]) -> ReadAll:
    return ReadAll(tuple((node, key) for node in nodes for key in keys), {}, {})
