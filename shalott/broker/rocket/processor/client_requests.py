"""Clients come and go: HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, and the one-way
NOTIFY_CONSUMER_IDS_CHANGED to the members of a group that changed. Queue locks too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import Heartbeat, Locked, LockRequest, decode_json
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.puts import ensure_topic, not_master
from shalott.broker.rocket.processor.topics import retry_topic
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

EXPIRE_INTERVAL_S = 10.0  # ClientHousekeepingService


async def heart_beat(broker: Broker, request: Command, caller: Caller) -> Command:
    heartbeat = decode_json(request.body, Heartbeat)
    if caller.closed.is_set():  # it came with the connection's end, which was seen first
        return response(ResponseCode.SUCCESS)
    for consumer in heartbeat.consumers:
        group = broker.tables.group(consumer.group)
        if broker.is_master and group.retry_queue_nums > 0:
            ensure_topic(broker, retry_topic(consumer.group), queues=group.retry_queue_nums)
    changed = broker.clients.beat(
        caller, heartbeat, broker.now_ms(), language=request.language, version=request.version
    )
    notify(broker, changed)
    return response(ResponseCode.SUCCESS)


async def unregister_client(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    changed = broker.clients.unregister(
        caller,
        producer_group=fields.text("producerGroup", ""),
        consumer_group=fields.text("consumerGroup", ""),
    )
    notify(broker, changed)
    return response(ResponseCode.SUCCESS)


async def consumer_list(broker: Broker, request: Command, caller: Caller) -> Command:
    group = Fields(request.ext).text("consumerGroup")
    ids = broker.clients.client_ids(group)
    if not ids:
        return response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode({"consumerIdList": ids}))


def notify(broker: Broker, changed: Mapping[str, Sequence[Caller]]) -> None:
    """Tell the members of changed groups, and wait for none of them."""
    for group, callers in changed.items():
        for caller in callers:
            ext = {"consumerGroup": group}
            command = Command(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext=ext)
            broker.tell(caller, command)


async def expire_clients(broker: Broker) -> None:
    """Drop silent clients, until cancelled."""
    while True:
        await asyncio.sleep(EXPIRE_INTERVAL_S)
        notify(broker, broker.clients.expire(broker.now_ms()))


async def lock_batch(broker: Broker, request: Command, caller: Caller) -> Command:
    """The master's alone to give. Upstream's slaves grant them to clients whose route is old."""
    if not broker.is_master:
        return not_master(broker)
    wanted = decode_json(request.body, LockRequest)
    keys = [(queue.topic, queue.queue_id) for queue in wanted.queues]
    held = broker.locks.lock(wanted.group, wanted.client_id, keys, broker.now_ms())
    locked = Locked(queues=tuple(wanted.queues[index] for index in held))
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(locked))


async def unlock_batch(broker: Broker, request: Command, caller: Caller) -> Command:
    wanted = decode_json(request.body, LockRequest)
    keys = [(queue.topic, queue.queue_id) for queue in wanted.queues]
    broker.locks.unlock(wanted.group, wanted.client_id, keys)
    return response(ResponseCode.SUCCESS)
