"""Where a search writes what it comes to: a directory, or object storage by its URL.

A place holds objects by name, each whole or not there, and logs of whole lines. In a directory a
log is a file that is appended to by one search alone. Object storage appends nothing and locks
nothing, so there a log is an object a line, in the order of their times: lines of two searches are
never lost to each other. A line without its end, or an object of no bytes, was being written when
its writer died, and is not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType

from shalott.core.errors import StoreError, UsageError
from shalott.core.parameters import is_url
from shalott.harness.run.store import PLAN, RunDirectory

OBJECT_STORAGE = ("s3", "gs", "gcs", "abfs", "abfss")
READERS = 16  # objects that are read at once


class Place(Protocol):
    """Names are paths below it. Every method raises StoreError."""

    @property
    def path(self) -> Path | None:
        """The directory, if it is one of this machine."""
        ...

    def within(self, name: str) -> Place: ...

    def read(self, name: str) -> bytes | None:
        """None: it is not there."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self, under: str = "") -> list[str]:
        """Of all objects there, sorted."""
        ...

    def append(self, log: str, line: bytes) -> None: ...

    def lines(self, log: str) -> bytes:
        """All whole lines. In a directory a torn last one is cut off."""
        ...

    def hold(self, log: str) -> AbstractContextManager[None]:
        """Keeps other searches of this place away, if that can be done. Raises UsageError: one is
        at work."""
        ...

    def move(self, name: str, to: str) -> None:
        """All that is below the name."""
        ...

    def filled(self, name: str) -> AbstractContextManager[Path]:
        """A directory to write, which is there under this name afterwards, its plan last."""
        ...

    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """A directory of this machine to read what is below the name."""
        ...


def open_place(store: str | Path) -> Place:
    """Raises UsageError: the URL is none of object storage."""
    url = str(store)
    if not is_url(url):
        return Directory(Path(store))
    parts = urlsplit(url)
    if parts.scheme not in OBJECT_STORAGE or not parts.netloc:
        raise UsageError(f"{url}: give a directory, or object storage: s3://BUCKET/PREFIX")
    if parts.password:
        raise UsageError("keys are not part of a URL: give them by environment variables")
    try:
        files, root = FileSystem.from_uri(url)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{url} can't be opened: {error}") from error
    return Bucket(files, root.rstrip("/"), parts.scheme)


def beneath(store: str | Path, name: str) -> str:
    """The store in that store."""
    head, mark, query = str(store).partition("?" if is_url(store) else "\0")
    return f"{head.rstrip('/')}/{name}{mark}{query}"


@dataclass(frozen=True, slots=True)
class Directory:
    """See ``Place``."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def within(self, name: str) -> Directory:
        return Directory(self.path / name)

    def read(self, name: str) -> bytes | None:
        with self._told("read", name):
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        place = self.path / name
        with self._told("write", name):
            place.parent.mkdir(parents=True, exist_ok=True)
        RunDirectory(place.parent).save_bytes(place.name, data)

    def remove(self, name: str) -> None:
        with self._told("remove", name):
            (self.path / name).unlink(missing_ok=True)

    def names(self, under: str = "") -> list[str]:
        with self._told("read", under):
            files = RunDirectory(self.path / under).files()
            return [f"{under}/{each}".lstrip("/") for each in files]

    def append(self, log: str, line: bytes) -> None:
        with self._told("write", log):
            file = self._open(log)
            try:
                os.write(file, line)
                os.fsync(file)
            finally:
                os.close(file)

    def lines(self, log: str) -> bytes:
        data = self.read(log) or b""
        whole = _whole(data)
        if len(whole) < len(data):
            with self._told("write", log):
                os.truncate(self.path / log, len(whole))
        return whole

    @contextmanager
    def hold(self, log: str) -> Iterator[None]:
        with self._told("write", log):
            file = self._open(log)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"another search is at work in {self}: wait for it, or use another --store"
                ) from error
            yield
        finally:
            os.close(file)  # and with it the lock

    def move(self, name: str, to: str) -> None:
        with self._told("move", name):
            (self.path / name).rename(self.path / to)

    @contextmanager
    def filled(self, name: str) -> Iterator[Path]:
        yield self.path / name

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        yield self.path / name

    def _open(self, log: str) -> int:
        place = self.path / log
        place.parent.mkdir(parents=True, exist_ok=True)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    @contextmanager
    def _told(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"cannot {what} {self.path / name}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Bucket:
    """See ``Place``. ``root``: the bucket and what its objects' names begin with."""

    files: FileSystem
    root: str
    scheme: str

    path = None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.root}"

    def within(self, name: str) -> Bucket:
        return Bucket(self.files, f"{self.root}/{name}", self.scheme)

    def read(self, name: str) -> bytes | None:
        with self._told("read", name):
            try:
                with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                    return bytes(stream.read()) or None
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """In one call: an object is complete, or, if that is cut off, absent or empty."""
        with (
            self._told("write", name),
            self.files.open_output_stream(f"{self.root}/{name}") as stream,
        ):
            stream.write(data)

    def remove(self, name: str) -> None:
        with self._told("remove", name), contextlib.suppress(FileNotFoundError):
            self.files.delete_file(f"{self.root}/{name}")

    def names(self, under: str = "") -> list[str]:
        base = f"{self.root}/{under}".rstrip("/")
        with self._told("read", under):
            found = self.files.get_file_info(
                FileSelector(base, recursive=True, allow_not_found=True)
            )
        whole = (each.path for each in found if each.type == FileType.File and each.size)
        return sorted(each.removeprefix(f"{self.root}/") for each in whole)

    def append(self, log: str, line: bytes) -> None:
        self.write(f"{log}/{time.time_ns():020d}-{uuid.uuid4().hex[:8]}", line)

    def lines(self, log: str) -> bytes:
        with ThreadPoolExecutor(READERS) as readers:
            return b"".join(_whole(each or b"") for each in readers.map(self.read, self.names(log)))

    def hold(self, log: str) -> AbstractContextManager[None]:
        return nullcontext()

    def move(self, name: str, to: str) -> None:
        """The oldest line of a log last: it says what all of it is about, also after a kill."""
        for each in reversed(self.names(name)):
            with self._told("move", each):
                new = f"{self.root}/{to}{each.removeprefix(name)}"
                self.files.move(f"{self.root}/{each}", new)

    @contextmanager
    def filled(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="shalott-") as scratch:
            yield (directory := Path(scratch) / name)
            for file in sorted(RunDirectory(directory).files(), key=lambda each: each == PLAN):
                self.write(f"{name}/{file}", (directory / file).read_bytes())

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="shalott-") as scratch:
            for each in self.names(name):
                Directory(Path(scratch)).write(each, self.read(each) or b"")
            yield Path(scratch) / name

    @contextmanager
    def _told(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise StoreError(f"cannot {what} {self}/{name}: {reason}") from error


def _whole(data: bytes) -> bytes:
    """Without what follows the last line's end."""
    return data[: data.rfind(b"\n") + 1]
