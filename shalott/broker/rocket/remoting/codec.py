"""Frames to bytes and back: a length, a header in one of two encodings, a body.

    int32 bytes that follow | int8 encoding, int24 length of the header | header | body

The JSON header is what every client speaks; the binary one is RocketMQ's own. Java writes all
extFields as text, the C++ client some as numbers: all become text here. After
remoting/protocol/{RemotingCommand,RocketMQSerializable}.java and netty/NettyDecoder.java.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.remoting.command import BINARY, JSON, Command, Language

FRAME_BYTES_MAX = 16 << 20  # the length itself counts
HEADER_BYTES_MAX = (1 << 24) - 1
_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_INT16_MAX = (1 << 15) - 1
_INT32 = range(-(1 << 31), 1 << 31)
_LANGUAGES: Mapping[str, int] = {language.name: int(language) for language in Language}
_OTHER, _OTHER_NAME = int(Language.OTHER), Language.OTHER.name
_NAMES: Mapping[int, str] = {int(language): language.name for language in Language}


class FrameError(BrokerError):
    """The bytes are no frame, or a command fits in none."""


def encode(command: Command) -> bytes:
    """One frame, in the encoding that ``command.serialize`` names. Raises FrameError."""
    header = _encode_binary(command) if command.serialize == BINARY else _encode_json(command)
    size, body = len(header), command.body
    following = 4 + size + len(body)
    if following + 4 > FRAME_BYTES_MAX or size > HEADER_BYTES_MAX:
        raise FrameError(f"a frame of {following + 4} bytes is over {FRAME_BYTES_MAX}")
    return _LENGTHS.pack(following, command.serialize << 24 | size) + header + body


class FrameReader:
    """Bytes in, whole commands out. After a FrameError it is of no use any more."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """The commands that ``data`` completes. Raises FrameError."""
        buffer = self._buffer
        waiting: bytes | bytearray = data  # mostly all of it is whole frames
        if buffer:
            buffer += data
            waiting = buffer
        commands = []
        start, size = 0, len(waiting)
        while size - start >= 4:
            (following,) = _LENGTH.unpack_from(waiting, start)
            if not 4 <= following <= FRAME_BYTES_MAX - 4:
                raise FrameError(f"{following} bytes can't follow")
            if size - start - 4 < following:
                break
            end = start + 4 + following
            commands.append(_decode(waiting, start, end))
            start = end
        if waiting is buffer:
            del buffer[:start]
        elif start < size:
            buffer += data[start:]
        return commands


def _decode(data: bytes | bytearray, start: int, end: int) -> Command:
    """The frame that lies there."""
    following, word = _LENGTHS.unpack_from(data, start)
    serialize, at = word >> 24, start + 8
    middle = at + (word & HEADER_BYTES_MAX)
    if middle > end:
        raise FrameError(f"a header of {middle - at} bytes in a frame of {following}")
    header, body = bytes(data[at:middle]), bytes(data[middle:end])
    if serialize == JSON:
        return _decode_json(header, body)
    if serialize == BINARY:
        return _decode_binary(header, body)
    raise FrameError(f"no header is encoded in way {serialize}")


# -- JSON ------------------------------------------------------------------------------------------


_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class _Header(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A JSON header as most write it, and we do: its fields in this order."""

    code: _Int32
    language: str
    version: _Int32
    opaque: _Int32
    flag: _Int32
    remark: str = ""
    extFields: dict[str, str] = {}  # noqa: N815
    serializeTypeCurrentRPC: str  # noqa: N815


_header_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(_Header)


def _encode_json(command: Command) -> bytes:
    header = _Header(
        code=int(command.code),
        language=_NAMES.get(command.language, _OTHER_NAME),
        version=command.version,
        opaque=command.opaque,
        flag=command.flag,
        remark=command.remark,
        extFields=command.ext,
        serializeTypeCurrentRPC="JSON",
    )
    try:
        return _header_encoder.encode(header)
    except UnicodeEncodeError as error:
        raise FrameError(f"text that is no UTF-8: {error}") from error


