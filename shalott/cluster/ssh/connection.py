"""Connection: one SSH transport to a host, over which everything goes in channels of its own.

paramiko blocks, so all that is here is called from threads. TCP_NODELAY is set: without it a
command waits for a delayed acknowledgement, 48 ms in place of 2.5. A host key that is not known is
refused, and never added.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from shalott.cluster.ssh.inventory import parse_where, title_of, user_of
from shalott.core.errors import HarnessError, UsageError
from shalott.core.plan import HostPlan

# What paramiko logs is for a run's log; where there is none it would be printed, with tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.WARNING)

CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_S = 5
COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command on the host ended."""

    exit_code: int
    output: bytes
    errors: str


class Unreachable(HarnessError):
    """There is no connection now; there may be one later."""


class Connection:
    """Raises UsageError for what the user can mend (a key, a host key), Unreachable if no server
    answers."""

    def __init__(self, host: HostPlan) -> None:
        self.host = host
        self._jump: paramiko.SSHClient | None = None
        self._client = self._open()

    def _open(self) -> paramiko.SSHClient:
        host = self.host
        title, known = title_of(host), Path(host.known_hosts).expanduser()
        sock: object = None
        if host.key and not Path(host.key).expanduser().is_file():
            raise UsageError(f"there is no key {host.key}: name another --ssh-key")
        try:
            sock = self._dial()
            return self._log_in(sock, host.address, host.port, user_of(host))
        except paramiko.BadHostKeyException as error:
            self._drop(sock)
            raise UsageError(
                f"{title} has another host key than {known} knows: if the host was installed anew,"
                f" remove the old one with `ssh-keygen -f {known} -R '{_entry(host)}'`, and add the"
                " new one"
            ) from error
        except paramiko.AuthenticationException as error:
            self._drop(sock)
            key = f"the key {host.key}" if host.key else "the agent's keys and those in ~/.ssh"
            raise UsageError(
                f"{title} refuses {user_of(host)} with {key}: add the public key to"
                f" ~{user_of(host)}/.ssh/authorized_keys there, or name another --ssh-user or"
                " --ssh-key"
            ) from error
        except paramiko.SSHException as error:
            self._drop(sock)
            if "not found in known_hosts" in str(error):
                raise UsageError(
                    f"the host key of {title} is not in {known}: compare it with the host's own,"
                    f" and add it with `ssh-keyscan -p {host.port} {host.address} >> {known}`"
                ) from error
            raise Unreachable(f"{title} does not speak SSH: {error}") from error
        except (OSError, EOFError) as error:
            self._drop(sock)
            raise Unreachable(f"{title} can't be reached over SSH: {_reason(error)}") from error

    def _dial(self) -> object:
        """A socket, or a channel through the jump host."""
        host = self.host
        if not host.jump:
            return _connect(host.address, host.port)
        user, address, port = parse_where(host.jump)
        sock = _connect(address, port or 22)
        self._jump = self._log_in(sock, address, port or 22, user or user_of(host))
        transport = self._jump.get_transport()
        assert transport is not None
        return transport.open_channel(
            "direct-tcpip", (host.address, host.port), ("", 0), timeout=CONNECT_TIMEOUT_S
        )

    def _log_in(self, sock: object, address: str, port: int, user: str) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        known = Path(self.host.known_hosts).expanduser()
        if known.is_file():
            client.load_host_keys(str(known))
        key = str(Path(self.host.key).expanduser()) if self.host.key else None
        try:
            client.connect(
                address,
                port,
                username=user,
                key_filename=key,
                allow_agent=True,
                look_for_keys=key is None,
                sock=sock,
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
            )
        except BaseException:
            _close(client)
            raise
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(KEEPALIVE_S)
        return client

    @property
    def transport(self) -> paramiko.Transport:
        """Raises Unreachable if the connection is lost."""
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise Unreachable(f"the connection to {title_of(self.host)} is lost")
        return transport

    def session(self, command: str) -> paramiko.Channel:
        """A channel on which a command runs. Raises Unreachable."""
        try:
            channel = self.transport.open_session(timeout=CONNECT_TIMEOUT_S)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            title = title_of(self.host)
            raise Unreachable(f"the connection to {title} is lost: {_reason(error)}") from error
        return channel

    def run(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Ended:
        """Run a command to its end. Raises Unreachable."""
        with contextlib.closing(self.session(command)) as channel:
            channel.settimeout(timeout_s)
            try:
                output = b"".join(iter(lambda: channel.recv(1 << 16), b""))
                errors = b"".join(iter(lambda: channel.recv_stderr(1 << 16), b""))
                code = channel.recv_exit_status()
            except (OSError, EOFError, paramiko.SSHException) as error:
                title = title_of(self.host)
                raise Unreachable(f"{title} does not answer: {_reason(error)}") from error
        return Ended(code, output, errors.decode(errors="replace"))

    def files(self) -> paramiko.SFTPClient:
        """Raises HarnessError where there is no SFTP."""
        try:
            client = paramiko.SFTPClient.from_transport(self.transport)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise HarnessError(f"{title_of(self.host)} has no SFTP: {_reason(error)}") from error
        assert client is not None
        return client

    def close(self) -> None:
        _close(self._client)
        _close(self._jump)

    def _drop(self, sock: Any) -> None:
        _close(sock)
        _close(self._jump)


def _close(what: Any) -> None:
    """It may be broken: a way through another host says goodbye over that host's connection."""
    with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
        if what is not None:
            what.close()


def _connect(address: str, port: int) -> socket.socket:
    sock = socket.create_connection((address, port), CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _entry(host: HostPlan) -> str:
    """As known_hosts names it."""
    return host.address if host.port == 22 else f"[{host.address}]:{host.port}"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
