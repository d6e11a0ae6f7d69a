"""Appending: messages of one queue get their place in the log and in the queue, and are encoded."""

from __future__ import annotations

from shalott.broker.rocket.commitlog.api import Appended, Message, MessageLog, PutStage
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.commitlog.consume_queues import QueueSet


def append(
    message_log: MessageLog,
    queues: QueueSet,
    encoder: Encoder,
    messages: list[Message],
    store_ms: int,
) -> PutStage:
    """See Store.append: all or none, at once."""
    first = messages[0]
    key = (first.topic, first.queue_id)
    queue_offset = queues.next_offsets.get(key, 0)
    prepared = [encoder.prepare(message) for message in messages]
    offsets = message_log.place([parts[0] for parts in prepared])
    encoded = [
        encoder.encode_prepared(message, parts, offset, queue_offset + number, store_ms)
        for number, (message, parts, offset) in enumerate(
            zip(messages, prepared, offsets, strict=True)
        )
    ]
    ends = message_log.append_placed(encoded)
    queues.next_offsets[key] = queue_offset + len(messages)
    message_id = encoder.message_id
    appended = [
        Appended(
            offset,
            ends[number],
            queue_offset + number,
            message_id(messages[number].store_host, offset),
            store_ms,
        )
        for number, offset in enumerate(offsets)
    ]
    return PutStage(tuple(appended))
