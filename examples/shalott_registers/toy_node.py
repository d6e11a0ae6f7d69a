"""A node of toy-register: a store that speaks a little of etcd's API.

The first node keeps everything, in a journal that it syncs before it answers; the others pass
requests on to it, and copy what it has now and then.

    python -m shalott_registers.toy_node NODE.JSON      one node, on the disk that is here
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from shalott.api import (
    ClientError,
    Disk,
    Endpoint,
    Request,
    Response,
    json_response,
)
from shalott_registers.client import ask
from shalott_toys.node import ASK_TIMEOUT_MS, Journal, run_alone, serve

COPY_EVERY_S = 0.2


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    listen: Endpoint
    leader: Endpoint | None  # the node that keeps everything; None: it is this one
    stale_reads: bool


class Node:
    """One life of a node, on the disk of its earlier ones."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self.config, self._journal = config, Journal(disk)
        self._values: dict[str, str] = {}  # as the API has them: both in base64
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._journal.open(self._read)
        await serve(self.config.listen, self._respond)
        while True:
            await asyncio.sleep(COPY_EVERY_S)
            if self.config.leader is not None:
                try:
                    self._values = await ask(self.config.leader, "/copy", {}, ASK_TIMEOUT_MS)
                except ClientError:
                    pass  # what it has is old, and it does not say so

    def _read(self, line: bytes) -> None:
        self._values.update(msgspec.json.decode(line))

    async def _respond(self, request: Request) -> Response:
        path, body = "/" + "/".join(request.segments), msgspec.json.decode(request.body or b"{}")
        if path == "/status":
            return json_response({"leader": self.config.leader is None})
        is_stale = path == "/v3/kv/range" and (self.config.stale_reads or body["serializable"])
        if self.config.leader is not None and not is_stale:
            try:
                return json_response(await ask(self.config.leader, path, body, ASK_TIMEOUT_MS))
            except ClientError as error:
                return json_response({"error": str(error)}, 503)
        match path:
            case "/v3/kv/range":
                found = self._values.get(body["key"])
                return json_response({} if found is None else {"kvs": [{"value": found}]})
            case "/v3/kv/put":
                async with self._writing:
                    await self._write(body)
                return json_response({})
            case "/v3/kv/txn":
                async with self._writing:
                    (there,) = body["compare"]
                    holds = self._values.get(there["key"]) == there["value"]
                    if holds:
                        await self._write(body["success"][0]["requestPut"])
                return json_response({"succeeded": holds})
            case "/copy":
                return json_response(self._values)
        return json_response({"error": f"there is no {path}"}, 404)

    async def _write(self, put: Mapping[str, str]) -> None:
        await self._journal.append({put["key"]: put["value"]})
        self._values[put["key"]] = put["value"]


if __name__ == "__main__":
    run_alone(NodeConfig, Node)
