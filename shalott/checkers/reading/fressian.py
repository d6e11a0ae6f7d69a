"""Fressian (https://github.com/Datomic/fressian), as Jepsen writes it, to EDN's values and back.

The tags are those of Fressian, of Clojure's data.fressian, and of jepsen.store.fressian. Vectors,
lists and pairs are tuples; records are their maps; what a tag adds to a value that EDN has not
(an atom, an exception) is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from shalott.checkers.engine import ffi, lib, new_budget
from shalott.checkers.history.column_values import Keyword, Symbol
from shalott.checkers.reading.edn import EdnMap

OP_TAG: Final = "jepsen.history.Op"
OP_FIELDS: Final = ("index", "time", "type", "process", "f", "value")
_BLOCK_REF: Final = "block-ref"
_SET_TAG: Final = "persistent-hash-set"
_DEEPEST: Final = 200

_PUT_CACHED, _GET_CACHED, _FOOTER = 0xCD, 0xCC, 0xCF
_BYTES_CHUNK, _BYTES, _STRING_CHUNK, _STRING = 0xD8, 0xD9, 0xE2, 0xE3
_LIST, _CLOSED_LIST, _OPEN_LIST = 0xEC, 0xED, 0xEE
_STRUCT_TYPE, _STRUCT, _TRUE, _FALSE, _NULL = 0xEF, 0xF0, 0xF5, 0xF6, 0xF7
_INT, _FLOAT, _DOUBLE, _DOUBLE_0, _DOUBLE_1 = 0xF8, 0xF9, 0xFA, 0xFB, 0xFC
_END, _RESET, _MINUS_ONE = 0xFD, 0xFE, 0xFF
_CACHED_0, _CACHED_STRUCT_0, _BYTES_0, _STRING_0, _LIST_0 = 0x80, 0xA0, 0xD0, 0xDA, 0xE4
_MAP, _KEY = 0xC0, 0xCA
_TAGS: Final = {
    0xB0: ("long[]", 2), 0xB1: ("double[]", 2), 0xB2: ("boolean[]", 2), 0xB3: ("int[]", 2),
    0xB4: ("float[]", 2), 0xB5: ("Object[]", 2), _MAP: ("map", 1), 0xC1: ("set", 1),
    0xC3: ("uuid", 1), 0xC4: ("regex", 1), 0xC5: ("uri", 1), 0xC6: ("bigint", 1),
    0xC7: ("bigdec", 2), 0xC8: ("inst", 1), 0xC9: ("sym", 2), _KEY: ("key", 2),
}  # fmt: skip
# (first code, the code of 0, how many bytes follow)
_PACKED: Final = ((0x40, 0x50, 1), (0x60, 0x68, 2), (0x70, 0x72, 3), (0x74, 0x76, 4),
                  (0x78, 0x7A, 5), (0x7C, 0x7E, 6))  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class FressianError(ValueError):
    """Bytes are no Fressian: says what, and at which byte."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where the value is that stands here: in a block of its own."""

    id: int


