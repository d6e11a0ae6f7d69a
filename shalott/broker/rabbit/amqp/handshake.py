"""The opening of a connection, from the client's protocol header to connection.open-ok.

start → start-ok (who are you) → tune → tune-ok (limits) → open (which vhost) → open-ok. Each
refusal has the code that RabbitMQ gives it: 403 for a wrong password, 530 for limits that can't be,
for vhosts that don't exist, and for those where the user has no permissions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pamqp import commands, decode

from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    SYNTAX_ERROR,
    AmqpError,
)
from shalott.broker.rabbit.amqp.wire import FRAME_MIN_SIZE, Method
from shalott.broker.rabbit.config import RABBITMQ_VERSION, NodeConfig

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


def capabilities_of(client_properties: Mapping[str, object]) -> dict[str, object]:
    capabilities = client_properties.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


class LoginRefused(AmqpError):
    """A hard 403. Clients that don't know of authentication_failure_close just see the end."""

    def __init__(self, text: str, *, tell: bool) -> None:
        start_ok = commands.Connection.StartOk.index
        class_id, method_id = start_ok >> 16, start_ok & 0xFFFF
        super().__init__(ACCESS_REFUSED, text, class_id=class_id, method_id=method_id, hard=True)
        self.tell = tell


async def shake_hands(
    config: NodeConfig,
    send: Callable[[Method], Awaitable[None]],
    receive: Callable[[], Awaitable[Method]],
    has_vhost: Callable[[str], bool],
    may_enter: Callable[[str, str], bool],
    is_password: Callable[[str, str], bool],
) -> Agreement:
    """Everything after the protocol header. ``may_enter`` takes a vhost and a user, ``is_password``
    a user and what may be its password. Raises AmqpError."""
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
            mechanisms="PLAIN AMQPLAIN",
            locales="en_US",
        )
    )
    start_ok = _expect(commands.Connection.StartOk, await receive())
    user = _authenticate(is_password, start_ok)
    await send(commands.Connection.Tune(config.channel_max, config.frame_max, config.heartbeat_s))
    tune_ok = _expect(commands.Connection.TuneOk, await receive())
    channel_max = _tuned("channel_max", tune_ok.channel_max, config.channel_max, minimum=1)
    frame_max = _tuned("frame_max", tune_ok.frame_max, config.frame_max, minimum=FRAME_MIN_SIZE)
    opened = _expect(commands.Connection.Open, await receive())
    if not has_vhost(opened.virtual_host):
        raise AmqpError(NOT_ALLOWED, f"vhost '{opened.virtual_host}' not found")
    if not may_enter(opened.virtual_host, user):
        text = f"access to vhost '{opened.virtual_host}' refused for user '{user}'"
        raise AmqpError(NOT_ALLOWED, text)
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


def _authenticate(
    is_password: Callable[[str, str], bool], start_ok: commands.Connection.StartOk
) -> str:
    """The user's name. Raises LoginRefused."""
    user, password = _credentials(start_ok)
    if password is None or not is_password(user, password):
        tell = capabilities_of(start_ok.client_properties or {}).get("authentication_failure_close")
        text = f"login was refused using authentication mechanism {start_ok.mechanism}"
        raise LoginRefused(text, tell=tell is True)
    return user


def _credentials(start_ok: commands.Connection.StartOk) -> tuple[str, str | None]:
    answer = start_ok.response
    response = answer.encode() if isinstance(answer, str) else bytes(answer)
    if start_ok.mechanism == "PLAIN":
        parts = response.decode(errors="replace").split("\0")
        return (parts[1], parts[2]) if len(parts) == 3 else ("", None)
    if start_ok.mechanism == "AMQPLAIN":
        try:
            _, table = decode.field_table(len(response).to_bytes(4, "big") + response)
        except (ValueError, RecursionError) as error:
            raise AmqpError(SYNTAX_ERROR, f"the AMQPLAIN response is no table: {error}") from error
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        named = isinstance(user, str) and isinstance(password, str)
        return (str(user), str(password)) if named else ("", None)
    raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{start_ok.mechanism}'")
