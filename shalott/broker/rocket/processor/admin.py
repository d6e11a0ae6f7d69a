"""Administration, and what slaves copy from their master: 25, 26, 28, 43, 45, 60, 201, 906, 907
(upstream: AdminBrokerProcessor).
"""

from __future__ import annotations

import msgspec

from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.puts import NOTHING_STORED
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller


def _json(value: object) -> Command:
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(value))


async def all_groups(broker: Broker, request: Command, caller: Caller) -> Command:
    return _json(broker.tables.group_table())


async def all_consumer_offsets(broker: Broker, request: Command, caller: Caller) -> Command:
    return _json(broker.tables.offset_table())


async def all_delay_offsets(broker: Broker, request: Command, caller: Caller) -> Command:
    return _json(broker.tables.delayed.delay_table())


async def timer_checkpoint(broker: Broker, request: Command, caller: Caller) -> Command:
    return response(ResponseCode.SUCCESS, body=broker.tables.delayed.timers_now().encode())


async def recall_message(broker: Broker, request: Command, caller: Caller) -> Command:
    """As upstream does it unless it is told otherwise (recallMessageEnable)."""
    remark = f"recall failed, operation is forbidden: {NOTHING_STORED}"
    return response(ResponseCode.NO_PERMISSION, remark)


async def ha_info(broker: Broker, request: Command, caller: Caller) -> Command:
    """EXCHANGE_BROKER_HA_INFO: where a slave finds this master's log. What a slave tells of itself
    is of no use here."""
    if not broker.is_master or request.ext.get("masterHaAddress"):
        return response(ResponseCode.SUCCESS)
    ext = {
        "masterAddress": broker.address,
        "masterHaAddress": broker.ha_address,
        "masterFlushOffset": str(broker.store.log.flushed_offset),
    }
    return response(ResponseCode.SUCCESS, ext=ext)


async def broker_config(broker: Broker, request: Command, caller: Caller) -> Command:
    """Java's properties format: name=value lines, in upstream's names where there is one."""
    config = broker.config
    values = {
        "brokerClusterName": config.cluster_name,
        "brokerName": config.broker_name,
        "brokerId": str(broker.replica.broker_id),
        "brokerRole": broker.replica.role,
        "defaultTopicQueueNums": str(config.default_queues),
        "autoCreateTopicEnable": str(config.auto_create_topics).lower(),
        "registerNameServerPeriod": str(config.register_interval_ms),
        "brokerHeartbeatInterval": str(config.controller_heartbeat_interval_ms),
    }
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    return response(ResponseCode.SUCCESS, ext={"version": "0"}, body=text.encode())


async def update_broker_config(broker: Broker, request: Command, caller: Caller) -> Command:
    """A node's configuration is fixed when it starts: a change is refused, not ignored."""
    remark = "the configuration is read when the node starts, and can't be changed while it runs"
    return response(ResponseCode.NO_PERMISSION, remark)


async def runtime_info(broker: Broker, request: Command, caller: Caller) -> Command:
    store = broker.store
    table = {
        "brokerVersionDesc": "Shalott",
        "bootTimestamp": str(broker.started_ms),
        "brokerName": broker.config.broker_name,
        "brokerId": str(broker.replica.broker_id),
        "brokerRole": broker.replica.role,
        "masterEpoch": str(broker.replica.epoch),
        "commitLogMinOffset": str(store.log.min_offset),
        "commitLogMaxOffset": str(store.log.max_offset),
        "commitLogFlushedOffset": str(store.log.flushed_offset),
        "confirmOffset": str(store.confirm_offset),
        "dispatchedOffset": str(store.dispatched_offset),
        "dispatchBehindBytes": str(max(0, store.log.max_offset - store.dispatched_offset)),
    }
    return _json({"table": table})


async def ha_status(broker: Broker, request: Command, caller: Caller) -> Command:
    return _json(broker.replica.ha_status())
