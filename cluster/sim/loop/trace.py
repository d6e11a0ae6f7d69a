"""Trace: what happened in a simulation, as a digest that two runs can compare.

Every callback contributes the time and its number, every delivered segment the time, the length and
a checksum of its bytes: content, not only order, or a set of strings that is iterated in another
order would go unnoticed until it changes timing. Words are hashed in chunks; the digest of each
chunk is a checkpoint. Two traces that differ differ first in one chunk; a third and a fourth run
that label just this chunk then name the first event that differs (``first_difference``).
"""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.loop import SimHandle

CHUNK_WORDS = 8192
DIGEST_BYTES = 16


class Trace:
    """One run's. ``label_chunk``: the chunk whose events are also kept as text."""

    def __init__(self, *, label_chunk: int | None = None) -> None:
        self.words: list[int] = []  # of the chunk under way; the loop appends to it directly
        self.checkpoints: list[bytes] = []
        self.labels: list[str] = []
        self._label_chunk = label_chunk
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.labelling = label_chunk == 0

    def segment(self, now_ns: int, payload: bytes) -> None:
        """A segment's bytes reach their destination."""
        word = (zlib.crc32(payload) << 32) | (len(payload) & 0xFFFFFFFF)
        self.words.append(word)
        if self.labelling:
            self.labels.append(f"t={now_ns / 1e9:.9f}s segment {len(payload)} B {word >> 32:08x}")

    def label(self, now_ns: int, handle: SimHandle) -> None:
        """What the callback that is about to run is."""
        self.labels.append(
            f"t={now_ns / 1e9:.9f}s callback {handle.seq} of {handle.process}:"
            f" {describe_callback(handle._callback)}"
        )

    def digest(self) -> str:
        """Of all so far, as hexadecimal digits."""
        if self.words:
            self.end_chunk()
        return self._hash.hexdigest()

    def end_chunk(self) -> None:
        """Called when time moves and there are CHUNK_WORDS, so chunks end between instants."""
        self._hash.update(array("Q", self.words).tobytes())
        self.words.clear()  # in place: the loop holds the list
        self.checkpoints.append(self._hash.digest())
        self.labelling = self._label_chunk == len(self.checkpoints)


def describe_callback(callback: Any) -> str:
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
    return "the two labelled runs are alike: only the bytes' or the numbers' values differ"
