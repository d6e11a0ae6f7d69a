"""What all requests that store have in common: the topic, the put, and the refusal of who is no
master.
"""

from __future__ import annotations

from shalott.broker.base.errors import DiskFull, MessageIllegal
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.outcomes import remark_of
from shalott.broker.rocket.remoting.codes import ResponseCode
from shalott.broker.rocket.remoting.command import Command, response
from shalott.broker.rocket.remoting.route_data import TopicConfig


def not_master(broker: Broker) -> Command:
    role = broker.replica.role
    who = "a slave" if role == "slave" else "not a master now"
    remark = remark_of(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, f"this broker is {who}"))
    return response(ResponseCode.SERVICE_NOT_AVAILABLE, remark)


async def put(broker: Broker, messages: list[Message]) -> PutResult:
    """Store through the replica; what counts as acknowledged is told to the event log."""
    epoch, taken_ns = broker.replica.epoch, broker.env.clock.monotonic_ns()
    try:
        result = await broker.replica.put(messages)
    except MessageIllegal as error:
        return PutResult(PutStatus.MESSAGE_ILLEGAL, None, str(error))
    except DiskFull as error:
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, None, str(error))
    if result.status is PutStatus.PUT_OK:
        end = 0 if result.stage is None else result.stage.end
        broker.acked.acked(epoch, taken_ns, len(messages), end=end, holders=result.holders)
    return result


def find_topic(broker: Broker, name: str) -> TopicConfig | None:
    """The topic if it is known, from the log if need be."""
    known = broker.tables.topics.get(name)
    if known is None and broker.learn_topics():
        known = broker.tables.topics.get(name)
    return known


def ensure_topic(broker: Broker, name: str, *, queues: int) -> TopicConfig:
    """The topic, made if it is not there; name servers hear of it at once."""
    known = find_topic(broker, name)
    if known is None:
        known = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        broker.tables.put_topic(known)
        broker.topics_changed()
    return known
