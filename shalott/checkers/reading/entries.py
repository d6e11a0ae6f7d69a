"""A history as a stream of entries, for what decides about more than the value of one operation.

The engine reads them (engine/entries.h) in batches, so that memory does not grow with the file.
What judges in C takes the batches; what judges in Python takes each ``Entry`` with its values:
None, bool, int, float, ``Keyword``, str, tuple (vectors and lists), frozenset, ``EdnMap``, and
what is rarer: ``Symbol``, Decimal, Fraction.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from shalott.checkers.engine import Budget, CData, ffi, lib, new_budget, owned
from shalott.checkers.reading.edn import (
    KEYED_COMMENT,
    EdnError,
    EdnMap,
    Keyword,
    Symbol,
    decode,
    encode,
    json_encode,
)
from shalott.checkers.reading.formats import LeftOut, Opened, TextOf, language, opener
from shalott.checkers.reading.history_files import (
    DIALECTS,
    JEPSEN,
    JSON,
    KEY_VALUE,
    dialect_of_file,
    file_of,
    unpacked,
)
from shalott.checkers.reading.text_history import complaint
from shalott.core.errors import UnreadableHistory

NEMESIS: Final = lib.SHL_NEMESIS  # the process of an entry that is the nemesis's
NO_PROCESS: Final = lib.SHL_NO_PROCESS  # of every entry, where the file names no processes
ABSENT: Final = lib.SHL_ABSENT
TYPES: Final = ("ok", "fail", "info", "invoke")

_PIECE_BYTES: Final = 1 << 20
_BOM: Final = b"\xef\xbb\xbf"
_NODE: Final = np.dtype(
    {"names": ["kind", "next", "number"], "formats": ["u1", "i4", "i8"], "offsets": [0, 4, 8]}
)
_NIL, _TRUE, _INTEGER, _KEYWORD, _TEXT, _OTHER, _LIST, _SET = (
    getattr(lib, f"SHL_NODE_{name}")
    for name in ("NIL", "TRUE", "INTEGER", "KEYWORD", "TEXT", "OTHER", "LIST", "SET")
)
_NO_VALUES: Final = EdnMap()


@dataclass(frozen=True, slots=True)
class Entry:
    """One map of a history. ``index`` and ``time_ns`` are -1 where it does not say them."""

    type: str  # one of TYPES
    process: int  # or NEMESIS, NO_PROCESS
    f: str  # "" where no entry of the file has one
    value: Hashable
    index: int
    time_ns: int
    error: Hashable
    line: int
    extra: EdnMap  # its other fields, by the text of their names; ``key`` among them


class Stream:
    """One reading of a source: its batches, and the texts of their ids for as long as it lives.

    Iterating raises UnreadableHistory where the file is malformed, MemoryError and TimeoutError
    where the budget ends.
    """

    def __init__(
        self,
        name: str,
        language_: int,
        opened: Callable[[], io.RawIOBase | io.BytesIO],
        budget: Budget,
    ) -> None:
        self.name = name
        self._opened = opened
        self._budget = budget  # the reader holds it
        reader = lib.shl_entries_new(language_, budget)
        if reader == ffi.NULL:
            raise MemoryError(f"no memory to read {name}")
        self.reader: CData = owned(reader, lib.shl_entries_free, budget)
        self._read = self._batches()

    def __iter__(self) -> Iterator[CData]:
        return self._read

    def text(self, number: int) -> str:
        """The text of an id. One below ABSENT is valid for the batch that it came with."""
        length = ffi.new("int64_t *")
        text = lib.shl_entries_text(self.reader, number, length)
        return bytes(ffi.buffer(text, length[0])).decode("utf-8", "backslashreplace")

    def id_of(self, text: str) -> int:
        """The id of a text, which need not have been met."""
        content = text.encode()
        return int(lib.shl_entries_id(self.reader, content, len(content)))

    @property
    def state(self) -> CData:
        """A ``shl_reading *``."""
        return lib.shl_entries_state(self.reader)

    def _batches(self) -> Iterator[CData]:
        buffer = bytearray(_PIECE_BYTES)
        begin = filled = 0
        is_first, is_last = True, False
        with self._opened() as file:
            while True:
                start = ffi.from_buffer(buffer)[begin:filled]
                used = lib.shl_entries_feed(self.reader, start, filled - begin, is_last)
                if used < 0:
                    self._raise()
                begin += used
                batch = lib.shl_entries_batch(self.reader)
                if batch.count:
                    yield batch
                if self.state.ended:
                    return
                if batch.count or is_last:
                    continue
                del start
                left = filled - begin
                if left == len(buffer):  # one entry fills it
                    buffer = buffer + bytearray(left)
                else:
                    buffer[:left] = buffer[begin:filled]
                begin, read = 0, self._read_into(file, memoryview(buffer)[left:])
                if is_first and buffer[:3] == _BOM:
                    buffer[:3] = b"   "
                filled, is_first, is_last = left + read, False, read == 0

    def _read_into(self, file: io.RawIOBase | io.BytesIO, piece: memoryview) -> int:
        try:
            return file.readinto(piece) or 0
        except OSError as error:
            raise UnreadableHistory(f"cannot read {self.name}: {error.strerror}") from error

    def _raise(self) -> None:
        if self.state.error != lib.SHL_READ_STOPPED:
            raise UnreadableHistory(f"{self.name}, {complaint(self.state, 'jepsen')}")
        if self._budget.stopped == lib.SHL_MEMORY:
            held = self._budget.bytes_peak
            raise MemoryError(f"no memory to read {self.name}: {held} bytes were held")
        raise TimeoutError(f"no time was left to read {self.name}")


class EntrySource:
    """Where entries come from: a file of any format, or text. It can be read any number of times.

    ``notes`` and ``cut`` are of the last reading: what was left out, and where the end is missing
    ("" if it isn't).
    """

    def __init__(self, name: str, dialect: str, opened: Opened, held: object = None) -> None:
        self.name = name
        self.dialect = dialect  # of history_files.DIALECTS
        self._opened = opened
        self._held = held  # what the file needs for as long as it is read
        self._left_out = LeftOut()
        self._stream: Stream | None = None

    @classmethod
    def of_path(cls, path: Path | str, dialect: str = "auto") -> Self:
        """A history as ``read_history`` takes it, a directory, a gzip file or a pipe too. Raises
        UnreadableHistory: there is no such file, or it is of no format that is known."""
        name = str(path)
        held = ExitStack()
        plain = held.enter_context(unpacked(file_of(Path(path))))
        weakref.finalize(held, held.pop_all().close)
        found = dialect_of_file(plain) if dialect == "auto" else dialect
        if found not in DIALECTS:
            raise UnreadableHistory(f"no dialect {found!r}: there are {', '.join(DIALECTS)}")
        return cls(name, found, opener(plain, found), held)

    @classmethod
    def of_text(cls, text: bytes, dialect: str = JEPSEN, name: str = "text") -> Self:
        """Text of EDN or, as ``dialect`` says, of JSON."""
        return cls(name, dialect, lambda _: io.BytesIO(text))

    def batches(self, budget: Budget | None = None) -> Stream:
        """The batches (``shl_batch *``), each valid until the next one. Keep the stream for as
        long as ids of its texts are of use."""
        self._left_out = LeftOut()
        self._stream = Stream(
            self.name,
            language(self.dialect),
            lambda: self._opened(self._left_out),
            budget or new_budget(),
        )
        return self._stream

    def entries(self, budget: Budget | None = None) -> Iterator[Entry]:
        stream = self.batches(budget)
        values = _Values(stream)
        for batch in stream:
            yield from values.entries(batch)

    def maps(self) -> Iterator[EdnMap]:
        """Each entry as its whole map, as EDN has it: JSON's names and types are keywords then."""
        if language(self.dialect) == lib.SHL_ENTRIES_JSON:
            with self.as_edn() as text:  # which is a reading of this source, too
                yield from EntrySource(self.name, JEPSEN, lambda _: text).maps()
            return
        stream = self.batches()
        values = _Values(stream)
        for batch in stream:
            yield from values.maps(batch)

    def printed(self, language_: int) -> Generator[bytes, None, None]:
        """The entries as text, SHL_ENTRIES_EDN or _JSON, one a line."""
        stream = self.batches()
        length = ffi.new("int64_t *")
        for _ in stream:
            text = lib.shl_entries_print(stream.reader, language_, length)
            if text == ffi.NULL:
                raise MemoryError(f"no memory to write {self.name}")
            yield bytes(ffi.buffer(text, length[0]))

    @property
    def is_keyed(self) -> bool:
        """Whether the text says of itself that its values are ``[key value]``."""
        if self.dialect not in (JEPSEN, KEY_VALUE):
            return False
        with self._opened(LeftOut()) as file:
            return file.read(len(KEYED_COMMENT)) == KEYED_COMMENT.encode()

    def as_edn(self) -> io.RawIOBase | io.BytesIO:
        """The entries as EDN, also those of JSON."""
        if language(self.dialect) == lib.SHL_ENTRIES_EDN:
            self._left_out = LeftOut()
            return self._opened(self._left_out)
        return TextOf(self.printed(lib.SHL_ENTRIES_EDN))

    def show(self, value: Hashable) -> str:
        """A value as the history would have it."""
        return json_encode(value) if self.dialect == JSON else encode(value)

    @property
    def count(self) -> int:
        """How many entries were read last, the nemesis's too."""
        return int(self._stream.state.entries) if self._stream else 0

    @property
    def cut(self) -> str:
        return self._known().cut

    @property
    def notes(self) -> tuple[str, ...]:
        return self._known().sentences()

    def _known(self) -> LeftOut:
        if not self._left_out.cut and self._stream and (torn := self._stream.state.torn):
            self._left_out.line_is_cut(torn)
        return self._left_out


class _Values:
    """Trees of nodes to Python values; each text is decoded once."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._keywords: dict[int, Hashable] = {}
        self._strings: dict[int, Hashable] = {}
        self._others: dict[int, Hashable] = {}
        self._kinds: list[int] = []
        self._nexts: list[int] = []
        self._numbers: list[int] = []
        self._line = 0
        self._own = {stream.id_of(name) for name in _OWN_FIELDS}

    def maps(self, batch: CData) -> Iterator[EdnMap]:
        self._load(batch)
        for number in range(batch.count):
            self._line = batch.entries[number].line
            found = self._value(batch.entries[number].root)
            assert isinstance(found, EdnMap), "the root of an entry is a map"
            yield found

    def _load(self, batch: CData) -> None:
        nodes = np.frombuffer(ffi.buffer(batch.nodes, batch.node_count * _NODE.itemsize), _NODE)
        self._kinds = nodes["kind"].tolist()
        self._nexts = nodes["next"].tolist()
        self._numbers = nodes["number"].tolist()

    def entries(self, batch: CData) -> Iterator[Entry]:
        self._load(batch)
        for each in [_unpacked(batch.entries[number]) for number in range(batch.count)]:
            type_, f, process, index, time, line, value, error, root = each
            self._line = line
            yield Entry(
                type=TYPES[type_],
                process=process,
                f="" if f == ABSENT else str(self._text(_TEXT, f)),
                value=None if value == ABSENT else self._value(value),
                index=index,
                time_ns=time,
                error=None if error == ABSENT else self._value(error),
                line=line,
                extra=self._extra(root),
            )

    def _extra(self, root: int) -> EdnMap:
        end, name = self._nexts[root], root + 1
        found = None
        while name < end:
            value = name + 1
            if self._numbers[name] not in self._own:
                if found is None:
                    found = EdnMap()
                found[str(self._text(_TEXT, self._numbers[name]))] = self._value(value)
            name = self._nexts[value]
        return _NO_VALUES if found is None else found

    def _value(self, node: int) -> Hashable:
        kind, number = self._kinds[node], self._numbers[node]
        if kind == _INTEGER:
            return number
        if kind < _INTEGER:
            return None if kind == _NIL else kind == _TRUE
        if kind < _LIST:
            return self._text(kind, number)
        children = []
        at = node + 1
        for _ in range(number):
            children.append(self._value(at))
            at = self._nexts[at]
        if kind == _LIST:
            return tuple(children)
        found: Hashable
        if kind == _SET:
            found, wanted = frozenset(children), number
        else:
            found, wanted = EdnMap(zip(children[::2], children[1::2], strict=True)), number // 2
        if len(found) != wanted:
            raise UnreadableHistory(
                f"{self._stream.name}, line {self._line}: a map or a set says one key twice"
            )
        return found

    def _text(self, kind: int, number: int) -> Hashable:
        known = (self._keywords, self._strings, self._others)[kind - _KEYWORD]
        value = known.get(number)
        if value is None:
            text = self._stream.text(number)
            if kind == _OTHER:
                value = self._other(text)
            else:
                value = Keyword(text) if kind == _KEYWORD else text
            if number >= 0:
                known[number] = value
        return value

    def _other(self, text: str) -> Hashable:
        try:
            value = decode(text)
        except EdnError as error:
            raise UnreadableHistory(f"{self._stream.name}, line {self._line}: {error}") from error
        return Symbol(text) if isinstance(value, str) or text[0] == "#" != text[1:2] else value


_OWN_FIELDS: Final = ("type", "f", "process", "value", "time", "index", "error")


def _unpacked(entry: CData) -> tuple[int, int, int, int, int, int, int, int, int]:
    return (
        entry.type,
        entry.f,
        entry.process,
        entry.index,
        entry.time,
        entry.line,
        entry.value,
        entry.error,
        entry.root,
    )
