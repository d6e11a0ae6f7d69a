"""Topics, by administrators: 17, 18, 21, 215, 305, 351 (upstream: AdminBrokerProcessor)."""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.processor.attributes import IllegalAttribute, changed, changes_of
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import decode_json
from shalott.broker.rocket.processor.fields import BadRequest, Fields
from shalott.broker.rocket.processor.puts import find_topic, not_master
from shalott.broker.rocket.processor.topics import (
    is_system_topic,
    is_valid_topic,
    system_topics,
)
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.route_data import PERM_READ, PERM_WRITE, TopicConfig
from shalott.broker.rocket.remoting.server import Caller


class TopicList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: tuple[TopicConfig, ...]


async def update_and_create_topic(broker: Broker, request: Command, caller: Caller) -> Command:
    fields = Fields(request.ext)
    try:
        changes = changes_of(fields.text("attributes", ""))
    except IllegalAttribute as error:
        return response(ResponseCode.SYSTEM_ERROR, str(error))
    return _make(
        broker,
        TopicConfig(
            topic_name=fields.text("topic"),
            read_queue_nums=fields.number("readQueueNums", broker.config.default_queues),
            write_queue_nums=fields.number("writeQueueNums", broker.config.default_queues),
            perm=fields.number("perm", PERM_READ | PERM_WRITE),
            topic_filter_type=fields.text("topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=fields.number("topicSysFlag", 0),
            order=fields.flag("order"),
            attributes=changes,
        ),
    )


async def update_and_create_topics(broker: Broker, request: Command, caller: Caller) -> Command:
    """Up to the first that is refused."""
    wanted = decode_json(request.body, TopicList).topic_config_list
    if not wanted:
        raise BadRequest("the list of topics is empty")
    for config in wanted:
        answer = _make(broker, config)
        if answer.code != ResponseCode.SUCCESS:
            return answer
    return response(ResponseCode.SUCCESS)


def _make(broker: Broker, wanted: TopicConfig) -> Command:
    """``wanted`` has changes for attributes."""
    topic = wanted.topic_name
    if not broker.is_master:
        return not_master(broker)
    if not is_valid_topic(topic):
        return response(ResponseCode.INVALID_PARAMETER, f"the topic {topic!r} is illegal")
    if is_system_topic(topic, broker.config):
        return _is_systems(topic)
    if min(wanted.read_queue_nums, wanted.write_queue_nums) < 1:
        return response(ResponseCode.SYSTEM_ERROR, "a topic has a queue at least")
    known = broker.tables.topics.get(topic)
    try:
        attributes = changed(None if known is None else known.attributes, wanted.attributes)
    except IllegalAttribute as error:
        return response(ResponseCode.SYSTEM_ERROR, str(error))
    config = msgspec.structs.replace(wanted, attributes=attributes)
    if known != config:
        broker.tables.put_topic(config)
        broker.topics_changed()
    return response(ResponseCode.SUCCESS)


def _is_systems(topic: str) -> Command:
    remark = f"The topic[{topic}] is conflict with system topic."
    return response(ResponseCode.INVALID_PARAMETER, remark)


async def delete_topic(broker: Broker, request: Command, caller: Caller) -> Command:
    """Its messages stay in the log and are no longer found."""
    topic = Fields(request.ext).text("topic")
    if not broker.is_master:
        return not_master(broker)
    if not topic:
        return response(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if is_system_topic(topic, broker.config):
        return _is_systems(topic)
    if find_topic(broker, topic) is not None:
        broker.tables.delete_topic(topic)
        await broker.store.deleted.add({topic: broker.store.log.max_offset})
        broker.topics_changed()
    return response(ResponseCode.SUCCESS)


async def all_topics(broker: Broker, request: Command, caller: Caller) -> Command:
    table = broker.tables.topic_table()
    deleted = broker.store.deleted.ends
    if deleted:
        table = msgspec.structs.replace(table, deleted_topics=dict(deleted))
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(table))


async def topic_config(broker: Broker, request: Command, caller: Caller) -> Command:
    topic = Fields(request.ext).text("topic")
    config = find_topic(broker, topic)
    if config is None:
        remark = f"No topic in this broker. topic: {topic}"
        return response(ResponseCode.TOPIC_NOT_EXIST, remark)
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(config))


async def system_topic_list(broker: Broker, request: Command, caller: Caller) -> Command:
    names = [topic.topic_name for topic in system_topics(broker.config)]
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode({"topicList": names}))


async def clean_unused_topics(broker: Broker, request: Command, caller: Caller) -> Command:
    """Every queue here is of a topic that is known: see Tables.learn."""
    broker.learn_topics()
    return response(ResponseCode.SUCCESS)


async def clean_queues(broker: Broker, request: Command, caller: Caller) -> Command:
    """Queues lose what their log lost as soon as it does."""
    return response(ResponseCode.SUCCESS)
