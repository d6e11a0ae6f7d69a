"""Registrations as brokers make them."""

from __future__ import annotations

from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.broker.rocket.remoting.headers import RegisterBroker, to_ext
from shalott.broker.rocket.remoting.route_data import (
    DataVersion,
    RegisterBody,
    TopicConfig,
    TopicConfigs,
    encode_body,
)

CLUSTER, GROUP = "shalott", "g"


def header(
    address: str,
    broker_id: int = 0,
    *,
    group: str = GROUP,
    timeout_ms: int | None = None,
    acting: bool | None = None,
) -> RegisterBroker:
    return RegisterBroker(
        broker_name=group,
        broker_addr=address,
        cluster_name=CLUSTER,
        ha_server_addr=f"ha-of-{address}",
        broker_id=broker_id,
        heartbeat_timeout_millis=timeout_ms,
        enable_acting_master=acting,
    )


def body(*topics: str, epoch: int = 0, counter: int = 0, queues: int = 4) -> RegisterBody:
    table = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        for topic in topics
    }
    version = DataVersion(state_version=epoch, counter=counter)
    return RegisterBody(
        topic_config_serialize_wrapper=TopicConfigs(topic_config_table=table, data_version=version)
    )


def register_command(header: RegisterBroker, body: RegisterBody) -> Command:
    return Command(code=RequestCode.REGISTER_BROKER, ext=to_ext(header), body=encode_body(body))