class Reader:
    """Values, one behind the other, out of bytes."""

    def __init__(self, data: memoryview | bytes) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._depth = 0
        self._cached: list[Hashable] = []
        self._structs: list[tuple[str, int]] = []

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def items(self) -> Iterator[Hashable]:
        """The items of the list that comes next, without keeping them; of nil there are none."""
        code = self._code()
        if code == _NULL:
            return
        if _LIST_0 <= code <= _LIST:
            for _ in range(self._count() if code == _LIST else code - _LIST_0):
                yield self.value()
        elif code in (_CLOSED_LIST, _OPEN_LIST):
            while not self._is_list_over(code):
                yield self.value()
        else:
            raise self._wrong("no list stands here")

    def items_at(self, name: str) -> Iterator[Hashable]:
        """The items of the list that a map has under a name; none if it has no such name."""
        for key in self._keys():
            if key == name:
                yield from self.items()
                return
            self.value()

    def map_without(self, name: str) -> EdnMap:
        """A map but for the list that it has under a name, which is not kept."""
        found = EdnMap()
        for key in self._keys():
            if key == name:
                for _ in self.items():
                    pass
            else:
                found[key] = self.value()
        return found

    def _keys(self) -> Iterator[Hashable]:
        """The keys of a map; who asks for the next one has taken the value of the one before."""
        if self._code() != _MAP:
            raise self._wrong("no map stands here")
        code = self._code()
        if not _LIST_0 <= code <= _OPEN_LIST:
            raise self._wrong("a map without its list")
        is_counted = code <= _LIST
        left = (self._count() if code == _LIST else code - _LIST_0) if is_counted else 0
        while left > 0 if is_counted else not self._is_list_over(code):
            left -= 2
            yield self.value()

    def value(self) -> Hashable:
        """The next value."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} values within each other")
        try:
            return self._value(self._code())
        finally:
            self._depth -= 1

    def _wrong(self, what: str) -> FressianError:
        return FressianError(f"byte {self._at}: {what}")

    def _take(self, length: int) -> memoryview:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise self._wrong("the data ends within a value")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _code(self) -> int:
        return self._take(1)[0]

    def _integer(self) -> int:
        value = self.value()
        if type(value) is not int:
            raise self._wrong("a number is missing")
        return value

    def _count(self) -> int:
        count = self._integer()
        if not 0 <= count <= len(self._data):
            raise self._wrong(f"{count} is no length")
        return count

    def _value(self, code: int) -> Hashable:
        if code < 0x40:
            return code
        if code < 0x80:
            first, zero, length = next(each for each in reversed(_PACKED) if code >= each[0])
            return (code - zero) << 8 * length | int.from_bytes(self._take(length), "big")
        if _CACHED_0 <= code < _CACHED_0 + 32:
            return self._from_cache(code - _CACHED_0)
        if _CACHED_STRUCT_0 <= code < _CACHED_STRUCT_0 + 16:
            return self._struct(*self._known_struct(code - _CACHED_STRUCT_0))
        if code in _TAGS:
            return self._struct(*_TAGS[code])
        if _BYTES_0 <= code <= _BYTES:
            return self._bytes(code).decode("latin-1")
        if _STRING_0 <= code <= _STRING:
            return self._string(code)
        if _LIST_0 <= code <= _OPEN_LIST:
            return self._list(code)
        return self._rare(code)

    def _rare(self, code: int) -> Hashable:
        if code == _MINUS_ONE:
            return -1
        if code in (_TRUE, _FALSE, _NULL):
            return None if code == _NULL else code == _TRUE
        if code == _INT:
            return int.from_bytes(self._take(8), "big", signed=True)
        if code in (_DOUBLE, _FLOAT):
            number: float = struct.unpack(">d" if code == _DOUBLE else ">f",
                                          self._take(8 if code == _DOUBLE else 4))[0]  # fmt: skip
            return number
        if code in (_DOUBLE_0, _DOUBLE_1):
            return float(code == _DOUBLE_1)
        if code == _PUT_CACHED:
            place = len(self._cached)
            self._cached.append(None)
            self._cached[place] = self.value()
            return self._cached[place]
        if code == _GET_CACHED:
            return self._from_cache(self._integer())
        if code == _STRUCT_TYPE:
            tag = self.value()
            self._structs.append((str(tag), self._count()))
            return self._struct(*self._structs[-1])
        if code == _STRUCT:
            return self._struct(*self._known_struct(self._integer()))
        if code in (_RESET, _FOOTER):
            if code == _FOOTER and bytes(self._take(11)[:3]) != b"\xcf\xcf\xcf":
                raise self._wrong("a footer is damaged")
            self._cached, self._structs = [], []
            return self.value()
        raise self._wrong(f"no value begins with {code:#x}")

    def _from_cache(self, number: int) -> Hashable:
        if not 0 <= number < len(self._cached):
            raise self._wrong(f"value {number} was not said before")
        return self._cached[number]

    def _known_struct(self, number: int) -> tuple[str, int]:
        if not 0 <= number < len(self._structs):
            raise self._wrong(f"struct {number} was not said before")
        return self._structs[number]

    def _bytes(self, code: int) -> bytes:
        if code < _BYTES_CHUNK:
            return bytes(self._take(code - _BYTES_0))
        whole = b""
        while code == _BYTES_CHUNK:
            whole += self._take(self._count())
            code = self._code()
        if code != _BYTES:
            raise self._wrong("bytes have no end")
        return whole + self._take(self._count())

    def _string(self, code: int) -> str:
        whole = b""
        while code == _STRING_CHUNK:
            whole += self._take(self._count())
            code = self._code()
        if not (_STRING_0 <= code <= _STRING):
            raise self._wrong("a string has no end")
        length = self._count() if code == _STRING else code - _STRING_0
        whole += self._take(length)
        try:
            return _decoded(whole)
        except UnicodeError as error:
            raise self._wrong("a string is not UTF-8") from error

    def _is_list_over(self, code: int) -> bool:
        if self.is_at_end and code == _OPEN_LIST:
            return True
        if self._data[self._at : self._at + 1] != bytes([_END]):
            return False
        self._at += 1
        return True

    def _list(self, code: int) -> tuple[Hashable, ...]:
        if code in (_CLOSED_LIST, _OPEN_LIST):
            found = []
            while not self._is_list_over(code):
                found.append(self.value())
            return tuple(found)
        count = self._count() if code == _LIST else code - _LIST_0
        return tuple([self.value() for _ in range(count)])

    def _struct(self, tag: str, fields: int) -> Hashable:
        if tag == OP_TAG and fields == len(OP_FIELDS) + 1:
            return self._operation()
        if tag.endswith("[]"):
            return tuple([self.value() for _ in range(self._count())])
        found = tuple([self.value() for _ in range(fields)])
        made = _MADE.get(tag)
        if made is None or made[0] != fields:
            return found[0] if fields == 1 else found
        try:
            return made[1](found)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._wrong(f"this is no {tag}") from error

    def _operation(self) -> EdnMap:
        found = EdnMap()
        for name in OP_FIELDS:
            found[Keyword(name)] = self.value()
        if found["time"] == -1:
            del found[Keyword("time")]
        more = self.value()
        if isinstance(more, EdnMap):
            found.update(more)
        return found


def _decoded(content: bytes) -> str:
    """Java's writer makes two units of what is beyond 16 bits, and three bytes of each."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        units = content.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
        return units.decode("utf-16")


