"""Disk and File: the only way a node reads or writes files.

``OsDisk`` runs every call on one dedicated writer thread (the only thread in the product), so the event loop
never blocks on fsync. A simulated disk implements the same protocols with a page cache of its own.

Durability contract, as POSIX has it: bytes are durable after ``File.sync``; a created, renamed or removed name is
durable after ``sync_dir`` of its directory. A failed ``sync`` means that the data may be gone: crash the node.
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file. Offsets and sizes are bytes."""

    async def pread(self, size: int, offset: int) -> bytes:
        """At most ``size`` bytes from ``offset``; may be short; empty at the end of the file."""
        ...

    async def pwrite(self, data: bytes, offset: int) -> int:
        """Write at ``offset``; returns how many bytes were taken, which may be fewer. Raises OSError(ENOSPC)."""
        ...

    async def truncate(self, size: int) -> None: ...

    async def size(self) -> int: ...

    async def sync(self) -> None: ...

    async def close(self) -> None: ...


class Disk(Protocol):
    """A directory tree that belongs to one node. Paths are relative, with forward slashes."""

    async def open(self, path: str, *, create: bool) -> File:
        """Raises FileNotFoundError if it is absent and ``create`` is false. Parents are made when creating."""
        ...

    async def rename(self, source: str, target: str) -> None: ...

    async def remove(self, path: str) -> None: ...

    async def sync_dir(self, path: str) -> None: ...

    async def listdir(self, path: str) -> list[str]:
        """Names, sorted; empty if the directory is absent."""
        ...

    async def free_bytes(self) -> int: ...
