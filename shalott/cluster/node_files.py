"""Nodes' files: read while a node goes on writing them, and changed behind its back."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from shalott.cluster import data_files
from shalott.cluster.nodes import CommandResult
from shalott.core.errors import HarnessError

T = TypeVar("T")

RunCommand = Callable[[str, Sequence[str]], Awaitable[CommandResult]]  # (node, command)


def read_from(path: Path, offset: int) -> bytes:
    """What stands behind that byte; b"" if that is nothing, or if there is no such file. Blocks."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except OSError:
        return b""  # it is not there yet, or its disk takes no reads now


def read_as_process(pid: int, path: str, offset: int) -> bytes | None:
    """The same of a file as a running process sees it; None if that has ended. Blocks."""
    found = read_from(Path(f"/proc/{pid}/root{path}"), offset)
    return found if found or Path(f"/proc/{pid}").exists() else None


async def tail(run_command: RunCommand, node: str, path: str, offset: int) -> bytes:
    """The same by a command in a node's world. The file must hold text. Raises HarnessError."""
    done = await run_command(node, ["tail", "-c", f"+{offset + 1}", path])
    return done.output.encode() if done.exit_code == 0 else b""


class DirectoriesHere:
    """See ``ChangesDataFiles``: of nodes whose data directories are on this host."""

    async def place_of(self, node: str) -> Path:
        """The node's data directory. Raises HarnessError."""
        raise NotImplementedError

    def spared(self, node: str) -> Sequence[str]:
        """What is no data of the node's, but evidence."""
        raise NotImplementedError

    async def find(self, node: str, pattern: str) -> Mapping[str, int]:
        place, spared = await self.place_of(node), self.spared(node)
        return await _in_thread(lambda: data_files.find_files(place, pattern, spared))

    async def read_places(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[bytes]:
        place = await self.place_of(node)
        return await _in_thread(lambda: data_files.read_places(place, path, places))

    async def flip_bits(
        self, node: str, path: str, places: Sequence[data_files.Place]
    ) -> Sequence[tuple[int, int]]:
        place = await self.place_of(node)
        return await _in_thread(lambda: data_files.flip_bits(place, path, places))

    async def cut_file(self, node: str, path: str, size: int) -> None:
        place = await self.place_of(node)
        await _in_thread(lambda: data_files.cut_file(place, path, size))

    async def leave_file(self, node: str, path: str, data: bytes) -> None:
        place = await self.place_of(node)
        await _in_thread(lambda: data_files.leave_file(place, path, data))


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise HarnessError(f"a file can't be changed: {error}") from error


# -- Unpacking what nodes hand out, also with Pythons before 3.11.4, which lack tarfile's filters.
def unpack(archive: tarfile.TarFile, into: Path, without: str = "") -> None:
    """Files and directories, to below ``into``, names shortened by a prefix. Links, devices, and
    names that lead elsewhere are left out: a node that is broken may hold anything."""
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
    for entry in archive:
        entry.name = entry.name.removeprefix(without)
        path = PurePosixPath(entry.name)
        if (entry.isreg() or entry.isdir()) and not path.is_absolute() and ".." not in path.parts:
            archive.extract(entry, into)