class PrintedValues:
    """Values as EDN, by the engine: pieces of text with how many values each has, up to the first
    one that is left to a Reader. ``is_all``: there was none."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.is_all = False

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        budget = new_budget()  # the engine's reader holds both
        content = ffi.from_buffer(self._data)
        reader = lib.shl_fressian_new(content, len(self._data), budget)
        length, count = ffi.new("int64_t *"), ffi.new("int64_t *")
        try:
            while True:
                text = lib.shl_fressian_print(reader, length, count) if reader else ffi.NULL
                if text == ffi.NULL:
                    raise MemoryError("no memory to read Fressian")
                if not count[0]:
                    break
                yield bytes(ffi.buffer(text, length[0])), count[0]
            self.is_all = bool(lib.shl_fressian_ended(reader))
        finally:
            lib.shl_fressian_free(reader)


Parts = tuple[Hashable, ...]


def _named(parts: Parts) -> str:
    namespace, name = parts
    return f"{namespace}/{name}" if namespace else str(name)


def _listed(parts: Parts) -> tuple[Hashable, ...]:
    if parts[0] is None:
        return ()
    if not isinstance(parts[0], tuple):
        raise TypeError
    return parts[0]


def _map(parts: Parts) -> EdnMap:
    flat = _listed(parts)
    return EdnMap(zip(flat[::2], flat[1::2], strict=True))


def _set(parts: Parts) -> frozenset[Hashable]:
    return frozenset(_listed(parts))


def _raw(value: Hashable) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return value.encode("latin-1")


def _uuid(parts: Parts) -> Symbol:
    text = _raw(parts[0]).hex()
    bounds = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    return Symbol(f'#uuid "{"-".join(text[a:b] for a, b in bounds)}"')


def _whole(value: Hashable) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _big(value: Hashable) -> int:
    return int.from_bytes(_raw(value), "big", signed=True)


def _decimal(unscaled: int, scale: int) -> Decimal:
    """Without arithmetic, which would round."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _inst(parts: Parts) -> Symbol:
    moment = _EPOCH + timedelta(milliseconds=_whole(parts[0]))
    return Symbol(f'#inst "{moment.isoformat(timespec="milliseconds")}"')


def _character(parts: Parts) -> Symbol:
    point = _whole(parts[0])
    names = {9: "tab", 10: "newline", 12: "formfeed", 13: "return", 32: "space", 8: "backspace"}
    return Symbol(f"\\{names.get(point) or chr(point)}")


_MADE: Final[dict[str, tuple[int, Callable[[Parts], Hashable]]]] = {
    "map": (1, _map),
    "set": (1, _set),
    _SET_TAG: (1, _set),
    "persistent-sorted-set": (1, _set),
    "vec": (1, _listed),
    "key": (2, lambda parts: Keyword(_named(parts))),
    "sym": (2, lambda parts: Symbol(_named(parts))),
    "record": (2, lambda parts: parts[1]),
    "uuid": (1, _uuid),
    "inst": (1, _inst),
    "instant": (1, lambda parts: Symbol(f'#inst "{parts[0]}"')),
    "regex": (1, lambda parts: Symbol(f'#"{parts[0]}"')),
    "bigint": (1, lambda parts: _big(parts[0])),
    "bigdec": (2, lambda parts: _decimal(_big(parts[0]), _whole(parts[1]))),
    "ratio": (2, lambda parts: Fraction(_whole(parts[0]), _whole(parts[1]))),
    "char": (1, _character),
    _BLOCK_REF: (1, lambda parts: BlockRef(_whole(parts[0]))),
}


