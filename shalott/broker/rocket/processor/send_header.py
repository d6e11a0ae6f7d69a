"""SendHeader: what a send request says of its message, from any of the three forms.

SEND_MESSAGE has full names, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE the same fields under one letter
each, in the order of docs/protocols.md 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shalott.broker.rocket.processor.fields import Fields

# Letter -> name. "n" (brokerName) is for proxies only.
LETTERS: Mapping[str, str] = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",  # upstream calls it consumeRetryTimes here
    "m": "batch",
}


@dataclass(frozen=True, slots=True)
class SendHeader:
    """``queue_id`` -1: any. ``max_reconsume_times`` -1: not said."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int
    batch: bool


def read_send_header(ext: Mapping[str, str], *, is_v2: bool, is_batch: bool) -> SendHeader:
    """Raises BadRequest."""
    if is_v2:
        ext = {LETTERS[letter]: value for letter, value in ext.items() if letter in LETTERS}
    fields = Fields(ext)
    return SendHeader(
        producer_group=fields.text("producerGroup", ""),
        topic=fields.text("topic"),
        default_topic=fields.text("defaultTopic", ""),
        default_topic_queues=fields.number("defaultTopicQueueNums", 0),
        queue_id=fields.number("queueId"),
        sys_flag=fields.number("sysFlag", 0),
        born_ms=fields.number("bornTimestamp", 0),
        flag=fields.number("flag", 0),
        properties=fields.text("properties", ""),
        reconsume_times=fields.number("reconsumeTimes", 0),
        max_reconsume_times=fields.number("maxReconsumeTimes", -1),
        batch=is_batch or fields.flag("batch"),
    )
