"""A client of etcd's API v3, by HTTP and JSON through its gRPC gateway.

    read    ok      the answer
            fail    everything else: a read changes nothing, so it certainly did not
    write   ok      200
    cas     ok      200, and the comparison held; fail: it did not hold
    both    fail    nothing was sent, or the request was refused before it was proposed (REFUSED)
            info    no answer in time, a connection that ended, any other status: an entry that
                    "timed out", or was proposed when the "leader changed", may yet be committed

The API: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway
"""

from __future__ import annotations

import base64
from typing import Any

import h11
import msgspec

from shalott.api import (
    ClientError,
    Definite,
    Endpoint,
    Indefinite,
    Unreachable,
    exchange,
)

# What gRPC's InvalidArgument, Unauthenticated, PermissionDenied or ResourceExhausted, NotFound,
# Unimplemented and FailedPrecondition become.
REFUSED = (400, 401, 403, 404, 405, 412)


async def ask(at: Endpoint, path: str, body: object, timeout_ms: int) -> Any:
    """The answer of ``POST path``. Raises ClientError: Unreachable if nothing was sent."""
    content = msgspec.json.encode(body)
    headers = [("Host", f"{at.host}:{at.port}"), ("Content-Length", str(len(content)))]
    head = h11.Request(method="POST", target=path, headers=[*headers, ("Connection", "close")])
    try:
        response = await exchange(at, head, content, timeout_ms)
    except Definite as error:
        raise Unreachable(str(error)) from error
    if response.status == 200:
        return response.json()
    said = f"{response.status}: {response.body[:200].decode(errors='replace').strip()}"
    raise Definite(said) if response.status in REFUSED else Indefinite(said)


def encode(text: object) -> str:
    """Keys and values are bytes, in base64."""
    return base64.b64encode(str(text).encode()).decode()


def read_request(key: str, *, serializable: bool) -> dict[str, object]:
    """Serializable reads are answered from the node's own copy, however old it is."""
    return {"key": encode(key), "serializable": serializable}


class EtcdClient:
    """See ``core.registers.Registered``. A request has a connection of its own."""

    def __init__(
        self, host: str, port: int, *, timeout_ms: int, serializable: bool = False
    ) -> None:
        self._at = Endpoint(host, port)
        self._timeout_ms = timeout_ms
        self._serializable = serializable

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, key: str) -> int | None:
        request = read_request(key, serializable=self._serializable)
        try:
            found = (await self._ask("range", request)).get("kvs", ())
        except Unreachable:
            raise
        except ClientError as error:
            raise Definite(str(error)) from error
        return int(base64.b64decode(found[0]["value"])) if found else None

    async def write(self, key: str, value: int) -> None:
        await self._ask("put", {"key": encode(key), "value": encode(value)})

    async def cas(self, key: str, old: int, new: int) -> bool:
        there = {"key": encode(key), "target": "VALUE", "value": encode(old)}
        put = {"requestPut": {"key": encode(key), "value": encode(new)}}
        done = await self._ask("txn", {"compare": [there], "success": [put]})
        return bool(done.get("succeeded", False))

    async def _ask(self, what: str, body: object) -> Any:
        return await ask(self._at, f"/v3/kv/{what}", body, self._timeout_ms)
