"""Asking RocketMQ's services as its own administration tool does: one request, one answer.

What each request is for: GET_BROKER_CONFIG (26) has the role, GET_BROKER_RUNTIME_INFO (28) how far
the log goes, GET_BROKER_HA_STATUS (907) who follows, GET_BROKER_EPOCH_CACHE (1007) the epochs of
the log. GET_BROKER_CLUSTER_INFO (106) is a name server's view. CONTROLLER_GET_METADATA_INFO (1005)
and CONTROLLER_GET_SYNC_STATE_DATA (1006) are the controllers'. DLEDGER_METADATA (50000) has the
leader of a Raft group; its requests and answers are whole in their bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.broker.rocket.remoting.java_json import decode_java_json
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
        """Any request; what is returned says success."""
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

    async def raft(self, address: str, group: str, member: str) -> Mapping[str, Any]:
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
