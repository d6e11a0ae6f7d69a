"""What replication, request processing and checks need of a message store.

Offsets are bytes from the beginning of the log, as everywhere in RocketMQ; a queue offset counts
messages of one (topic, queue). Ends are exclusive. A message goes through four stages, each an end
of the log: appended (in memory), written (in the operating system's hands: a kill -9 does not take
it), flushed (on the disk: a power loss does not take it), and confirmed (replicated as far as the
system wants it before anybody may read it). Dispatch to the consume queues stops at the confirmed
end, so no consumer reads further.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shalott.broker.base.errors import StorageError
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a producer sends; the store adds offsets and its own time.

    Times are ms since the epoch; hosts are (IPv4 address as text, port). ``properties`` is
    the wire's text: key 0x01 value 0x02 ...
    """

    topic: str
    queue_id: int
    body: bytes
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    store_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a message lies. ``end`` is the offset after it."""

    offset: int
    end: int
    queue_offset: int
    message_id: str  # offsetMsgId: store host and offset in hexadecimal
    store_ms: int


class PartlyAppended(StorageError):
    """So many messages of a batch are in the log, and no more could be: the outcome is unknown."""

    def __init__(self, reason: str, count: int) -> None:
        super().__init__(reason)
        self.count = count


class GetStatus(enum.Enum):
    """GetMessageStatus, as far as a puller can tell the cases apart."""

    FOUND = "found"
    NO_NEW = "no new message"  # the offset is the queue's end: 19, or wait
    TOO_FAR = "offset beyond the end"  # 21
    TOO_SMALL = "offset before the beginning"  # 21
    NO_QUEUE = "no such queue"  # 21, next offset 0
    RETRY = "retry"  # a hole or a file in removal: 20


@dataclass(frozen=True, slots=True)
class Got:
    """What ``get`` found: whole stored messages, as they lie in the log."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PutStage:
    """A batch that was appended: every message of it, in order."""

    messages: tuple[Appended, ...] = field(default=())

    @property
    def end(self) -> int:
        return self.messages[-1].end


@dataclass(frozen=True, slots=True)
class FoundByKey:
    """Whole stored messages, the newest first; ``last_ms`` and ``last_offset``: of the last message
    that the index of keys knows, 0 if it knows none."""

    messages: tuple[bytes, ...]
    last_ms: int
    last_offset: int


Unit = tuple[int, int, int]  # of a consume queue: (offset in the log, size, tags code)


