"""The table of what a broker's port serves: request code -> handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.processor import (
    admin,
    client_requests,
    group_admin,
    offsets,
    pops,
    pull,
    replies,
    running,
    send,
    statistics,
    topic_admin,
    transactions,
)
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.fields import BadRequest
from shalott.broker.rocket.processor.puts import answered
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller, Handler

log = logging.getLogger("shalott.broker.processor")

BrokerHandler = Callable[[Broker, Command, Caller], Awaitable[Command]]

TABLE: Mapping[RequestCode, BrokerHandler] = {
    RequestCode.SEND_MESSAGE: send.send,
    RequestCode.SEND_MESSAGE_V2: send.send,
    RequestCode.SEND_BATCH_MESSAGE: send.send,
    RequestCode.SEND_REPLY_MESSAGE: replies.reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: send.send_back,
    RequestCode.PULL_MESSAGE: pull.pull,
    RequestCode.LITE_PULL_MESSAGE: pull.pull,
    RequestCode.POP_MESSAGE: pops.pop,
    RequestCode.ACK_MESSAGE: pops.ack,
    RequestCode.BATCH_ACK_MESSAGE: pops.batch_ack,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pops.change_invisible_time,
    RequestCode.NOTIFICATION: pops.notification,
    RequestCode.POLLING_INFO: pops.polling_info,
    RequestCode.CHECK_CLIENT_CONFIG: pull.check_client_config,
    RequestCode.QUERY_MESSAGE: pull.query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: pull.view_message_by_id,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search_offset_by_timestamp,
    RequestCode.GET_MAX_OFFSET: offsets.max_offset,
    RequestCode.GET_MIN_OFFSET: offsets.min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_store_time,
    RequestCode.HEART_BEAT: client_requests.heart_beat,
    RequestCode.UNREGISTER_CLIENT: client_requests.unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: client_requests.consumer_list,
    RequestCode.LOCK_BATCH_MQ: client_requests.lock_batch,
    RequestCode.UNLOCK_BATCH_MQ: client_requests.unlock_batch,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: offsets.reset_offset,
    RequestCode.END_TRANSACTION: transactions.end_transaction,
    RequestCode.UPDATE_AND_CREATE_TOPIC: topic_admin.update_and_create_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topic_admin.update_and_create_topics,
    RequestCode.DELETE_TOPIC_IN_BROKER: topic_admin.delete_topic,
    RequestCode.GET_TOPIC_CONFIG: topic_admin.topic_config,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic_admin.system_topic_list,
    RequestCode.CLEAN_UNUSED_TOPIC: topic_admin.clean_unused_topics,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: topic_admin.clean_queues,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group_admin.update_and_create_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group_admin.update_and_create_groups,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: group_admin.delete_group,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: group_admin.group_config,
    RequestCode.GET_ALL_TOPIC_CONFIG: topic_admin.all_topics,
    RequestCode.DELETE_EXPIRED_COMMITLOG: running.delete_expired_log,
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: running.check_rocksdb,
    RequestCode.QUERY_ASSIGNMENT: running.query_assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: running.set_request_mode,
    RequestCode.RESET_MASTER_FLUSH_OFFSET: running.set_master_flush_offset,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: running.limit_cold_reads,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: running.forget_cold_limit,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: running.cold_data_info,
    RequestCode.AUTH_CREATE_USER: running.no_users,
    RequestCode.GET_TOPIC_STATS_INFO: statistics.topic_stats,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: statistics.consumers_of_group,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: statistics.producers_of_group,
    RequestCode.GET_CONSUME_STATS: statistics.consume_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: statistics.groups_of_topic,
    RequestCode.GET_BROKER_CONSUME_STATS: statistics.all_consume_stats,
    RequestCode.QUERY_CONSUME_QUEUE: statistics.queue_units,
    RequestCode.GET_ALL_PRODUCER_INFO: statistics.all_producers,
    RequestCode.UPDATE_BROKER_CONFIG: admin.update_broker_config,
    RequestCode.GET_BROKER_CONFIG: admin.broker_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
    RequestCode.GET_ALL_CONSUMER_OFFSET: admin.all_consumer_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: admin.all_delay_offsets,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.all_groups,
    RequestCode.GET_BROKER_HA_STATUS: admin.ha_status,
    RequestCode.GET_TIMER_CHECK_POINT: admin.timer_checkpoint,
    RequestCode.RECALL_MESSAGE: admin.recall_message,
    RequestCode.EXCHANGE_BROKER_HA_INFO: admin.ha_info,
}


def broker_handlers(broker: Broker) -> dict[int, Handler]:
    """For a RemotingServer."""
    return {int(code): _bound(broker, handler) for code, handler in TABLE.items()}


def closed(broker: Broker, caller: Caller) -> None:
    """A connection ended: the server's ``on_close``."""
    client_requests.notify(broker, broker.clients.closed(caller))


def _bound(broker: Broker, handler: BrokerHandler) -> Handler:
    async def handle(request: Command, caller: Caller) -> Command | None:
        try:
            return await answered(broker, handler(broker, request, caller))
        except BadRequest as error:
            return response(ResponseCode.SYSTEM_ERROR, str(error))
        except BrokerError as error:
            log.warning("request %d of %s: %s", request.code, caller.address, error)
            return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    return handle
