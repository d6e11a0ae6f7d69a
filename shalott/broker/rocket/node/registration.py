"""Registration: tells every name server what this broker is and which topics it has.

Every ``register_interval_ms``, and at once when the broker's role, its epoch or its topics change.
Each name server is told by a task of its own, so one that hangs keeps no other waiting; one that
could not be told is tried again soon. A broker without an id (its role is undecided) unregisters:
clients shall not find it. After broker/out/BrokerOuterAPI.java; docs/protocols.md 4.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from shalott.broker.base.env import wait_ms
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.remoting.client import RemotingClient
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.headers import RegisterBroker, UnregisterBroker, to_ext
from shalott.broker.rocket.remoting.route_data import (
    RegisterBody,
    TopicConfigs,
    body_crc,
    encode_body,
)

log = logging.getLogger("shalott.broker.registration")

TIMEOUT_MS = 3000
AGAIN_MS = 1000
FAREWELL_TIMEOUT_MS = 1000
NO_BROKER_ID = -1


class Registration:
    """Of one broker at all name servers."""

    def __init__(
        self, config: RocketConfig, book: AddressBook, broker: Broker, client: RemotingClient
    ) -> None:
        self._config = config
        self._broker = broker
        self._client = client
        self._servers = {
            book.advertised(node, "nameserver"): asyncio.Event()
            for node in config.nodes_with("nameserver")
        }
        self._ha_address = config.advertised.get("ha", "")

    def wake(self) -> None:
        """Something changed that name servers should hear of now."""
        for changed in self._servers.values():
            changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(
            *(self._keep_registered(server, changed) for server, changed in self._servers.items())
        )

    async def unregister(self) -> None:
        """At an orderly end."""
        await asyncio.gather(
            *(self._unregister(server, FAREWELL_TIMEOUT_MS) for server in self._servers)
        )

    async def _keep_registered(self, server: str, changed: asyncio.Event) -> None:
        known = False  # there, as far as we know
        while True:
            changed.clear()
            told = await self._tell(server, known)
            known = self._has_id() if told else True
            interval_ms = self._config.broker.register_interval_ms
            await wait_ms(changed, interval_ms if told else min(interval_ms, AGAIN_MS))

    async def _tell(self, server: str, known: bool) -> bool:
        if self._has_id():
            return await self._ask(server, self._registration(), TIMEOUT_MS)
        return not known or await self._unregister(server, TIMEOUT_MS)

    def _has_id(self) -> bool:
        return self._broker.replica.broker_id != NO_BROKER_ID

    def _registration(self) -> Command:
        """The topics' version carries the epoch: of two masters name servers prefer the later."""
        config, replica = self._config, self._broker.replica
        table = self._broker.tables.topic_table()
        version = msgspec.structs.replace(table.data_version, state_version=replica.epoch)
        wrapper = TopicConfigs(topic_config_table=table.topic_config_table, data_version=version)
        body = encode_body(RegisterBody(topic_config_serialize_wrapper=wrapper))
        header = RegisterBroker(
            broker_name=config.broker.broker_name,
            broker_addr=self._broker.address,
            cluster_name=config.broker.cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=replica.broker_id,
            heartbeat_timeout_millis=config.name_server_broker_timeout_ms,
            body_crc32=body_crc(body),
        )
        return Command(code=RequestCode.REGISTER_BROKER, ext=to_ext(header), body=body)

    async def _unregister(self, server: str, timeout_ms: int) -> bool:
        header = UnregisterBroker(
            broker_name=self._config.broker.broker_name,
            broker_addr=self._broker.address,
            cluster_name=self._config.broker.cluster_name,
            broker_id=max(0, self._broker.replica.broker_id),
        )
        farewell = Command(code=RequestCode.UNREGISTER_BROKER, ext=to_ext(header))
        return await self._ask(server, farewell, timeout_ms)

    async def _ask(self, server: str, command: Command, timeout_ms: int) -> bool:
        """Whether the name server took it."""
        try:
            answer = await self._client.invoke(server, command, timeout_ms)
        except BrokerError as error:
            log.info("the name server %s does not answer: %s", server, error)
            return False
        if answer.code != ResponseCode.SUCCESS:
            log.warning("the name server %s refuses: %s", server, answer.remark)
        return answer.code == ResponseCode.SUCCESS
