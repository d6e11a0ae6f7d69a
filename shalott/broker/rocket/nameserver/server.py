"""NameServer: the port where brokers register and clients ask for routes.

Name servers know nothing of each other and keep nothing: one that restarts hears of everything
again when brokers register next. After namesrv/NamesrvController.java and
namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shalott.broker.base.env import Env, pause_ms
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import RocketConfig
from shalott.broker.rocket.nameserver.routes import Routes
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.headers import (
    BadHeader,
    BrokerOfName,
    DataVersionChanged,
    KeyValue,
    QueryDataVersion,
    RegisterBroker,
    RouteOfTopic,
    UnregisterBroker,
    from_ext,
    to_ext,
)
from shalott.broker.rocket.remoting.route_data import (
    BadBody,
    DataVersion,
    RegisterBody,
    TopicList,
    body_crc,
    decode_body,
    encode_body,
)
from shalott.broker.rocket.remoting.server import Caller, RemotingServer

log = logging.getLogger("shalott.broker.nameserver")

NS_PER_MS = 1_000_000
LAST_WRITER_WINS = "KB-RKT-18"
# Nothing that is asked here has to be waited for.
Answering = Callable[[Command, Caller], Command]


class Refused(BrokerError):
    """A request that is answered with SYSTEM_ERROR and the reason."""


SCAN_SETTING = "scanNotActiveBrokerInterval"


class NameServer:
    """One node's. ``routes`` is there to be observed."""

    def __init__(self, env: Env, config: RocketConfig) -> None:
        self.routes = Routes(
            lambda: env.clock.monotonic_ns() // NS_PER_MS,
            default_timeout_ms=config.name_server_broker_timeout_ms,
            last_writer_wins=env.has_bug(LAST_WRITER_WINS),
            master_changed=self._master_changed,
        )
        self._env = env
        self._scan_interval_ms = config.name_server_scan_interval_ms
        self._configured: dict[tuple[str, str], str] = {}  # (namespace, key) -> value
        self._scanning: asyncio.Task[None] | None = None
        self._server = RemotingServer(
            {code: _answering(handler) for code, handler in self._handlers().items()},
            host=config.bind_host,
            port=config.ports["nameserver"],
            on_close=self.routes.connection_closed,
            setting="ports.nameserver",
        )

    @property
    def port(self) -> int:
        """The port in use."""
        return self._server.port

    async def start(self) -> None:
        """Listen. Raises ConfigError if the port is taken."""
        await self._server.start()
        self._scanning = asyncio.create_task(self._scan_for_ever(), name="name server scan")

    async def stop(self) -> None:
        if self._scanning is not None:
            self._scanning.cancel()
            await asyncio.gather(self._scanning, return_exceptions=True)
        await self._server.stop()

    def _master_changed(self, group: str, address: str, epoch: int) -> None:
        self._env.events.emit(group, "route", epoch=epoch, detail={"master": address})

    async def _scan_for_ever(self) -> None:
        while True:
            await pause_ms(self._scan_interval_ms)
            for address in self.routes.scan():
                log.warning("the broker at %s did not register in time", address)

    def _handlers(self) -> dict[int, Answering]:
        return {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.PUT_KV_CONFIG: self._put_config,
            RequestCode.GET_KV_CONFIG: self._get_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_config,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_NAMESRV_CONFIG: self._settings,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._change_settings,
        }

    def _register(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, RegisterBroker)
        if header.compressed:
            raise Refused("compressed registrations are not supported")
        if header.body_crc32 and header.body_crc32 != body_crc(request.body):
            raise Refused("crc32 of the body does not match")
        body = decode_body(request.body, RegisterBody) if request.body else RegisterBody()
        result = self.routes.register(header, body, caller)
        return response(ResponseCode.SUCCESS, ext=to_ext(result))

    def _unregister(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, UnregisterBroker)
        self.routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        return response(ResponseCode.SUCCESS)

    def _route(self, request: Command, caller: Caller) -> Command:
        topic = from_ext(request.ext, RouteOfTopic).topic
        route = self.routes.route(topic)
        if route is None:
            remark = f"no name server has a route for the topic {topic}"
            return response(ResponseCode.TOPIC_NOT_EXIST, remark)
        return response(ResponseCode.SUCCESS, body=encode_body(route))

    def _cluster_info(self, request: Command, caller: Caller) -> Command:
        return response(ResponseCode.SUCCESS, body=encode_body(self.routes.cluster_info()))

    def _topic_list(self, request: Command, caller: Caller) -> Command:
        topics = TopicList(topic_list=self.routes.topics())
        return response(ResponseCode.SUCCESS, body=encode_body(topics))

    def _query_data_version(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, QueryDataVersion)
        key = (header.cluster_name, header.broker_addr)
        changed = self.routes.is_changed(key, decode_body(request.body, DataVersion))
        if not changed:
            self.routes.touch(key)
        known = self.routes.data_version(key)
        body = b"" if known is None else encode_body(known)
        return response(
            ResponseCode.SUCCESS, ext=to_ext(DataVersionChanged(changed=changed)), body=body
        )

    def _put_config(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, KeyValue)
        if header.value is None:
            raise Refused("there is no value to put")
        self._configured[header.namespace, header.key] = header.value
        return response(ResponseCode.SUCCESS)

    def _get_config(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, KeyValue)
        value = self._configured.get((header.namespace, header.key))
        if value is None:
            remark = f"no configuration {header.key} in the namespace {header.namespace}"
            return response(ResponseCode.QUERY_NOT_FOUND, remark)
        return response(ResponseCode.SUCCESS, ext={"value": value})

    def _delete_config(self, request: Command, caller: Caller) -> Command:
        header = from_ext(request.ext, KeyValue)
        self._configured.pop((header.namespace, header.key), None)
        return response(ResponseCode.SUCCESS)

    def _wipe_write_perm(self, request: Command, caller: Caller) -> Command:
        broker = from_ext(request.ext, BrokerOfName).broker_name
        count = self.routes.set_write_perm(broker, allowed=False)
        return response(ResponseCode.SUCCESS, ext={"wipeTopicCount": str(count)})

    def _delete_topic(self, request: Command, caller: Caller) -> Command:
        """Until a broker that has it registers again."""
        self.routes.delete_topic(from_ext(request.ext, RouteOfTopic).topic)
        return response(ResponseCode.SUCCESS)

    def _settings(self, request: Command, caller: Caller) -> Command:
        """Java's properties format, in upstream's names."""
        lines = (f"{name}={value}\n" for name, value in self._live_settings().items())
        return response(ResponseCode.SUCCESS, body="".join(lines).encode())

    def _live_settings(self) -> dict[str, int]:
        return {SCAN_SETTING: self._scan_interval_ms}

    def _change_settings(self, request: Command, caller: Caller) -> Command:
        """All or none; in force until the name server ends."""
        lines = (line.partition("=") for line in request.body.decode().splitlines())
        wanted = {name.strip(): value.strip() for name, equals, value in lines if equals}
        for name, value in wanted.items():
            if name not in self._live_settings():
                raise Refused(f"{name} can't be changed while the name server runs")
            if not value.isdecimal() or int(value) == 0:
                raise Refused(f"{name} is a number of milliseconds, not {value!r}")
        self._scan_interval_ms = int(wanted.get(SCAN_SETTING, self._scan_interval_ms))
        return response(ResponseCode.SUCCESS)

    def _add_write_perm(self, request: Command, caller: Caller) -> Command:
        broker = from_ext(request.ext, BrokerOfName).broker_name
        count = self.routes.set_write_perm(broker, allowed=True)
        return response(ResponseCode.SUCCESS, ext={"addTopicCount": str(count)})


def _answering(handler: Answering) -> Answering:
    """What can't be understood is the caller's fault, and no reason to write a traceback."""

    def answered(request: Command, caller: Caller) -> Command:
        try:
            return handler(request, caller)
        except (BadHeader, BadBody, Refused) as error:
            return response(ResponseCode.SYSTEM_ERROR, str(error))

    return answered
