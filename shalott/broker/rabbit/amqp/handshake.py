"""The opening of a connection, from the client's protocol header to connection.open-ok.

start → start-ok (who are you) → tune → tune-ok (limits) → open (which vhost) → open-ok. Each
refusal has the code that RabbitMQ gives it: 403 for a wrong password, 530 for limits that can't be,
for vhosts that don't exist, and for those where the user has no permissions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pamqp import commands

from shalott.broker.rabbit.amqp.errors import COMMAND_INVALID, NOT_ALLOWED, AmqpError
from shalott.broker.rabbit.amqp.login import Login, capabilities_of
from shalott.broker.rabbit.amqp.wire import FRAME_MIN_SIZE, Method
from shalott.broker.rabbit.config import RABBITMQ_VERSION, NodeConfig
from shalott.broker.rabbit.processes.messages import Pid

_CAPABILITIES: Mapping[str, bool] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "connection.blocked": True,
    "direct_reply_to": True,
}

M = TypeVar("M", bound=Method)


@dataclass(frozen=True)
class Agreement:
    """What both sides agreed on. ``heartbeat_s`` 0: no heartbeats."""

    user: str
    mechanism: str
    vhost: str
    client_properties: dict[str, object]
    channel_max: int
    frame_max: int
    heartbeat_s: int

    @property
    def capabilities(self) -> dict[str, object]:
        return capabilities_of(self.client_properties)


async def shake_hands(
    config: NodeConfig,
    send: Callable[[Method], Awaitable[None]],
    receive: Callable[[], Awaitable[Method]],
    login: Login,
    connection: Pid,
) -> Agreement:
    """Everything after the protocol header. Raises AmqpError."""
    await send(
        commands.Connection.Start(
            server_properties={
                "product": "RabbitMQ",  # in what it does and says; clients go by it
                "information": "Shalott's implementation. See https://www.rabbitmq.com",
                "version": RABBITMQ_VERSION,
                "platform": "Python",
                "cluster_name": f"shalott@{config.name}",
                "capabilities": dict(_CAPABILITIES),
            },
            mechanisms=login.mechanisms,
            locales="en_US",
        )
    )
    start_ok = _expect(commands.Connection.StartOk, await receive())
    user = login.authenticate(start_ok)
    await send(commands.Connection.Tune(config.channel_max, config.frame_max, config.heartbeat_s))
    tune_ok = _expect(commands.Connection.TuneOk, await receive())
    channel_max = _tuned("channel_max", tune_ok.channel_max, config.channel_max, minimum=1)
    frame_max = _tuned("frame_max", tune_ok.frame_max, config.frame_max, minimum=FRAME_MIN_SIZE)
    opened = _expect(commands.Connection.Open, await receive())
    await login.check_open(opened.virtual_host, user, connection)
    await send(commands.Connection.OpenOk())
    return Agreement(
        user=user,
        mechanism=start_ok.mechanism,
        vhost=opened.virtual_host,
        client_properties=dict(start_ok.client_properties or {}),
        channel_max=channel_max,
        frame_max=frame_max,
        heartbeat_s=tune_ok.heartbeat,
    )


def _expect(kind: type[M], method: Method) -> M:
    if isinstance(method, kind):
        return method
    raise AmqpError(COMMAND_INVALID, f"expected {kind.name}, got {method.name}")


def _tuned(name: str, wanted: int, offered: int, *, minimum: int) -> int:
    """The agreed value; 0 means that the client sets no limit of its own."""
    if wanted == 0:
        return offered
    if wanted < minimum:
        raise AmqpError(NOT_ALLOWED, f"{name} {wanted} is less than the minimum {minimum}")
    if wanted > offered:
        raise AmqpError(NOT_ALLOWED, f"{name} {wanted} is more than the {offered} offered")
    return wanted
