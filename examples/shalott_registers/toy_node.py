"""A node of toy-register: a store that speaks a little of etcd's API.

The first node keeps everything, in a journal that it syncs before it answers; the others pass
requests on to it, and copy what it has now and then.

    python -m shalott_registers.toy_node NODE.JSON      one node, on the disk that is the directory here
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from shalott.api import (
    ClientError,
    Disk,
    Endpoint,
    ManagementServer,
    OsDisk,
    Request,
    Response,
    json_response,
)
from shalott_registers.client import ask

JOURNAL = "journal"
COPY_EVERY_S = 0.2
ASK_TIMEOUT_MS = 1000


class NodeConfig(msgspec.Struct, frozen=True):
    name: str
    listen: Endpoint
    first: Endpoint | None  # the node that keeps everything; None: it is this one
    stale_reads: bool


class Node:
    """One life of a node, on the disk of its earlier ones."""

    def __init__(self, config: NodeConfig, disk: Disk) -> None:
        self.config, self._disk = config, disk
        self._values: dict[str, str] = {}  # as the API has them: both in base64
        self._journal_end = 0
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Until it is cancelled."""
        at = self.config.listen
        self._journal = await self._disk.open(JOURNAL, create=True)
        await self._disk.sync_dir("")
        for line in (await self._journal.pread(await self._journal.size(), 0)).splitlines(True):
            try:
                self._values.update(msgspec.json.decode(line))
            except msgspec.DecodeError:
                break  # it was being written when the node ended: no client was told
            self._journal_end += len(line)
        await self._journal.truncate(self._journal_end)
        server = ManagementServer(self._respond, host=at.host, port=at.port)
        await server.start()
        while True:
            await asyncio.sleep(COPY_EVERY_S)
            if self.config.first is not None:
                try:
                    self._values = await ask(self.config.first, "/copy", {}, ASK_TIMEOUT_MS)
                except ClientError:
                    pass  # what it has is old, and it does not say so

    async def _respond(self, request: Request) -> Response:
        path, body = "/" + "/".join(request.segments), msgspec.json.decode(request.body or b"{}")
        if path == "/status":
            return json_response({"first": self.config.first is None})
        is_stale = path == "/v3/kv/range" and (self.config.stale_reads or body["serializable"])
        if self.config.first is not None and not is_stale:
            try:
                return json_response(await ask(self.config.first, path, body, ASK_TIMEOUT_MS))
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
        line = msgspec.json.encode({put["key"]: put["value"]}) + b"\n"
        await self._journal.pwrite(line, self._journal_end)
        await self._journal.sync()
        self._journal_end += len(line)
        self._values[put["key"]] = put["value"]


if __name__ == "__main__":
    own = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=NodeConfig)
    asyncio.run(Node(own, OsDisk(Path.cwd())).run())
