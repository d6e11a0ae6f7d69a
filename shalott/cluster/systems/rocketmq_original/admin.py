"""Asking RocketMQ's services as its own administration tool does: one request, one answer.

What each request is for: GET_BROKER_CONFIG (26) has the role, GET_BROKER_RUNTIME_INFO (28) how far
the log goes, GET_BROKER_HA_STATUS (907) who follows, GET_BROKER_EPOCH_CACHE (1007) the epochs of
the log. GET_BROKER_CLUSTER_INFO (106) is a name server's view. CONTROLLER_GET_METADATA_INFO (1005)
and CONTROLLER_GET_SYNC_STATE_DATA (1006) are the controllers'. DLEDGER_METADATA (50000) has the
leader of a Raft group; its requests and answers are whole in their bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

import msgspec

from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.cluster.system import Claim
from shalott.core.errors import Definite, Indefinite
from shalott.core.errors import Unreachable as NobodyThere

ASK_TIMEOUT_MS = 1500.0
Fields = Mapping[str, str]


class Admin:
    """Keeps its connections. Every request raises ClientError: Definite for what was refused or is
    no answer, Indefinite for none."""

    def __init__(self) -> None:
        self._client = RemotingClient(_dial)

    async def ask(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        timeout_ms: float = ASK_TIMEOUT_MS,
    ) -> Command:
        """One request; what is returned says success."""
        answer = await self._invoke(address, code, fields or {}, body, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise Definite(f"{address} answered {code} with {answer.code}: {answer.remark}")
        return answer

    async def _invoke(
        self, address: str, code: int, fields: Fields, body: bytes, timeout_ms: float
    ) -> Command:
        try:
            command = Command(code=code, ext=dict(fields), body=body)
            return await self._client.invoke(address, command, timeout_ms)
        except Unreachable as error:
            raise NobodyThere(str(error)) from error
        except Unanswered as error:
            raise Indefinite(str(error)) from error

    async def properties(self, address: str, code: int) -> dict[str, str]:
        """The answer to 26, 319 or 1010: names and values, a line each."""
        return parse_properties((await self.ask(address, code)).body)

    async def json(
        self, address: str, code: int, fields: Fields | None = None, body: bytes = b""
    ) -> Any:
        answer = await self.ask(address, code, fields, body)
        try:
            return decode_java_json(answer.body, Any)
        except msgspec.DecodeError as error:
            raise Definite(f"{address} answered {code} with no JSON: {error}") from error

    async def runtime_info(self, address: str) -> Mapping[str, str]:
        answer = await self.json(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = answer.get("table") if isinstance(answer, dict) else None
        if not isinstance(table, dict):
            raise Definite(f"{address} answered with no runtime information")
        return table

    async def raft(self, address: str, group: str, member: str) -> Claim:
        """{"leaderId", "term", "peers"} as the member of a DLedger group knows them."""
        asked = {"group": group, "remoteId": member, "localId": member, "code": 200}
        body = msgspec.json.encode(asked)
        answer = await self._invoke(address, RequestCode.DLEDGER_METADATA, {}, body, ASK_TIMEOUT_MS)
        try:
            found = decode_java_json(answer.body, Any)
        except msgspec.DecodeError as error:
            raise Definite(f"{address} answered with no metadata of its group") from error
        if not isinstance(found, dict) or "term" not in found:
            raise Definite(f"{address} answered with no metadata of its group")
        return found


def parse_properties(body: bytes) -> dict[str, str]:
    lines = body.decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _dial(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"
_MAPPED = "0000000000000000FFFF0000"  # of IPv6: before an address of IPv4


def hosts_at(table: str, port: int) -> Sequence[str]:
    """IPv4 addresses with an established connection to a port of this machine, each once.

    Releases before 5 answer no request about their slaves' connections, though a master of theirs
    turns every message away while it has none: its kernel's table has them.

    ``table``: lines of proc_net(5), of tcp and tcp6 alike; addresses are hexadecimal words of four
    bytes, the least significant first. Other lines say nothing.
    """
    found: dict[str, None] = {}
    for line in table.splitlines():
        words = line.split()
        if words[3:4] != [_ESTABLISHED] or words[1].rpartition(":")[2] != f"{port:04X}":
            continue
        address = words[2].rpartition(":")[0].removeprefix(_MAPPED)
        if len(address) == 8:
            found[str(IPv4Address(bytes.fromhex(address)[::-1]))] = None
    return list(found)