class Writer:
    """Values as Fressian, one behind the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._cached: dict[Hashable, int] = {}
        self._structs: dict[str, int] = {}

    def operation(self, op: EdnMap, place: int) -> None:
        """An operation of a history, as Jepsen's record. Its index is its place: Jepsen takes one
        for the other."""
        self._struct(OP_TAG, len(OP_FIELDS) + 1)
        for name in OP_FIELDS:
            value = place if name == "index" else op.get(name, -1 if name == "time" else None)
            if name in ("type", "f") and value is not None:
                self._cache(value)
            else:
                self.value(value)
        more = EdnMap({name: each for name, each in op.items() if name not in OP_FIELDS})
        self.value(more or None)

    def value(self, value: Hashable) -> None:
        if value is None or isinstance(value, bool):
            self.data.append(_NULL if value is None else _TRUE if value else _FALSE)
        elif isinstance(value, int):
            self._integer(value)
        elif isinstance(value, Keyword):
            self.data.append(_KEY)
            namespace, slash, name = value.rpartition("/") if value != "/" else ("", "", value)
            self.value(namespace if slash else None)
            self._cache(str(name))
        elif isinstance(value, Symbol):
            self._symbol(value)
        elif isinstance(value, str):
            self._string(value)
        elif isinstance(value, tuple):
            self._list(value)
        elif isinstance(value, EdnMap):
            self.data.append(_MAP)
            self._list(tuple(each for pair in value.items() for each in pair))
        elif isinstance(value, frozenset):
            self._struct(_SET_TAG, 1)
            self._list(tuple(value))
        elif isinstance(value, BlockRef):
            self._struct(_BLOCK_REF, 1)
            self._integer(value.id)
        else:
            self._number(value)

    def _integer(self, value: int) -> None:
        if -1 <= value < 0x40:
            self.data.append(value & 0xFF)
            return
        for first, zero, length in _PACKED:
            high = value >> 8 * length
            if first - zero <= high < zero - first:
                self.data.append(zero + high)
                self.data += (value & ((1 << 8 * length) - 1)).to_bytes(length, "big")
                return
        if -(2**63) <= value < 2**63:
            self.data.append(_INT)
            self.data += value.to_bytes(8, "big", signed=True)
            return
        self.data.append(0xC6)
        self._big(value)

    def _big(self, value: int) -> None:
        content = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
        self.data.append(_BYTES)
        self._integer(len(content))
        self.data += content

    def _string(self, value: str) -> None:
        units = value.encode("utf-16-le", "surrogatepass")
        points = "".join(chr(unit) for unit in memoryview(units).cast("H"))
        content = value.encode() if value.isascii() else points.encode("utf-8", "surrogatepass")
        if len(content) < 8:
            self.data.append(_STRING_0 + len(content))
        else:
            self.data.append(_STRING)
            self._integer(len(content))
        self.data += content

    def _symbol(self, value: Symbol) -> None:
        if value[0] == "\\" and len(value) == 2:
            self._struct("char", 1)
            self._integer(ord(value[1]))
            return
        self.data.append(0xC9)
        self.value(None)
        self._string(str(value))

    def _list(self, values: tuple[Hashable, ...]) -> None:
        if len(values) < 8:
            self.data.append(_LIST_0 + len(values))
        else:
            self.data.append(_LIST)
            self._integer(len(values))
        for each in values:
            self.value(each)

    def _number(self, value: Hashable) -> None:
        if isinstance(value, Fraction):
            self._struct("ratio", 2)
            self._integer(value.numerator)
            self._integer(value.denominator)
        elif isinstance(value, Decimal):
            sign, digits, exponent = value.as_tuple()
            unscaled = int("".join(map(str, digits)))
            self.data.append(0xC7)
            self._big(-unscaled if sign else unscaled)
            self._integer(-int(exponent))
        elif isinstance(value, float):
            self.data.append(_DOUBLE)
            self.data += struct.pack(">d", value)
        else:
            raise TypeError(f"{type(value).__name__} is no value of a history")

    def _cache(self, value: Hashable) -> None:
        known = self._cached.get((type(value), value))
        if known is None:
            self._cached[type(value), value] = len(self._cached)
            self.data.append(_PUT_CACHED)
            self.value(value)
        elif known < 32:
            self.data.append(_CACHED_0 + known)
        else:
            self.data.append(_GET_CACHED)
            self._integer(known)

    def _struct(self, tag: str, fields: int) -> None:
        known = self._structs.get(tag)
        if known is None:
            self._structs[tag] = len(self._structs)
            self.data.append(_STRUCT_TYPE)
            self._string(tag)
            self._integer(fields)
        elif known < 16:
            self.data.append(_CACHED_STRUCT_0 + known)
        else:
            self.data.append(_STRUCT)
            self._integer(known)
