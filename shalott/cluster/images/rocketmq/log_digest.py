"""Says what this node's files hold: log_digest.py STORE [--end=END] log|queues [FROM [TO [BLOCK]]].

Run in the node, for its harness, when no client writes. One line of JSON, in the shape of our own
brokers' answers (broker/rocket/node/log_digest.py): ``log`` digests the commit log from FROM to TO
block by block, ``queues`` what the consume queues say of messages at or after FROM. The files are
RocketMQ's own: a commit log of files named by the offset of their first byte, or, with DLedger,
entries of a header of 48 bytes and the message; a consume queue of units offset 8 | size 4 | tags
8.

The log ends where the last whole message does: files are made in full length ahead. It ends sooner
if its broker says so (END): who cut its log leaves the bytes behind the cut in the file. With
DLedger offsets are those of entries, here and in what brokers say. A consume queue ends before the
first unit that is none of the message it points to: those were cut away with the log, and stay.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path

MAGIC, MAGIC_V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
ENTRY_BYTES, ENTRY_MAGICS, ENTRY_BLANK = 48, (1, 2), 0xFFFFFFFF
UNIT = struct.Struct(">qiq")
HEAD = struct.Struct(">12xi4xq")  # of a message: queue, place in it
FILLER = 0x7FFFFFFF  # the size of a unit that stands for none
BLOCK_BYTES, BLOCKS_MAX = 1 << 16, 256


class Log:
    """The files of a log, one after the other. ``framed``: each message is the body of an entry of
    DLedger's. ``limit``: where it ends at the latest."""

    def __init__(self, directory: Path, *, framed: bool, limit: int | None = None) -> None:
        self.files = [
            (int(path.name), path.stat().st_size, path) for path in sorted(directory.glob("[0-9]*"))
        ]
        self.start = self.files[0][0] if self.files else 0
        self.end = self._walk(framed)
        if limit is not None:
            self.end = min(self.end, limit)

    def read(self, offset: int, count: int) -> bytes:
        """Fewer bytes at the end of the last file."""
        data = b""
        while count > 0:
            found = [one for one in self.files if one[0] <= offset < one[0] + one[1]]
            if not found:
                break
            first, size, path = found[0]
            with path.open("rb") as file:
                file.seek(offset - first)
                piece = file.read(min(count, first + size - offset))
            if not piece:
                break
            data, offset, count = data + piece, offset + len(piece), count - len(piece)
        return data

    def _walk(self, framed: bool) -> int:
        """Where the last whole message ends."""
        at = self.start
        while len(head := self.read(at, 8)) == 8:
            first, second = struct.unpack(">II", head)
            size, magic = (second, first) if framed else (first, second)
            is_whole = magic in (ENTRY_MAGICS if framed else (MAGIC, MAGIC_V2))
            if is_whole and size > (ENTRY_BYTES if framed else 0):
                at += size
            elif magic == (ENTRY_BLANK if framed else BLANK):
                # The file had no room for the next one.
                following = next((first for first, _, _ in self.files if first > at), None)
                if following is None:
                    return self.files[-1][0] + self.files[-1][1]
                at = following
            else:
                break
        return at


def digests(log: Log, start: int, end: int, block: int) -> tuple[list[str], int]:
    """A digest for each block of [start, end), and where the next answer goes on."""
    found: list[str] = []
    while start < end and len(found) < BLOCKS_MAX:
        border = min(end, start - start % block + block)
        contents = hashlib.blake2b(log.read(start, border - start), digest_size=8)
        found.append(contents.hexdigest())
        start = border
    return found, start


def is_of(message: bytes, queue: int, place: int) -> bool:
    """Whether the message says that it lies there."""
    return len(message) >= HEAD.size and HEAD.unpack_from(message) == (queue, place)


def queues(directory: Path, log: Log, start: int) -> tuple[int, str]:
    """How many messages the consume queues have at or after ``start``, and a digest of them."""
    contents, count = hashlib.blake2b(digest_size=8), 0
    for path in sorted(directory.glob("*/[0-9]*")):
        named = False
        for file in sorted(path.glob("[0-9]*")):
            place = int(file.name) // UNIT.size
            data = file.read_bytes()
            for offset, size, tags in UNIT.iter_unpack(data[: len(data) // UNIT.size * UNIT.size]):
                if size <= 0:
                    break  # not written yet
                if size == FILLER:
                    place += 1
                    continue
                message = log.read(offset, size) if offset + size <= log.end else b""
                if not is_of(message, int(path.name), place):
                    break
                if offset >= start:
                    if not named:
                        contents.update(f"{path.parent.name}/{path.name} {place}".encode())
                        named = True
                    contents.update(UNIT.pack(offset, size, tags))
                    contents.update(message)
                    count += 1
                place += 1
    return count, contents.hexdigest()


def open_log(store: Path, limit: int | None) -> Log:
    framed = sorted(store.glob("dledger-*/data"))
    if framed:
        return Log(framed[0], framed=True, limit=limit)
    return Log(store / "commitlog", framed=False, limit=limit)


def answer(store: Path, *words: str) -> object:
    limit = None
    if words[0].startswith("--end="):
        limit, words = int(words[0].partition("=")[2]), words[1:]
    return _answer(store, limit, *words)


def _answer(
    store: Path, limit: int | None, what: str, start: str = "0", end: str = "", block: str = ""
) -> object:
    log = open_log(store, limit)
    first = max(log.start, int(start))
    if what == "queues":
        count, digest = queues(store / "consumequeue", log, first)
        return {"count": count, "digest": digest}
    last = min(log.end, int(end)) if end else log.end
    found, following = digests(log, first, last, int(block) if block else BLOCK_BYTES)
    ends = {"min_offset": log.start, "readable_offset": log.end, "max_offset": log.end}
    return {**ends, "from": first, "digests": found, "next": following}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
