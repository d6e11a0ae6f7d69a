"""Jepsen's own file of a test, ``test.jepsen`` (jepsen.store.format): blocks, each with a checksum.

"JEPSEN", a version, and the place of the index; then blocks: a length, a CRC-32 (of the data, then
of the header without the checksum), a type, and data. The index says where each block is and which
one is the test: a map, in which the history and the results are references to other blocks. A
history is a vector of chunks, so that it is read chunk by chunk.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, TypeVar

from shalott.checkers.history.column_values import Keyword
from shalott.checkers.reading.edn import EdnMap, encode
from shalott.checkers.reading.fressian import BlockRef, FressianError, PrintedValues, Reader, Writer
from shalott.core.errors import UnreadableHistory

MAGIC: Final = b"JEPSEN"
_VERSIONS: Final = (0, 1)
_HEAD: Final = struct.Struct(">6siq")
_BLOCK: Final = struct.Struct(">qIh")
_BLOCK_BYTES: Final = 28  # of a header: the rest of it is zeros
_INDEX, _FRESSIAN, _PARTIAL_MAP, _STREAM, _BIG_VECTOR = 1, 2, 3, 4, 5
_INDEX_PAIR: Final = struct.Struct(">iq")
_CHUNK: Final = struct.Struct(">qi")
_ID: Final = struct.Struct(">i")
_COUNT: Final = struct.Struct(">q")
_OPS_IN_CHUNK: Final = 16_384
_LARGEST_NESTING: Final = 100


_T = TypeVar("_T")
# What becomes of a block's type and data: items, and of how many operations each is.
Leaf = Callable[[int, memoryview], Iterator[tuple[_T, int]]]


class JepsenFile:
    """A file as it lies on the disk. Everything raises UnreadableHistory where it is damaged."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        try:
            with Path(path).open("rb") as file:
                self._data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
        except (OSError, ValueError) as error:
            raise UnreadableHistory(f"cannot read {path}: {error}") from error
        self._root, self._places = self._index()

    def test(self) -> EdnMap:
        """The test's map, without its history and its results."""
        found = self._map(self._root)
        return EdnMap({name: each for name, each in found.items() if not _is_reference(each)})

    def results(self) -> EdnMap | None:
        """What its checkers said; None: it did not come so far."""
        reference = self._map(self._root).get("results")
        return self._map(reference.id) if isinstance(reference, BlockRef) else None

    def operations(self) -> Iterator[Hashable]:
        """The history."""
        return (each for each, _ in self._history(self._values))

    def edn(self) -> Iterator[bytes]:
        """The history as EDN, an operation a line."""
        return (text for text, _ in self._history(self._printed))

    def _history(self, leaf: Leaf[_T]) -> Iterator[tuple[_T, int]]:
        reference = self._map(self._root).get("history")
        if isinstance(reference, BlockRef):
            yield from self._items(reference.id, 0, leaf)

    def _wrong(self, what: str) -> UnreadableHistory:
        return UnreadableHistory(f"{self._path}: {what}")

    def _index(self) -> tuple[int, dict[int, int]]:
        if len(self._data) < _HEAD.size:
            raise self._wrong("the file ends within its head")
        magic, version, place = _HEAD.unpack_from(self._data)
        if magic != MAGIC:
            raise self._wrong("it does not begin with JEPSEN")
        if version not in _VERSIONS:
            raise self._wrong(f"version {version} of Jepsen's format is not known")
        if place == 0:
            raise self._wrong("it has no index: the test ended before anything was saved")
        data = self._block(place, (_INDEX,))[1]
        if (len(data) - _ID.size) % _INDEX_PAIR.size:
            raise self._wrong("its index has a part of an entry")
        return _ID.unpack_from(data)[0], dict(_INDEX_PAIR.iter_unpack(data[_ID.size :]))

    def _block(self, place: int, kinds: tuple[int, ...]) -> tuple[int, memoryview]:
        """The type and the data of the block at a place, its checksum checked."""
        if not 0 < place <= len(self._data) - _BLOCK_BYTES:
            raise self._wrong(f"the file has no byte {place}, where a block is to begin: it is cut")
        length, told, kind = _BLOCK.unpack_from(self._data, place)
        if not _BLOCK_BYTES <= length <= len(self._data) - place:
            raise self._wrong(f"the block at byte {place} goes on behind the end of the file")
        data = self._data[place + _BLOCK_BYTES : place + length]
        head = _BLOCK.pack(length, 0, kind).ljust(_BLOCK_BYTES, b"\0")
        if zlib.crc32(head, zlib.crc32(data)) != told:
            raise self._wrong(f"the block at byte {place} is damaged: its checksum differs")
        if kind not in kinds:
            raise self._wrong(f"the block at byte {place} is of type {kind}, not {kinds[0]}")
        return kind, data

    def _block_of(self, number: int, kinds: tuple[int, ...]) -> tuple[int, memoryview]:
        if number not in self._places:
            raise self._wrong(f"its index does not say where block {number} is")
        return self._block(self._places[number], kinds)

    def _map(self, number: int) -> EdnMap:
        found = EdnMap()
        seen = set()
        while number:
            if number in seen:
                raise self._wrong(f"block {number} is a part of itself")
            seen.add(number)
            kind, data = self._block_of(number, (_FRESSIAN, _PARTIAL_MAP))
            number = 0
            if kind == _PARTIAL_MAP:
                number = _ID.unpack_from(data)[0]
                data = data[_ID.size :]
            value = self._decoded(Reader(data), number)
            if not isinstance(value, EdnMap):
                raise self._wrong("a map is missing")
            found.update(value)
        return found

    def _decoded(self, reader: Reader, number: int) -> Hashable:
        try:
            return reader.value()
        except FressianError as error:
            raise self._wrong(f"block {number} is no Fressian, {error}") from error

    def _items(self, number: int, depth: int, leaf: Leaf[_T]) -> Iterator[tuple[_T, int]]:
        kind, data = self._block_of(number, (_STREAM, _FRESSIAN, _BIG_VECTOR))
        if kind == _BIG_VECTOR:
            yield from self._chunks(data, depth, leaf)
            return
        try:
            yield from leaf(kind, data)
        except FressianError as error:
            raise self._wrong(f"block {number} is no Fressian, {error}") from error

    def _chunks(self, data: memoryview, depth: int, leaf: Leaf[_T]) -> Iterator[tuple[_T, int]]:
        if len(data) < _COUNT.size or (len(data) - _COUNT.size) % _CHUNK.size:
            raise self._wrong("a vector of chunks ends within one")
        if depth > _LARGEST_NESTING:
            raise self._wrong("a vector of chunks is a part of itself")
        count = _COUNT.unpack_from(data)[0]
        found = 0
        for begin, number in _CHUNK.iter_unpack(data[_COUNT.size :]):
            if begin != found:
                raise self._wrong(f"chunk {number} begins with item {begin}, not {found}")
            for each, size in self._items(number, depth + 1, leaf):
                found += size
                yield each, size
        if found != count:
            raise self._wrong(f"the history has {found} operations, but says {count}")

    def _values(self, kind: int, data: memoryview) -> Iterator[tuple[Hashable, int]]:
        reader = Reader(data)
        if kind == _FRESSIAN:
            yield from ((each, 1) for each in reader.items())
            return
        while not reader.is_at_end:
            yield reader.value(), 1

    def _printed(self, kind: int, data: memoryview) -> Iterator[tuple[bytes, int]]:
        """The engine prints the common kinds of values, in a hundredth of the time; from the first
        one on that is rare or damaged, they are read here."""
        done = 0
        if kind == _STREAM:
            printed = PrintedValues(data)
            for text, size in printed:
                done += size
                yield text, size
            if printed.is_all:
                return
        for number, (each, _) in enumerate(self._values(kind, data)):
            if number >= done:
                yield f"{encode(each)}\n".encode("utf-8", "surrogatepass"), 1


