"""Reading a file that a node goes on writing, from where it was left."""

from __future__ import annotations

import tarfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath

from shalott.cluster.nodes import CommandResult

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
