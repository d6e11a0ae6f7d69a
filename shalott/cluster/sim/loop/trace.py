"""Trace: what the simulated world saw in a run, as a digest that two runs can compare.

The digest covers events of the world: every segment that arrives (when, from which end of which
connection to which, its kind and a checksum of its bytes), every disk call when it takes effect
(with what was written, read or raised), every handshake, the starts and ends of processes, the
faults, the events that nodes emit, and every operation of a client with its answer. It does not
cover the callbacks of the loop: how many of them asyncio needs for the same run differs from one
version of Python to the next.

Events are hashed in chunks; the digest of each chunk is a checkpoint. Two traces that differ differ
first in one chunk; a third and a fourth run that label just this chunk then name the first event
that differs (``first_difference``).
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from zlib import crc32

# What a digest is made of. Version 1 (without a number in old records) covered the number and the
# time of each callback of the loop, and the bytes of the segments.
DIGEST_VERSION = 2
CHUNK_WORDS = 8192
DIGEST_BYTES = 16
SHOWN_BYTES = 240  # of an event's content, in its label

Way = tuple[int, str]  # of a segment: its word in the trace and its text (``way_of``)


class Trace:
    """One run's. ``label_chunk``: the chunk whose events are also kept as text."""

    def __init__(self, *, label_chunk: int | None = None) -> None:
        self.words: list[int] = []  # of the chunk under way
        self.checkpoints: list[bytes] = []
        self.labels: list[str] = []
        self._label_chunk = label_chunk
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._labelling = label_chunk == 0

    def segment(self, now_ns: int, way: Way, payload: bytes) -> None:
        """A segment with bytes reaches its destination."""
        checksum = crc32(payload)
        self.words += (now_ns, way[0], checksum << 32 | len(payload))
        if self._labelling:
            self._label(now_ns, f"{way[1]} segment", payload, checksum)

    def event(self, now_ns: int, what: str, content: bytes = b"") -> None:
        """Anything else. ``what`` names the event, ``content`` is what it says."""
        checksum = crc32(content)
        self.words += (now_ns, crc32(what.encode()), checksum << 32 | len(content))
        if self._labelling:
            self._label(now_ns, what, content, checksum)

    def _label(self, now_ns: int, what: str, content: bytes, checksum: int) -> None:
        shown = content[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
        said = f" of {len(content)} B {checksum:08x} {shown!r}" if content else ""
        self.labels.append(f"t={now_ns / 1e9:.9f}s {what}{said}")

    def digest(self) -> str:
        """Of all so far, as hexadecimal digits."""
        if self.words:
            self.end_chunk()
        return self._hash.hexdigest()

    def end_chunk(self) -> None:
        """Called when time moves and there are CHUNK_WORDS, so chunks end between instants."""
        self._hash.update(array("Q", self.words).tobytes())
        self.words.clear()
        self.checkpoints.append(self._hash.digest())
        self._labelling = self._label_chunk == len(self.checkpoints)


def way_of(source: str, destination: str) -> Way:
    """From one end of a connection to the other."""
    way = f"{source} -> {destination}"
    return crc32(way.encode()), way


def describe_callback(callback: object) -> str:
    """Names only, no addresses: the task and where it stands, or the function."""
    owner = getattr(callback, "__self__", None)
    coroutine = getattr(owner, "get_coro", None)
    if owner is not None and coroutine is not None:
        return f"task {owner.get_name()} in {getattr(coroutine(), '__qualname__', '?')}"
    function = getattr(callback, "func", callback)
    return str(getattr(function, "__qualname__", type(function).__name__))


def differing_chunk(first: Sequence[bytes | str], second: Sequence[bytes | str]) -> int | None:
    """The number of the first chunk in which two runs' checkpoints differ; None if they are equal.

    Kept records may have no checkpoints; nothing can be said of them.
    """
    pairs = enumerate(zip(first, second, strict=False))
    found = next((number for number, (one, other) in pairs if one != other), None)
    if found is None and first and second and len(first) != len(second):
        return min(len(first), len(second))
    return found


def first_difference(first: list[str], second: list[str]) -> str:
    """The first event in which two labelled runs of one chunk differ, as one sentence."""
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"event {number} of the chunk differs: {one} | {other}"
    if len(first) != len(second):
        longer = first if len(first) > len(second) else second
        return f"one run ends, the other goes on with: {longer[min(len(first), len(second))]}"
    return "the two labelled runs are alike: the difference did not come again"
