"""Digests of what this broker holds, log, consume queues and tables, for who compares replicas.

A log is digested by blocks, whose borders are multiples of their size, so that two brokers that are
asked for the same stretch answer alike if they hold the same, and who asks again with smaller
blocks finds the first byte that differs. Nothing is kept: an answer covers a bounded stretch,
which is read piece by piece when it is asked for.
"""

from __future__ import annotations

import hashlib

import msgspec

from shalott.broker.rocket.commitlog.api import GetStatus, Log, Store
from shalott.broker.rocket.commitlog.codec import HEAD
from shalott.broker.rocket.processor.tables import Tables

BLOCK_BYTES = 1 << 16  # unless another size is asked for
BLOCK_BYTES_MAX = 1 << 20
BLOCKS_MAX = 256  # of one answer
DIGEST_BYTES = 8
READ_MESSAGES, READ_BYTES = 1000, 1 << 20


async def digest_blocks(log: Log, start: int, end: int, block_bytes: int) -> tuple[list[str], int]:
    """A digest for each block of [start, end), the first and the last perhaps of a part of theirs,
    and where the next answer goes on. Raises StorageError for what can't be read."""
    digests: list[str] = []
    while start < end and len(digests) < BLOCKS_MAX:
        border = min(end, start - start % block_bytes + block_bytes)
        digests.append(await _digest(log, start, border))
        start = border
    return digests, start


async def _digest(log: Log, start: int, end: int) -> str:
    contents = hashlib.blake2b(digest_size=DIGEST_BYTES)
    while start < end:
        piece = await log.read(start, end - start)
        if not piece:
            contents.update(b"nothing")  # it should be there
            break
        contents.update(piece)
        start += len(piece)
    return contents.hexdigest()


async def digest_queues(store: Store, start: int) -> tuple[int, str]:
    """How many messages the queues have that lie at or after ``start`` in the log, and a digest of
    them in order. Brokers remove old files each at its own time."""
    contents, count = hashlib.blake2b(digest_size=DIGEST_BYTES), 0
    for topic, queue_id in sorted(store.reader.queues()):
        offset, end = store.reader.queue_range(topic, queue_id)
        named = False
        while offset < end:
            got = await store.reader.get(
                topic, queue_id, offset, max_messages=READ_MESSAGES, max_bytes=READ_BYTES
            )
            if got.status is not GetStatus.FOUND or not got.messages:
                contents.update(f"{topic}/{queue_id} {offset} {got.status.value}".encode())
                break
            for message in got.messages:
                _, _, _, _, _, queue_offset, physical_offset, _, _ = HEAD.unpack_from(message, 0)
                if physical_offset < start:
                    continue
                if not named:
                    contents.update(f"{topic}/{queue_id} {queue_offset}-{end}".encode())
                    named = True
                contents.update(message)
                count += 1
            offset = got.next_offset
    return count, contents.hexdigest()


def digest_tables(tables: Tables) -> tuple[int, str]:
    """How many topics and subscription groups there are, and a digest of them in any order. Not of
    their versions: who becomes a master counts on."""
    contents = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for table in (tables.topics, tables.groups):
        for name in sorted(table):
            contents.update(msgspec.json.encode(table[name], order="deterministic"))
    return len(tables.topics) + len(tables.groups), contents.hexdigest()
