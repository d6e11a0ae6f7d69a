"""Registers of NATS: keys of one bucket, which is a stream that keeps the last value of each.

A compare-and-set reads a value with its revision, and writes if that is still the last one. As
``client.told`` has errors; a revision that is not the last any more is certainly not written.
"""

from __future__ import annotations

from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

import shalott.api as api
from shalott_nats.client import Link, reading, told

BUCKET = "registers"
STREAM = f"KV_{BUCKET}"


class RegisterClient:
    """See ``core.registers.Registered``. ``direct``: whichever copy answers is asked for a value,
    not the leader."""

    def __init__(self, host: str, port: int, *, timeout_ms: int, direct: bool) -> None:
        self._link = Link(host, port, timeout_ms)
        self._direct = direct

    async def open(self) -> None:
        await self._link.up()

    async def close(self) -> None:
        await self._link.close()

    async def read(self, key: str) -> int | None:
        entry = await self._entry(key)
        return None if entry is None else int(entry.value or b"")

    async def write(self, key: str, value: int) -> None:
        bucket = await self._bucket()
        async with told("put"):
            await bucket.put(key, b"%d" % value)

    async def cas(self, key: str, old: int, new: int) -> bool:
        entry = await self._entry(key)
        if entry is None or int(entry.value or b"") != old:
            return False
        bucket = await self._bucket()
        async with told("update"):
            try:
                await bucket.update(key, b"%d" % new, entry.revision)
            except KeyWrongLastSequenceError as error:
                raise api.Definite(f"it was written since revision {entry.revision}") from error
        return True

    async def _entry(self, key: str) -> KeyValue.Entry | None:
        bucket = await self._bucket()
        async with reading("get"):
            try:
                return await bucket.get(key)
            except KeyNotFoundError:
                return None

    async def _bucket(self) -> KeyValue:
        """The library's own way to one asks the stream's leader each time."""
        stream = await self._link.stream()
        return KeyValue(BUCKET, STREAM, f"$KV.{BUCKET}.", stream, self._direct)
