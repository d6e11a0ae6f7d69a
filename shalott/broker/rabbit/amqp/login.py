"""Login: who the client of a connection is, where it may go, and how often.

By a password (PLAIN, AMQPLAIN), or by the certificate of its TLS (EXTERNAL, as
rabbit_auth_mechanism_ssl.erl has it). Users of ``loopback_users`` come from this machine only.
Refusals are in RabbitMQ's words.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from pamqp import commands

from shalott.broker.base.tls import Certificate, login_name
from shalott.broker.rabbit.amqp.counts import AUTHENTICATED, REFUSED
from shalott.broker.rabbit.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    SYNTAX_ERROR,
    AmqpError,
)
from shalott.broker.rabbit.amqp.limits import CountChannels, CountConnections, count_clients
from shalott.broker.rabbit.amqp.services import Services
from shalott.broker.rabbit.amqp.tables import read_table
from shalott.broker.rabbit.metadata import vhosts
from shalott.broker.rabbit.metadata.parameters import vhost_limits
from shalott.broker.rabbit.metadata.permissions import find
from shalott.broker.rabbit.metadata.users import Users
from shalott.broker.rabbit.processes.messages import Pid

EXTERNAL = "EXTERNAL"


def capabilities_of(client_properties: Mapping[str, object]) -> dict[str, object]:
    capabilities = client_properties.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


class LoginRefused(AmqpError):
    """A hard 403. Clients that don't know of authentication_failure_close just see the end."""

    def __init__(self, start_ok: commands.Connection.StartOk, why: str) -> None:
        text = (
            f"Login was refused using authentication mechanism {start_ok.mechanism}."
            " For details see the broker logfile."
        )
        index = commands.Connection.StartOk.index
        class_id, method_id = index >> 16, index & 0xFFFF
        super().__init__(ACCESS_REFUSED, text, class_id=class_id, method_id=method_id, hard=True)
        known = capabilities_of(start_ok.client_properties or {})
        self.tell = known.get("authentication_failure_close") is True
        self.why = f"{start_ok.mechanism} login refused: {why}"  # for the log


class Login:
    """Of one connection from ``host``, with its client's certificate if it showed one."""

    def __init__(self, services: Services, host: str, certificate: Certificate | None) -> None:
        self._services = services
        self._users = Users(services.metadata, services.config.users)
        self._host = host
        self._certificate = certificate

    @property
    def mechanisms(self) -> str:
        """What is offered, in the operator's order."""
        offered = self._services.config.auth_mechanisms
        return " ".join(m for m in offered if m != EXTERNAL or self._certificate is not None)

    def authenticate(self, start_ok: commands.Connection.StartOk) -> str:
        """The user's name. Raises AmqpError."""
        try:
            user = self._known(start_ok)
        except LoginRefused:
            self._services.counts.add(REFUSED)
            raise
        self._services.counts.add(AUTHENTICATED)
        return user

    def _known(self, start_ok: commands.Connection.StartOk) -> str:
        mechanism = start_ok.mechanism
        if mechanism not in self.mechanisms.split():
            raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'")
        if mechanism == EXTERNAL:
            user = self._certified(start_ok)
        else:
            user, password = _credentials(start_ok)
            if password is None or self._users.authenticate(user, password) is None:
                raise LoginRefused(start_ok, f"user '{user}' - invalid credentials")
        if user in self._services.config.loopback_users and not is_loopback(self._host):
            raise LoginRefused(start_ok, f"user '{user}' can only connect via localhost")
        return user

    async def check_open(self, vhost: str, user: str, connection: Pid) -> None:
        """Raises AmqpError(530) if the user may not go to this virtual host now."""
        metadata = self._services.metadata
        if not vhosts.exists(metadata, vhost):
            raise AmqpError(NOT_ALLOWED, f"vhost '{vhost}' not found")
        where = f"access to vhost '{vhost}' refused for user '{user}'"
        limit = vhost_limits(metadata, vhost).get("max-connections", -1)
        if 0 <= limit <= await self._count(CountConnections(vhost=vhost), connection, limit):
            raise AmqpError(NOT_ALLOWED, f"{where}: connection limit ({limit}) is reached")
        limit = self._limit(user, "max-connections")
        if 0 <= limit <= await self._count(CountConnections(user=user), connection, limit):
            who = f"connection refused for user '{user}'"
            raise AmqpError(NOT_ALLOWED, f"{who}: user connection limit ({limit}) is reached")
        if find(metadata, vhost, user) is None:
            raise AmqpError(NOT_ALLOWED, where)

    async def check_channel(self, user: str, connection: Pid) -> None:
        """Raises AmqpError(530) if the user may have no more of them."""
        limit = self._limit(user, "max-channels")
        if 0 <= limit <= await self._count(CountChannels(user), connection, limit):
            text = f"number of channels opened for user '{user}' has reached the maximum allowed"
            raise AmqpError(NOT_ALLOWED, f"{text} user limit of ({limit})")

    def _limit(self, user: str, name: str) -> int:
        row = self._users.find(user)
        return -1 if row is None else row.limits.get(name, -1)

    async def _count(
        self, request: CountConnections | CountChannels, connection: Pid, limit: int
    ) -> int:
        if limit == 0:
            return 0
        return await count_clients(self._services.runtime, request, connection)

    def _certified(self, start_ok: commands.Connection.StartOk) -> str:
        assert self._certificate is not None, "else EXTERNAL is not offered"
        user = login_name(self._certificate, self._services.config.ssl_cert_login_from)
        if user is None:
            raise LoginRefused(start_ok, "the certificate has no such name")
        if self._users.find(user) is None:
            raise LoginRefused(start_ok, f"user '{user}' not found")
        return user


def is_loopback(host: str) -> bool:
    """Also of IPv4 within IPv6. A name, as a simulation has them, is another machine's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _credentials(start_ok: commands.Connection.StartOk) -> tuple[str, str | None]:
    answer = start_ok.response
    response = answer.encode() if isinstance(answer, str) else bytes(answer)
    if start_ok.mechanism == "PLAIN":
        parts = response.decode(errors="replace").split("\0")
        return (parts[1], parts[2]) if len(parts) == 3 else ("", None)
    try:
        table = read_table(len(response).to_bytes(4, "big") + response)
    except ValueError as error:
        raise AmqpError(SYNTAX_ERROR, f"the AMQPLAIN response is no table: {error}") from error
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    named = isinstance(user, str) and isinstance(password, str)
    return (str(user), str(password)) if named else ("", None)
