"""What nodes of toys share: a journal that is on the disk before a client is told, a server, and a
process of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from shalott.api import (
    ClientError,
    Definite,
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
ASK_TIMEOUT_MS = 1000
ABORTED = 412  # of the answers that say that certainly nothing was done
Config = TypeVar("Config", bound=msgspec.Struct)


class RunsAlone(Protocol):
    async def run(self) -> None:
        """Until it is cancelled."""


class Journal:
    """Lines on a disk, one a record, which a node's next life reads again."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._end = 0

    async def open(self, take: Callable[[bytes], None]) -> None:
        """Gives each line that is there to ``take``."""
        self._file = await self._disk.open(JOURNAL, create=True)
        await self._disk.sync_dir("")
        for line in (await self._file.pread(await self._file.size(), 0)).splitlines(True):
            try:
                take(line)
            except msgspec.DecodeError:
                break  # it was being written when the node ended: no client was told
            self._end += len(line)
        await self._file.truncate(self._end)

    async def append(self, record: object, *, is_synced: bool = True) -> None:
        line = msgspec.json.encode(record) + b"\n"
        place, self._end = self._end, self._end + len(line)
        await self._file.pwrite(line, place)
        if is_synced:
            await self._file.sync()


async def serve(at: Endpoint, respond: Callable[[Request], Awaitable[Response]]) -> None:
    await ManagementServer(respond, host=at.host, port=at.port).start()


async def pass_on(
    leader: Endpoint,
    body: Mapping[str, object],
    *,
    path: str = "/txn",
    tries: int = 1,
    timeout_ms: int = ASK_TIMEOUT_MS,
) -> Response:
    """A request, to the leader; 412 only if certainly nothing was done."""
    error, is_certain = "", True
    for _ in range(tries):
        try:
            return json_response(await ask(leader, path, body, timeout_ms))
        except Definite as met:  # it was refused, or there is no way to the leader
            error = str(met)
            break
        except ClientError as met:
            error, is_certain = str(met), False
    return json_response({"error": error}, ABORTED if is_certain else 503)


def run_alone(config: type[Config], node: Callable[[Config, Disk], RunsAlone]) -> None:
    """A process, on the disk that is the directory here."""
    own = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=config)
    asyncio.run(node(own, OsDisk(Path.cwd())).run())
