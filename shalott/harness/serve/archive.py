"""A run as a zip file, made while it is sent: nothing of it is kept in memory or on the disk.

Names in it are those of the run's files below a directory called after the run; what an unpacking
program might take for something else (control characters, backslashes, colons, bytes that are no
UTF-8) is written as %XX, so that nothing is unpacked elsewhere.
"""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Iterator

from shalott.harness.serve.request import RAW, Refused, RunPath, StoredFile, StoreFiles

BLOCK_BYTES = 256 << 10
_PLAIN = re.compile(r"[^A-Za-z0-9._ +=@,()\[\]~#!-]")


class _Sink:
    """Where the zip is written to, and taken from. It can't be sought in, so that the zip puts
    lengths behind contents."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        self.waiting += data
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """What was written is taken nevertheless."""

    def taken(self) -> bytes:
        data = bytes(self.waiting)
        self.waiting.clear()
        return data


def zipped(places: StoreFiles, run: RunPath) -> Iterator[bytes]:
    """The file, block by block. A file that can't be read any more is left out; of one that grows
    there is what it had when it was listed."""
    top = archive_name(run)
    files, _ = places.files(run)
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for file in files:
            yield from _member(places, run, file, archive, sink, f"{top}/{member_name(file.name)}")
    yield sink.taken()


def _member(
    places: StoreFiles,
    run: RunPath,
    file: StoredFile,
    archive: zipfile.ZipFile,
    sink: _Sink,
    name: str,
) -> Iterator[bytes]:
    member = zipfile.ZipInfo(name, _changed(file))
    member.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    left = file.bytes
    try:
        with (
            places.opened(run, file.name) as opened,
            archive.open(member, "w", force_zip64=True) as to,
        ):
            while left > 0 and (data := opened.read(min(BLOCK_BYTES, left))):
                left -= len(data)
                to.write(data)
                yield sink.taken()
    except Refused:
        return
    yield sink.taken()


def _changed(file: StoredFile) -> tuple[int, int, int, int, int, int]:
    """A zip's times begin in 1980 and end in 2107."""
    utc = time.gmtime(file.changed_ns // 1_000_000_000)
    year = min(max(utc.tm_year, 1980), 2107)
    return (year, utc.tm_mon, utc.tm_mday, utc.tm_hour, utc.tm_min, min(utc.tm_sec, 59))


def member_name(name: str) -> str:
    """A relative path whose parts no system reads in another way."""
    return "/".join(_escaped(part) for part in name.split("/"))


def _escaped(part: str) -> str:
    safe = _PLAIN.sub(
        lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode("utf-8", RAW)), part
    )
    # Windows drops dots and blanks at the end, and `..` leads out.
    tail = safe.rstrip(". ")
    return tail + "".join(f"%{ord(each):02X}" for each in safe[len(tail) :])


def archive_name(run: RunPath) -> str:
    """Of letters, digits, dots, dashes: it goes into a header, and is a directory's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run.name.replace("/", "-")).strip(".-") or "run"
