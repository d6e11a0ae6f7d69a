"""Unpacking what nodes hand out, also with Pythons before 3.11.4, which lack tarfile's filters."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath


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
