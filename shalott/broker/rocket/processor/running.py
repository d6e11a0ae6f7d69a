"""What administrators ask of a running broker besides its tables: 329, 354, 400, 401, 908, 2001 to
2003, 3001 (upstream: AdminBrokerProcessor, QueryAssignmentProcessor).
"""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import decode_json
from shalott.broker.rocket.processor.puts import find_topic
from shalott.broker.rocket.processor.topics import RETRY_PREFIX
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

PULL, POP = "PULL", "POP"
ANY_QUEUE = -1
AVERAGE, BY_CIRCLE = "AVG", "AVG_BY_CIRCLE"
STRATEGIES = (AVERAGE, BY_CIRCLE)


class RequestMode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of SET_MESSAGE_REQUEST_MODE (401)."""

    topic: str
    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: int = 0


class Assignment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of QUERY_ASSIGNMENT (400)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = AVERAGE
    message_model: str = "CLUSTERING"


async def query_assignment(broker: Broker, request: Command, caller: Caller) -> Command:
    """The broker's rebalance: which of its queues of a topic are this client's to pull from. A
    client asks one broker for all: this one knows of its own group's queues only."""
    wanted = decode_json(request.body, Assignment)
    config = find_topic(broker, wanted.topic)
    queues = list(range(0 if config is None else config.read_queue_nums))
    if wanted.message_model == "CLUSTERING":
        clients = sorted(broker.clients.client_ids(wanted.consumer_group))
        if not clients or wanted.strategy_name not in STRATEGIES:
            queues = []
    if not queues:
        return response(ResponseCode.SUCCESS, body=b"{}")  # the client keeps what it has
    mode = broker.tables.request_modes.get(f"{wanted.topic}@{wanted.consumer_group}", PULL)
    if mode == POP:
        queues = [ANY_QUEUE]  # of whichever the broker finds something in
    elif wanted.message_model == "CLUSTERING":
        queues = allocated(queues, clients, wanted.client_id, wanted.strategy_name)
    own = broker.config.broker_name
    told = [
        {
            "messageQueue": {"brokerName": own, "queueId": queue_id, "topic": wanted.topic},
            "mode": mode,
        }
        for queue_id in queues
    ]
    body = msgspec.json.encode({"messageQueueAssignments": told})
    return response(ResponseCode.SUCCESS, body=body)


def allocated(queues: list[int], clients: list[str], client: str, strategy: str) -> list[int]:
    """One of ``clients`` has which of the queues (AllocateMessageQueueAveragely, …ByCircle)."""
    if client not in clients:
        return []
    place, count = clients.index(client), len(clients)
    if strategy == BY_CIRCLE:
        return queues[place::count]
    each, more = divmod(len(queues), count)
    start = place * each + min(place, more)
    return queues[start : start + each + (place < more)]


async def set_request_mode(broker: Broker, request: Command, caller: Caller) -> Command:
    """How a group has the messages of a topic: its clients are told with their queues."""
    wanted = decode_json(request.body, RequestMode)
    if wanted.topic.startswith(RETRY_PREFIX):
        remark = "retry topic is not allowed to set mode"
        return response(ResponseCode.NO_PERMISSION, remark)
    if wanted.mode not in (PULL, POP):
        return response(ResponseCode.SYSTEM_ERROR, f"there is no mode {wanted.mode}")
    tables = broker.tables
    tables.request_modes[f"{wanted.topic}@{wanted.consumer_group}"] = wanted.mode
    tables.put_group(tables.group(wanted.consumer_group))
    return response(ResponseCode.SUCCESS)


async def delete_expired_log(broker: Broker, request: Command, caller: Caller) -> Command:
    """Files go as soon as their time is over: see Retention."""
    return response(ResponseCode.SUCCESS)


async def check_rocksdb(broker: Broker, request: Command, caller: Caller) -> Command:
    """There is none: as an original says without one."""
    return response(ResponseCode.SUCCESS, body=b'{"checkStatus":2}')


async def set_master_flush_offset(broker: Broker, request: Command, caller: Caller) -> Command:
    """A slave's note for upstream's own checks, which nothing here goes by."""
    return response(ResponseCode.SUCCESS)


async def limit_cold_reads(broker: Broker, request: Command, caller: Caller) -> Command:
    """Kept for who asks, and heeded as little as by an original without
    coldDataFlowControlEnable."""
    for line in request.body.decode(errors="replace").splitlines():
        group, equals, limit = line.partition("=")
        if equals and limit.strip().isdecimal():
            broker.cold_limits[group.strip()] = int(limit)
    return response(ResponseCode.SUCCESS)


async def forget_cold_limit(broker: Broker, request: Command, caller: Caller) -> Command:
    broker.cold_limits.pop(request.body.decode(errors="replace"), None)
    return response(ResponseCode.SUCCESS)


async def cold_data_info(broker: Broker, request: Command, caller: Caller) -> Command:
    told = {
        "runtimeTable": {},
        "configTable": broker.cold_limits,
        "cgColdReadThreshold": 3 << 20,
        "globalColdReadThreshold": 100 << 20,
        "globalAcc": 0,
    }
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(told))


async def no_users(broker: Broker, request: Command, caller: Caller) -> Command:
    """As an original without an authentication provider."""
    return response(ResponseCode.SYSTEM_ERROR, "no authentication is configured")
