"""A node's data files, found and changed behind its back: what ``ChangesDataFiles`` does on a real
directory.

Nothing is synced: a change is what any other process on the machine might have written. Links are
never followed, since a node may have made any. Used by the harness and by the agent on hosts
(Python 3.9, no libraries). Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

CHUNK = 1 << 16
OURS = ".shalott-"  # how names of files begin that the harness leaves there
Place = tuple[int, int]  # an offset, and which bits of its byte


@lru_cache(maxsize=64)
def matcher(pattern: str) -> re.Pattern[str]:
    """A pattern of paths as shells have it: ``*`` and ``?`` stop at a slash, ``**`` does not."""
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts) + r"\Z", re.S)


def chosen(path: str, pattern: str, without: Sequence[str]) -> bool:
    """Whether the pattern means that path, it lies in none of ``without``, and is not ours."""
    if path.rpartition("/")[2].startswith(OURS):
        return False
    spared = any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in without)
    return not spared and matcher(pattern).match(path) is not None


def find_files(root: Path, pattern: str, without: Sequence[str] = ()) -> dict[str, int]:
    """By path: where the content of a file that is meant ends. Files without any are left out."""
    found = {}
    for path in sorted(_paths(root)):
        if chosen(path, pattern, without):
            try:
                with _open(root, path, os.O_RDONLY) as descriptor:
                    end = _end_of_content(descriptor)
            except OSError:
                continue  # it is gone, or no file of bytes
            if end:
                found[path] = end
    return found


def _paths(root: Path) -> Iterator[str]:
    for directory, _, names in os.walk(root):
        inner = os.path.relpath(directory, root)
        for name in names:
            path = name if inner == "." else f"{inner}/{name}"
            if path.isprintable():  # a history holds text
                yield path


@contextlib.contextmanager
def _open(root: Path, path: str, flags: int) -> Iterator[int]:
    """A regular file's descriptor, while it lasts."""
    descriptor = os.open(root / path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file of bytes")
        yield descriptor
    finally:
        os.close(descriptor)


def _end_of_content(descriptor: int) -> int:
    """Behind the last byte that is not zero: programs allocate files long before they fill them."""
    for begin, end in reversed([*_extents(descriptor)]):
        for start in range(end - CHUNK, begin - CHUNK, -CHUNK):
            first = max(begin, start)
            kept = os.pread(descriptor, start + CHUNK - first, first).rstrip(b"\0")
            if kept:
                return first + len(kept)
    return 0


def _extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are no holes."""
    end = 0
    try:
        while True:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            yield begin, end
    except OSError:
        return  # there is nothing more


def read_places(root: Path, path: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """What stands there now, (offset, size) each; less where the file ends, b"" if there is none.
    Raises OSError."""
    try:
        with _open(root, path, os.O_RDONLY) as descriptor:
            return [os.pread(descriptor, size, offset) for offset, size in places]
    except FileNotFoundError:
        return [b"" for _ in places]


def flip_bits(root: Path, path: str, places: Sequence[Place]) -> list[tuple[int, int]]:
    """Flip those bits of those bytes; (before, after) of each. Raises OSError."""
    changed = []
    with _open(root, path, os.O_RDWR) as descriptor:
        for offset, bits in places:
            old = os.pread(descriptor, 1, offset)
            if not old:
                raise OSError(f"{path} has become shorter than {offset + 1} bytes")
            os.pwrite(descriptor, bytes([old[0] ^ bits]), offset)
            changed.append((old[0], old[0] ^ bits))
    return changed


def leave_file(root: Path, path: str, data: bytes) -> None:
    """Make a file there, and sync nothing. Raises OSError."""
    (root / path).write_bytes(data)


def cut_file(root: Path, path: str, size: int) -> None:
    """What lies behind so many bytes is gone. Raises OSError."""
    with _open(root, path, os.O_RDWR) as descriptor:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, size)