class Log(Protocol):
    """The replicated bytes: a commit log of its own, or a DLedger's. ``directory``: its files are
    there, each of ``segment_bytes``, by the offset that they begin with."""

    directory: str

    @property
    def segment_bytes(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int:
        """The end of what was appended; the next message lies there."""
        ...

    @property
    def written_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    async def written(self, offset: int) -> None:
        """Return when everything before ``offset`` is in the operating system's hands."""
        ...

    async def flushed(self, offset: int) -> None:
        """Return when everything before ``offset`` is on the disk; asks for a flush if needed."""
        ...

    async def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` raw bytes from ``offset``: less at a file's end, none if they are not
        there."""
        ...


@dataclass(frozen=True, slots=True)
class Scanned:
    """Whole messages of a stretch of a log, in order. ``spans`` are (start, size) in ``data``; its
    first byte lies at ``base``. ``next`` is where the next stretch begins.
    """

    data: bytes
    base: int
    spans: list[tuple[int, int]]
    next: int


class MessageLog(Log, Protocol):
    """What a MessageStore is built on: a CommitLog, or a log whose entries hold messages.

    (A DLedger's entry has 48 bytes of header before each message.)

    Two kinds of offsets, which a CommitLog does not tell apart: where a *message* lies (in consume
    queues, in message ids; ``read`` finds its bytes there), and *positions* of the log itself
    (min, max, written and flushed offsets, what ``scan`` takes and gives, where dispatch and a
    truncation stand). A message's bytes, and what belongs to it, lie between two positions.
    """

    # Called when more is written or flushed. The store sets it.
    progress_listener: Callable[[], None]
    # Called once when nothing can be made durable any more. The store sets it.
    failure_listener: Callable[[StorageError], None]

    def place(self, sizes: list[int]) -> list[int]:
        """Where messages of these sizes would lie if they were appended now.

        Raises StorageError if nothing can be; MessageIllegal for one that fits in no file.
        """
        ...

    def append_placed(self, messages: list[bytes]) -> list[int]:
        """Append messages for which ``place`` was asked just now: one call follows the other in one
        step of the event loop. Returns the position after each.
        """
        ...

    async def scan(self, position: int, end: int, max_bytes: int) -> Scanned:
        """Messages from ``position`` that lie before ``end`` as a whole: about ``max_bytes`` of
        them, but at least one if there is one. ``next`` is ``position`` if there is none.
        """
        ...

    def request_flush(self) -> None:
        """Have all that was appended flushed soon."""
        ...

    async def truncate(self, offset: int) -> None:
        """Cut everything from this position on, durably."""
        ...

    async def close(self) -> None: ...


class Reader(Protocol):
    """What the queues of a store answer, from the log."""

    async def get(
        self, topic: str, queue_id: int, offset: int, *, max_messages: int, max_bytes: int
    ) -> Got: ...

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Queue offsets (first, end); (0, 0) for a queue that is not there."""
        ...

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The end that the log gives a queue at a master, whether or not that may be read yet."""
        ...

    def tell_next_offsets(self) -> None:
        """To ``Env.witness``: this master is about to append."""
        ...

    def queues(self) -> list[tuple[str, int]]:
        """Every (topic, queue id) that the consume queues know, sorted."""
        ...

    async def units(self, topic: str, queue_id: int, first: int, count: int) -> list[Unit]:
        """Units of a consume queue: where messages lie, their sizes, the codes of their tags."""
        ...

    async def message_at(self, offset: int) -> bytes | None:
        """The whole stored message that lies there; None if none does."""
        ...

    async def queue_offset_at_ms(self, topic: str, queue_id: int, store_ms: int) -> int:
        """Of the first message that was stored at this time or later; the queue's end if none."""
        ...

    async def arrived(self, topic: str, queue_id: int, offset: int) -> None:
        """Return when the queue's end is beyond ``offset``: what a long poll waits for."""
        ...

    async def find_by_key(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, max_messages: int
    ) -> FoundByKey:
        """Messages with this key, or unique key, that were stored in [begin_ms, end_ms], as far as
        the index of keys has got: it follows dispatch."""
        ...


class Store(Protocol):
    """One broker's messages: the log and the queues on it, topics and consumers' offsets."""

    @property
    def log(self) -> Log: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def deleted(self) -> DeletedTopics: ...

    @property
    def confirm_offset(self) -> int: ...

    def set_confirm_offset(self, offset: int | None) -> None:
        """Where dispatch ends; None: at the written end. Bounded by the log's end."""
        ...

    @property
    def dispatched_offset(self) -> int:
        """Up to where the consume queues are built (upstream: reputFromOffset)."""
        ...

    async def dispatched(self, offset: int) -> None:
        """Return when everything before ``offset`` is in the consume queues."""
        ...

    def append(self, messages: list[Message]) -> PutStage:
        """Append messages of one (topic, queue), all or none, at once in memory.

        Raises StorageError when the disk failed or is full; MessageIllegal.
        """
        ...

    def append_raw(self, offset: int, data: bytes) -> None:
        """A slave's: bytes of the master's log. ``offset`` must be the log's end."""
        ...

    async def truncate(self, offset: int) -> None:
        """Cut the log and the queues down to ``offset``, durably."""
        ...

    async def recover_queue_offsets(self) -> None:
        """Find out where each queue goes on: for a new master, before it appends."""
        ...