def _decode_json(header: bytes, body: bytes) -> Command:
    try:
        usual = _header_decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_unusual(header, body)
    return Command(
        code=usual.code,
        ext=usual.extFields,
        body=body,
        remark=usual.remark,
        opaque=usual.opaque,
        flag=usual.flag,
        language=_LANGUAGES.get(usual.language, _OTHER),
        version=usual.version,
        serialize=JSON,
    )


def _decode_unusual(header: bytes, body: bytes) -> Command:
    """Also what is missing, null, or of another type than it should be."""
    try:
        fields = msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"the header is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FrameError("the header is no JSON object")
    ext = fields.get("extFields") or {}
    if not isinstance(ext, dict):
        raise FrameError("extFields is no JSON object")
    return Command(
        code=_integer(fields, "code"),
        ext={key: _text(value) for key, value in ext.items() if value is not None},
        body=body,
        remark=_text(fields.get("remark") or ""),
        opaque=_integer(fields, "opaque", 0),
        flag=_integer(fields, "flag", 0),
        language=_language(fields.get("language")),
        version=_integer(fields, "version", 0),
        serialize=JSON,
    )


def _integer(fields: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT32:
        raise FrameError(f"the header's {name} is {value!r}")
    return value


def _language(value: object) -> int:
    """Names we don't know are allowed: there are more languages every year."""
    if isinstance(value, int) and value in _NAMES:
        return int(value)
    return int(_LANGUAGES.get(value, Language.OTHER) if isinstance(value, str) else Language.OTHER)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return msgspec.json.encode(value).decode()


# -- binary ----------------------------------------------------------------------------------------


def _encode_binary(command: Command) -> bytes:
    try:
        remark = command.remark.encode()
        parts = [
            _FIXED.pack(
                command.code,
                command.language,
                command.version,
                command.opaque,
                command.flag,
                len(remark),
            ),
            remark,
        ]
        fields = b"".join(_encode_field(key, value) for key, value in command.ext.items())
    except (struct.error, UnicodeEncodeError) as error:
        raise FrameError(f"a header that can't be binary: {error}") from error
    return b"".join([*parts, len(fields).to_bytes(4, "big"), fields])


def _encode_field(key: str, value: str) -> bytes:
    name, text = key.encode(), value.encode()
    if len(name) > _INT16_MAX:
        raise FrameError(f"a key of {len(name)} bytes")
    return len(name).to_bytes(2, "big") + name + len(text).to_bytes(4, "big") + text


def _decode_binary(header: bytes, body: bytes) -> Command:
    if len(header) < _FIXED.size + 4:
        raise FrameError(f"a binary header of {len(header)} bytes")
    code, language, version, opaque, flag, length = _FIXED.unpack_from(header)
    try:
        remark, at = _take(header, _FIXED.size, length)
        ext_bytes = int.from_bytes(header[at : at + 4], "big", signed=True)
        if at + 4 > len(header) or at + 4 + ext_bytes != len(header):
            raise FrameError(f"{ext_bytes} bytes of fields end not where the header does")
        ext = _decode_fields(header, at + 4)
    except UnicodeDecodeError as error:
        raise FrameError(f"the header is no UTF-8: {error}") from error
    return Command(
        code=code,
        ext=ext,
        body=body,
        remark=remark,
        opaque=opaque,
        flag=flag,
        language=language,
        version=version,
        serialize=BINARY,
    )


def _decode_fields(header: bytes, at: int) -> dict[str, str]:
    fields = {}
    while at < len(header):
        key, at = _take_counted(header, at, 2)
        fields[key], at = _take_counted(header, at, 4)
    return fields


def _take_counted(header: bytes, at: int, width: int) -> tuple[str, int]:
    if at + width > len(header):
        raise FrameError("a field ends in its length")
    length = int.from_bytes(header[at : at + width], "big", signed=True)
    return _take(header, at + width, length)


def _take(header: bytes, at: int, length: int) -> tuple[str, int]:
    """Text of ``length`` bytes, and where it ends."""
    end = at + length
    if length < 0 or end > len(header):
        raise FrameError(f"{length} bytes of text where {len(header) - at} are left")
    return header[at:end].decode(), end
