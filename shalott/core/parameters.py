"""Parameters of a record as one struct, from which the command line and the plan are derived.

A workload, a system or a fault says what it can be told by a frozen ``msgspec.Struct`` whose
fields have defaults. Every field is a flag: ``body_bytes: int = 64`` is ``--body-bytes``. A field
that ends in ``_ms`` is a time, its flag has no unit in its name (``hold_ms`` is ``--hold``) and
takes ``200ms``, ``5s`` or ``2m``. A ``bool`` is ``--durable`` or ``--no-durable``, a ``Literal``
names its choices, a tuple of texts is separated by commas. Texts for ``--help`` stand in
``Annotated[..., msgspec.Meta(description="...")]``, limits in ``Meta(ge=1)``.

Values are validated once, here: what the plan stores is what the struct took. Times and sizes are
read as users write them, with their units.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from shalott.core.errors import UsageError

Parameters = TypeVar("Parameters", bound=msgspec.Struct)

Kind = Literal["flag", "duration", "number", "fraction", "choice", "list", "text"]
# What a user types as a value of it.
TYPES: Mapping[Kind, str] = {
    "flag": "",
    "duration": "TIME",
    "number": "INTEGER",
    "fraction": "NUMBER",
    "choice": "WORD",
    "list": "LIST",
    "text": "TEXT",
}


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of what can't be told anything."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One field as the command line has it."""

    field: str  # of the struct
    name: str  # --name
    kind: Kind
    default: object
    help: str
    choices: tuple[str, ...] = ()

    @property
    def type_name(self) -> str:
        return TYPES[self.kind]

    def typed(self, value: Any) -> str:
        """A value as a user would type it."""
        if self.kind == "duration":
            return _duration(int(value))
        if self.kind == "list":
            return ",".join(str(item) for item in value)
        return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def flags_of(struct: type[msgspec.Struct]) -> tuple[Flag, ...]:
    hints = typing.get_type_hints(struct, include_extras=True)
    return tuple(_flag(field, hints[field.name]) for field in msgspec.structs.fields(struct))


def parse_parameters(
    struct: type[Parameters], given: Mapping[str, str | bool], base: Mapping[str, object]
) -> Parameters:
    """The struct with what a user typed, by flag name, laid over ``base``, values by field.

    Raises UsageError: a value that can't be.
    """
    values = dict(base)
    for flag in flags_of(struct):
        if flag.name in given:
            values[flag.field] = _parse(flag, given[flag.name])
    return make_parameters(struct, values)


def parse_values(struct: type[msgspec.Struct], given: Mapping[str, str]) -> dict[str, object]:
    """What a user typed, by flag name, as a plan's values; nothing of what was not typed.

    Raises UsageError: a name that the struct does not have, or a value that can't be.
    """
    flags = {flag.name: flag for flag in flags_of(struct)}
    for name in given:
        if name not in flags:
            known = ", ".join(flags) or "none"
            raise UsageError(f"there is no parameter {name}: there is {known}")
    said = {flags[name].field: value for name, value in given.items()}
    whole = to_plan(parse_parameters(struct, given, {}))
    return {field: whole[field] for field in said}


def make_parameters(struct: type[Parameters], values: Mapping[str, object]) -> Parameters:
    """Validate a plan's values. Raises UsageError in one sentence, naming the flag."""
    try:
        return msgspec.convert(dict(values), struct)
    except msgspec.ValidationError as error:
        raise UsageError(_sentence(struct, values, str(error))) from error


def to_plan(parameters: msgspec.Struct) -> dict[str, Any]:
    """Every field with its value, as a plan stores it."""
    return msgspec.json.decode(msgspec.json.encode(parameters), type=dict[str, Any])