def _is_reference(value: Hashable) -> bool:
    return isinstance(value, BlockRef)


# --- writing --------------------------------------------------------------------------------------


def write_jepsen_file(
    path: Path, test: EdnMap, operations: Iterable[EdnMap], results: EdnMap | None = None
) -> None:
    """A file that Jepsen reads: the test's map, the history in chunks, the results."""
    with path.open("wb") as file:
        file.write(_HEAD.pack(MAGIC, _VERSIONS[-1], 0))
        places: dict[int, int] = {}

        def add(kind: int, data: bytes) -> int:
            number = len(places) + 1
            places[number] = file.tell()
            file.write(_packed(kind, data))
            return number

        chunks = []
        count = 0
        for chunk, size in _written_chunks(operations):
            chunks.append(_CHUNK.pack(count, add(_STREAM, chunk)))
            count += size
        history = add(_BIG_VECTOR, _COUNT.pack(count) + b"".join(chunks))
        more = EdnMap({Keyword("history"): BlockRef(history)})
        if results is not None:
            rest = EdnMap({name: each for name, each in results.items() if name != "valid?"})
            valid = EdnMap({Keyword("valid?"): results.get("valid?")})
            behind = add(_PARTIAL_MAP, _ID.pack(0) + _fressian(rest))
            more[Keyword("results")] = BlockRef(
                add(_PARTIAL_MAP, _ID.pack(behind) + _fressian(valid))
            )
        root = add(_FRESSIAN, _fressian(EdnMap({**test, **more})))
        index = file.tell()
        pairs = b"".join(_INDEX_PAIR.pack(*pair) for pair in places.items())
        own = _INDEX_PAIR.pack(len(places) + 1, index)
        file.write(_packed(_INDEX, _ID.pack(root) + pairs + own))
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, _VERSIONS[-1], index))


def _written_chunks(operations: Iterable[EdnMap]) -> Iterator[tuple[bytes, int]]:
    writer, size = Writer(), 0
    for place, each in enumerate(operations):
        writer.operation(each, place)
        size += 1
        if size == _OPS_IN_CHUNK:
            yield bytes(writer.data), size
            writer, size = Writer(), 0
    if size:
        yield bytes(writer.data), size


def _fressian(value: Hashable) -> bytes:
    writer = Writer()
    writer.value(value)
    return bytes(writer.data)


def _packed(kind: int, data: bytes) -> bytes:
    length = len(data) + _BLOCK_BYTES
    head = _BLOCK.pack(length, 0, kind).ljust(_BLOCK_BYTES, b"\0")
    told = zlib.crc32(head, zlib.crc32(data))
    return _BLOCK.pack(length, told, kind).ljust(_BLOCK_BYTES, b"\0") + data
