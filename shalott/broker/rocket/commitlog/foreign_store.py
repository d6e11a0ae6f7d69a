"""A store that an original left: what its checkpoint means, and which topics it has no more.

An original knows how far it was by the time at which messages were stored; it takes up the log at
the beginning of the last file that was begun three seconds before that (isMappedFileMatchedRecover,
StoreCheckpoint.getMinTimestamp). What it deleted it says nowhere: a topic is neither in
config/topics.json nor in consumequeue/, and its messages are in the log until their file goes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.files import read_file
from shalott.broker.rocket.commitlog.api import MessageLog
from shalott.broker.rocket.commitlog.codec import (
    MAGIC_V1,
    MAGIC_V2,
    START,
    Dispatcher,
    store_ms_at,
)
from shalott.broker.rocket.commitlog.commit_log import DIRECTORY, RECOVERY_BYTES
from shalott.broker.rocket.commitlog.deleted_topics import DeletedTopics
from shalott.broker.rocket.remoting.java_json import decode_java_json

log = logging.getLogger("shalott.broker.commitlog")

EARLIER_MS = 3000
HEAD_BYTES = 128
TOPICS = "config/topics.json"


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, object] = {}


async def last_file_before(disk: Disk, segment_bytes: int, store_ms: int) -> int:
    """Where the commit log's last file begins whose first message was stored early enough; 0 if
    none was. Raises OSError."""
    for name in sorted(await disk.listdir(DIRECTORY), reverse=True):
        if not name.isdigit() or int(name) % segment_bytes:
            continue
        file = await disk.open(f"{DIRECTORY}/{name}", create=False)
        try:
            head = await file.pread(HEAD_BYTES, 0)
        finally:
            await file.close()
        is_message = len(head) == HEAD_BYTES and START.unpack_from(head)[1] in (MAGIC_V1, MAGIC_V2)
        if is_message and store_ms_at(head, 0) <= store_ms - EARLIER_MS:
            return int(name)
    return 0


async def hide_unknown_topics(
    disk: Disk,
    message_log: MessageLog,
    with_queues: Iterable[str],
    deleted: DeletedTopics,
    position: int,
) -> None:
    """See that no topic comes back with the part of the log that is dispatched again, from
    ``position`` on. Raises OSError and StorageError."""
    data = await read_file(disk, TOPICS)
    try:
        table = _Topics() if data is None else decode_java_json(data, _Topics)
    except msgspec.DecodeError:
        table = _Topics()
    if not table.topic_config_table:
        return  # nothing says what there is, so nothing is taken for deleted
    known = dict.fromkeys([*table.topic_config_table, *with_queues])
    dispatch, unknown = Dispatcher().dispatch, dict[str, int]()
    while position < message_log.max_offset:
        scanned = await message_log.scan(position, message_log.max_offset, RECOVERY_BYTES)
        if scanned.next == position:
            break
        for start, _ in scanned.spans:
            topic = dispatch(scanned.data, start)[0]
            if topic not in known:
                unknown[topic] = message_log.max_offset
        position = scanned.next
    if unknown:
        log.warning("topics that an original deleted stay so: %s", ", ".join(unknown))
        await deleted.add(unknown)
