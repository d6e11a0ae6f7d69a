"""What a backing queue's directory holds when a node starts: opening, replaying and wiping it."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.errors import StorageError
from shalott.broker.base.journal import Journal, sync_parents
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.queue_index import (
    Closed,
    Opened,
    Published,
    Purged,
    QueueRecord,
    Removed,
    decode_record,
    encode_record,
)

JOURNAL = "journal"


class RecoveredMessage(NamedTuple):
    serial: int
    content: Content
    redelivered: bool
    record_bytes: int
    expires_wall_ns: int | None = None
    is_flag_recorded: bool = False  # redelivered, by its own record


class Recovered(NamedTuple):
    messages: list[RecoveredMessage]  # in order of serials
    last_serial: int  # the highest ever given, also to messages that are gone


async def open_journal(disk: Disk, directory: str) -> Journal:
    """Raises StorageError if it is corrupted."""
    return await Journal.open(disk, f"{directory}/{JOURNAL}")


async def replay(journal: Journal) -> Recovered:
    """The messages that survived. Closes the journal if it can't be used."""
    try:
        last: QueueRecord | None = None
        messages: dict[int, RecoveredMessage] = {}
        last_serial = 0
        for data in journal.replay():
            last = decode_record(data)
            if isinstance(last, Published):
                messages[last.serial] = RecoveredMessage(
                    last.serial, last.content, last.redelivered, len(data), last.expires_wall_ns
                )
                last_serial = max(last_serial, last.serial)
            elif isinstance(last, Removed):
                for serial in last.serials:
                    messages.pop(serial, None)
                last_serial = max([last_serial, *last.serials])
            elif isinstance(last, Purged):
                kept = [messages[serial] for serial in last.kept if serial in messages]
                messages = {message.serial: message for message in kept}
                last_serial = max(last_serial, last.last_serial)
        if isinstance(last, Closed):
            # Durable before the first delivery of this life.
            journal.append(encode_record(Opened()))
            await journal.flush()
        return Recovered(_flagged(messages, last), last_serial)
    except msgspec.DecodeError as error:
        await journal.abandon()
        raise StorageError(f"a record of a queue's journal can't be understood: {error}") from error
    except StorageError:
        await journal.abandon()
        raise


def _flagged(
    messages: dict[int, RecoveredMessage], last: QueueRecord | None
) -> list[RecoveredMessage]:
    """In order. Everything may have been delivered, unless a clean end says what was."""
    ordered = sorted(messages.values(), key=lambda message: message.serial)
    found = [message._replace(is_flag_recorded=message.redelivered) for message in ordered]
    if not isinstance(last, Closed):
        return [message._replace(redelivered=True) for message in found]
    delivered = dict.fromkeys(last.delivered)
    return [
        message._replace(redelivered=message.redelivered or message.serial in delivered)
        for message in found
    ]


async def wipe(disk: Disk, directory: str) -> None:
    """Remove a queue's directory. Raises StorageError.

    The journal goes last: a crash before that leaves the queue as it was, never half of it.
    """
    try:
        names = await disk.listdir(directory)
        for name in sorted(names, key=lambda name: name == JOURNAL):
            await disk.remove(f"{directory}/{name}")
        with suppress(FileNotFoundError):
            await disk.remove(directory)
        if names:
            await sync_parents(disk, directory)
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror or error}") from error
