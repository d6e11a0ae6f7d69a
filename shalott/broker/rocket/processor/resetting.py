"""INVOKE_BROKER_TO_RESET_OFFSET (222): an operator sets a group's offsets in a topic to a time, and
the members are told (220, upstream: Broker2Client.resetOffset).

The broker itself writes nothing down: members go there and commit what they were told. So nothing
is reset of a group that has no members now, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.storing import find_topic, not_master
from shalott.broker.rocket.remoting.codes import Language, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.server import Caller

TO_THE_END = -1  # as a time


async def reset_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    """Forward only with ``isForce``; back always."""
    fields = Fields(request.ext)
    topic, group = fields.text("topic"), fields.text("group")
    if not broker.is_master:
        return not_master(broker)
    config = find_topic(broker, topic)
    if config is None:
        remark = f"[reset-offset] no topic in this broker, {topic}"
        return response(ResponseCode.SYSTEM_ERROR, remark)
    offsets = {}
    for queue_id in range(config.write_queue_nums):
        committed = broker.tables.offset(group, topic, queue_id)
        if committed is None:
            remark = f"the consumer group {group} has no offset for {topic} {queue_id}"
            return response(ResponseCode.SYSTEM_ERROR, remark)
        wanted = await _offset_at(broker, topic, queue_id, fields.number("timestamp"))
        forced = fields.flag("isForce")
        offsets[queue_id] = wanted if forced else min(wanted, committed)
    members = broker.clients.connections(group)
    if not members:
        remark = f"Consumer not online, so can not reset its offset. Group: {group} Topic: {topic}"
        return response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    is_cpp = request.language == Language.CPP
    body = _body(broker.config.broker_name, topic, offsets, is_cpp=is_cpp)
    ext = {"topic": topic, "group": group, "timestamp": fields.text("timestamp")}
    for member in members:
        command = Command(code=RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext=dict(ext), body=body)
        broker.tell(member, command)
    return response(ResponseCode.SUCCESS, body=body)


async def _offset_at(broker: Broker, topic: str, queue_id: int, at_ms: int) -> int:
    if at_ms == TO_THE_END:
        return broker.store.queue_range(topic, queue_id)[1]
    return max(0, await broker.store.queue_offset_at_ms(topic, queue_id, at_ms))


def _body(broker_name: str, topic: str, offsets: Mapping[int, int], *, is_cpp: bool) -> bytes:
    """Java's clients want an object whose keys are objects, which is no JSON; C++'s a list."""
    places = [
        {"brokerName": broker_name, "queueId": queue_id, "topic": topic} for queue_id in offsets
    ]
    if is_cpp:
        table = [
            place | {"offset": offset}
            for place, offset in zip(places, offsets.values(), strict=True)
        ]
        return msgspec.json.encode({"offsetTable": table})
    pairs = [
        msgspec.json.encode(place) + b":%d" % offset
        for place, offset in zip(places, offsets.values(), strict=True)
    ]
    return b'{"offsetTable":{' + b",".join(pairs) + b"}}"
