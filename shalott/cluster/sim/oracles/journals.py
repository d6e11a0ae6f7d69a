"""The oracle of queues' journals: a restart would find what the queue has, and no more.

A journal is read here as its format says, record by record and with no cleverness
(broker/rabbit/storage/queue_index.py), and compared with what its queue says that it holds: when it
was recovered, now and then when a message is confirmed, and once all is at rest. Nothing is held
against a queue whose file a fault has damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from shalott.broker.base.batches import scan
from shalott.broker.base.errors import StorageError
from shalott.cluster.sim.oracles.queues import JOURNAL
from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import JOURNALS_TRUE

PUBLISHED, REMOVED, CLOSED, OPENED, PURGED = 1, 2, 3, 4, 5  # tags of records
EVERY = 16  # of the confirms of a node
_decode = msgspec.msgpack.Decoder(list[object]).decode
Flags = Callable[[], list[tuple[int, bool]] | None]


@dataclass(slots=True)
class Left:
    """What a restart finds. ``messages``: whether each counts as redelivered. ``is_closed``: it
    ends as one that was closed in order, and was not opened since."""

    messages: dict[int, bool] = field(default_factory=dict)
    last_serial: int = 0  # the highest that any record names
    is_closed: bool = False


def left_by(data: bytes) -> Left | None:
    """None: it can't be read."""
    try:
        records = [_decode(record) for record in scan(data).records]
    except (StorageError, msgspec.DecodeError):
        return None
    left, delivered, goes_by_end = Left(), dict[object, None](), False
    messages: dict[object, tuple[int, bool]] = {}  # by serial
    removed: dict[object, None] = {}
    for record in records:
        tag, first = record[0], record[1] if len(record) > 1 else None
        # Who has opened it, and done no more, goes by how it was closed.
        goes_by_end = tag == CLOSED or (tag == OPENED and left.is_closed)
        left.is_closed = tag == CLOSED
        if tag == PUBLISHED:
            content = record[3]
            assert isinstance(content, list)
            messages[first] = content[0], bool(record[2])
        elif tag == PURGED:
            kept = dict.fromkeys(_listed(record[2]))
            messages = {serial: one for serial, one in messages.items() if serial in kept}
        elif tag == REMOVED:
            removed.update(dict.fromkeys(_listed(first)))
        elif tag == CLOSED:
            delivered = dict.fromkeys(_listed(first))
        named = _listed(first) if tag == REMOVED else [first] if tag in (PUBLISHED, PURGED) else ()
        left.last_serial = max([left.last_serial, *(n for n in named if isinstance(n, int))])
    for serial, (message_id, is_flagged) in messages.items():
        if serial not in removed:
            left.messages[message_id] = is_flagged or not goes_by_end or serial in delivered
    return left


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


class Journals:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._confirms: dict[str, int] = {}  # by node

    def recovered(
        self, node: str, life: int, queue: str, directory: str, last_serial: int, flags: Flags
    ) -> None:
        """A queue comes back from its disk, and serves no client yet."""
        path = f"{directory}/{JOURNAL}"
        left, safe = self._left(node, path), self._left(node, path, is_durable=True)
        if left is None or safe is None:
            return
        self._watch.asked(JOURNALS_TRUE, node)
        held = flags()
        if held is not None:
            self._compare(node, queue, left, (one for one, _ in held))
            if new := [one for one, flag in held if left.messages.get(one) and not flag]:
                what = f"takes {len(new)} messages for new that may have been delivered"
                self._tell(node, queue, what)
        self._continue(node, queue, left, last_serial)
        if safe.is_closed:
            self._tell(node, queue, "is open, and its journal says that it was closed in order")

    def durable(self, node: str, life: int, queue: str, directory: str, message_id: int) -> None:
        """A message is about to be confirmed."""
        count = self._confirms[node] = self._confirms.get(node, 0) + 1
        left = None if count % EVERY else self._left(node, f"{directory}/{JOURNAL}")
        if left is None:
            return
        self._watch.asked(JOURNALS_TRUE, node)
        if message_id not in left.messages:
            self._tell(node, queue, f"confirms message {message_id}, which no restart would find")

    def rests(
        self,
        node: str,
        life: int,
        queue: str,
        directory: str,
        held: Iterable[int],
        last_serial: int,
    ) -> None:
        """All is at rest. ``held``: the messages that outlast a restart. ``last_serial``: with
        which its next life would go on."""
        left = self._left(node, f"{directory}/{JOURNAL}")
        if left is not None:
            self._watch.asked(JOURNALS_TRUE, node)
            self._compare(node, queue, left, held)
            self._continue(node, queue, left, last_serial)

    def _compare(self, node: str, queue: str, left: Left, held: Iterable[int]) -> None:
        own = dict.fromkeys(held)
        more = sum(one not in own for one in left.messages)
        less = sum(one not in left.messages for one in own)
        if more or less:
            what = f"a restart would find {more} messages too many, and {less} too few"
            self._tell(node, queue, what)

    def _continue(self, node: str, queue: str, left: Left, last_serial: int) -> None:
        if last_serial < left.last_serial:
            what = f"goes on with the number {last_serial}, and {left.last_serial} was given"
            self._tell(node, queue, what)

    def _tell(self, node: str, queue: str, what: str) -> None:
        self._watch.broken(JOURNALS_TRUE, node, f"{queue} at {node}: {what}")

    def _left(self, node: str, path: str, *, is_durable: bool = False) -> Left | None:
        disk = self._watch.disk(node)
        size = disk.durable_size(path) if is_durable else 1 << 62
        if disk.emptied or disk.rotted or size < 0:
            return None
        return left_by(disk.seen(path, 0, size))