def _flag(field: msgspec.structs.FieldInfo, hint: object) -> Flag:
    inner, text = _unwrapped(hint)
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    assert default is not msgspec.NODEFAULT, f"parameter {field.name} has no default"
    name = field.name.replace("_", "-")
    kind, choices = _kind(field.name, inner)
    if kind == "duration":
        name = name.removesuffix("-ms")
    return Flag(field.name, name, kind, default, text, choices)


def _unwrapped(hint: object) -> tuple[object, str]:
    """(the type without annotations and without None, its description)."""
    text = ""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *metas = typing.get_args(hint)
        described = [m.description for m in metas if isinstance(m, msgspec.Meta) and m.description]
        text = described[0] if described else ""
        hint = inner
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    if type(None) in typing.get_args(hint) and len(options) == 1:
        inner, more = _unwrapped(options[0])
        return inner, text or more
    return hint, text


def _kind(name: str, hint: object) -> tuple[Kind, tuple[str, ...]]:
    if hint is bool:
        return "flag", ()
    if typing.get_origin(hint) is Literal:
        return "choice", tuple(str(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return "list", _kind(name, typing.get_args(hint)[0])[1]
    if name.endswith("_ms") and hint in (int, float):
        return "duration", ()
    return "number" if hint is int else "fraction" if hint is float else "text", ()


def _parse(flag: Flag, value: str | bool) -> object:
    if isinstance(value, bool) or flag.kind in ("choice", "text"):
        return value
    if flag.kind == "flag":
        if value not in ("true", "false"):
            raise UsageError(f"--{flag.name} {value}: give true or false")
        return value == "true"
    if flag.kind == "duration":
        return parse_duration_ms(f"--{flag.name}", value) if value not in ("0", "0s") else 0
    if flag.kind == "list":
        return list(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    try:
        return int(value) if flag.kind == "number" else float(value)
    except ValueError:
        raise UsageError(f"--{flag.name} {value}: give a number") from None


def _sentence(struct: type[msgspec.Struct], values: Mapping[str, object], complaint: str) -> str:
    """msgspec's complaint with the flag in place of the path."""
    reason, _, path = complaint.partition(" - at ")
    field = path.strip("`").removeprefix("$.").partition("[")[0]
    flag = next((flag for flag in flags_of(struct) if flag.field == field), None)
    if flag is None:
        return f"the parameters are wrong: {complaint}"
    value = values.get(field)
    typed = flag.typed(value) if isinstance(value, list | tuple) else value
    if flag.choices:
        return f"unknown --{flag.name} {typed}: choose one of {', '.join(flag.choices)}"
    return f"--{flag.name} {typed}: {reason[:1].lower()}{reason[1:]}"


def _duration(time_ms: int) -> str:
    return f"{time_ms // 1000}s" if time_ms % 1000 == 0 else f"{time_ms}ms"


_TIME_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1000}
_BYTES: Final = {
    "": 1, "B": 1,
    "KB": 1000, "MB": 1000**2, "GB": 1000**3, "K": 1000, "M": 1000**2, "G": 1000**3,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
}  # fmt: skip


def parse_duration_ms(flag: str, text: str) -> int:
    """60, 60s, 1.5s, 500ms, 2m, 3h or 1d, as milliseconds; a bare number is seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", text.strip())
    if found is None or float(found[1]) == 0:
        raise UsageError(f"{flag} {text}: give a time above 0, such as 30, 30s, 500ms or 2m")
    return max(1, round(float(found[1]) * _TIME_MS[found[2]]))


def parse_bytes(flag: str, text: str) -> int:
    """2GB, 1.5GiB, 500M or a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]?(?:I?B)?)", text.strip().upper())
    if found is None or found[2] not in _BYTES or float(found[1]) == 0:
        raise UsageError(f"{flag} {text}: give a size above 0, such as 2GB, 1.5GiB or 500MB")
    return max(1, round(float(found[1]) * _BYTES[found[2]]))


def is_url(place: object) -> bool:
    """Also as a Path, which makes one slash of two."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(place)) is not None
