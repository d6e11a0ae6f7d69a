"""What is no plain file as one: gzip, pipes and standard input are written out beside it.

Readers look at a file's beginning, and Parquet's at its end, before they read it; a pipe can be
read once only. What was written out is removed afterwards, and errors name what was asked for.
"""

from __future__ import annotations

import gzip
import os
import select
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from shalott.core.errors import UnreadableHistory

STANDARD_INPUT: Final = "-"
GZIP_MAGIC: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 1 << 16
_LOOK_UP_S: Final = 0.1  # a signal between two system calls is noticed after so long at most
_STREAMS: Final = (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR)


def is_stream(file: str, mode: int) -> bool:
    """Whether it is standard input, or can be read only once."""
    return file == STANDARD_INPUT or stat.S_IFMT(mode) in _STREAMS


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A plain file with the content of ``path``, which may be ``-``, a pipe, or compressed.

    It is ``path`` itself where nothing has to be done. Raises UnreadableHistory: the file can't be
    read, or is damaged, or what is raised within says so of the file that stands in for it.
    """
    with tempfile.TemporaryDirectory(prefix="shalott-") as directory:
        plain, name = path, os.fspath(path)
        try:
            if is_stream(name, path.stat().st_mode if name != STANDARD_INPUT else 0):
                plain = Path(directory) / "stream"
                _drain(name, plain)
            with plain.open("rb") as begun:
                is_packed = begun.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            if is_packed:
                unzipped = Path(directory) / path.name.removesuffix(".gz")
                with gzip.open(plain) as packed, unzipped.open("wb") as copy:
                    shutil.copyfileobj(packed, copy, _PIECE_BYTES)
                plain = unzipped
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableHistory(f"{path}: the gzip file is damaged: {error}") from error
        except OSError as error:
            raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error
        try:
            yield plain
        except UnreadableHistory as error:
            if plain is path:
                raise
            raise UnreadableHistory(str(error).replace(str(plain), shown_name(name))) from error


def shown_name(file: str) -> str:
    """What messages call it."""
    return "standard input" if file == STANDARD_INPUT else file


def _drain(name: str, to: Path) -> None:
    if name == STANDARD_INPUT:
        with os.fdopen(os.dup(0), "rb", buffering=0) as stream:
            _copy(stream, to)
        return
    with Path(name).open("rb", buffering=0) as stream:
        _copy(stream, to)


def _copy(stream: BinaryIO, to: Path) -> None:
    with to.open("wb") as copy:
        while True:
            # A blocking read that has just missed a Ctrl-C would wait for the writer.
            if select.select([stream], [], [], _LOOK_UP_S)[0]:
                some = os.read(stream.fileno(), _PIECE_BYTES)
                if not some:
                    return
                copy.write(some)
