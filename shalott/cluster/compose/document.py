"""A compose file as data: YAML as Compose reads it, variables filled in, environment files.

After the Compose specification (compose-spec.io), which is read as compose-go does where it leaves
a choice: words such as ``yes`` are texts, numbers have no base 60, and no key stands twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import yaml

from shalott.core.errors import UsageError
from shalott.core.json_value import Json

Document = dict[str, Json]
Environment = Mapping[str, str]

PROJECT = "COMPOSE_PROJECT_NAME"
MERGE = "tag:yaml.org,2002:merge"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN = re.compile(rf"\$(?:(\$)|({_NAME})|(\{{))")
_BRACED = re.compile(rf"({_NAME})(:?[-?+])?")
# YAML 1.2's core schema, in place of PyYAML's 1.1: tag, pattern, first letters.
_SCALARS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
)


def read_document(path: Path, known: Environment) -> Document:
    """The file with its variables filled in. Raises UsageError in one sentence."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--compose {path}: it can't be read: {error}") from error
    found = _parse(text, path)
    if not isinstance(found, dict):
        raise UsageError(f"--compose {path}: it holds no mapping of services")
    name = re.sub(r"[^a-z0-9_-]", "", str(found.get("name") or path.absolute().parent.name).lower())
    known = {PROJECT: name, **known}
    return {key: _filled(each, known, f"{path}: {key}") for key, each in found.items()}


def environment_beside(path: Path, environment: Environment) -> Environment:
    """``environment`` and, behind it, the file .env beside a compose file. Raises UsageError."""
    beside = path.parent / ".env"
    return {**(read_environment(beside, environment) if beside.is_file() else {}), **environment}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Of YAML 1.2's scalars, and of mappings in which no key stands twice."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Document:
    own = [key.value for key, _ in node.value if key.tag != MERGE]
    twice = next((key for key in own if own.count(key) > 1), None)
    if twice is not None:
        problem = f"{twice!r} stands twice in one mapping"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    loader.flatten_mapping(node)  # what is merged comes first, so that own keys replace it
    return {
        str(loader.construct_object(key)): loader.construct_object(value, deep=True)
        for key, value in node.value
    }


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def _parse(text: str, path: Path) -> Json:
    try:
        found: Json = yaml.load(text, _Loader)  # noqa: S506 (a child of SafeLoader)
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        raise UsageError(f"--compose {path}: {said}") from error
    return found


def _filled(value: Json, known: Environment, where: str) -> Json:
    """Every text with its variables filled in; keys are as they are."""
    if isinstance(value, str):
        return fill_in(value, known, where)
    if isinstance(value, Mapping):
        return {key: _filled(each, known, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, known, where) for each in value]
    return value


def fill_in(text: str, known: Environment, where: str) -> str:
    """``$NAME``, ``${NAME}`` and ${NAME:-default}, :?error, :+other, the same without a colon, and
    ``$$`` for a dollar. A name that is not known is empty. Raises UsageError."""
    done: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        done.append(text[at:dollar])
        found = _PLAIN.match(text, dollar)
        if found is None:
            raise UsageError(
                f"{where}: {text!r} has a '$' that begins no variable: write '$$' for a dollar"
            )
        at = found.end()
        if found[1]:
            done.append("$")
        elif found[2]:
            done.append(known.get(found[2], ""))
        else:
            end = _closing(text, at, where)
            done.append(_braced(text[at:end], known, where))
            at = end + 1
    return "".join((*done, text[at:]))


def _closing(text: str, at: int, where: str) -> int:
    """Where the brace ends that begins before ``at``; a default may hold others."""
    depth = 1
    for place in range(at, len(text)):
        depth += text.startswith("${", place)
        depth -= text[place] == "}"
        if depth == 0:
            return place
    raise UsageError(f"{where}: a brace of {text!r} is not closed")


def _braced(text: str, known: Environment, where: str) -> str:
    found = _BRACED.match(text)
    if found is None or (not found[2] and found.end() != len(text)):
        raise UsageError(f"{where}: '${{{text}}}' is no variable")
    name, rule, rest = found[1], found[2] or "", text[found.end() :]
    value = known.get(name)
    is_there = value is not None and (value != "" or ":" not in rule)
    if rule.endswith("+"):
        return fill_in(rest, known, where) if is_there else ""
    if is_there or not rule:
        return value or ""
    if rule.endswith("-"):
        return fill_in(rest, known, where)
    said = fill_in(rest, known, where) or "it is not set"
    raise UsageError(f"{where}: the variable {name} is required: {said}")


_LINE = re.compile(rf"\s*(?:export\s+)?({_NAME}(?:[.-]\w+)*)\s*(?:[=:]\s*(.*))?$", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$$"}


def read_environment(path: Path, outer: Environment) -> dict[str, str]:
    """An environment file. Names without a value are taken from ``outer``, where they are set.

    Raises UsageError.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the environment file {path} can't be read: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _LINE.match(line)
        if parts is None:
            raise UsageError(f"{path}:{number}: no NAME=VALUE: {line.strip()}")
        name, raw = parts[1], parts[2]
        if raw is not None:
            where = f"{path}:{number}"
            found[name] = _value(raw, {**found, **outer}, where)
        elif name in outer:
            found[name] = outer[name]
    return found


def _value(raw: str, known: Environment, where: str) -> str:
    """Single quotes: as it is. Double: with escapes and variables. None: with variables, up to a
    comment."""
    if raw[:1] not in ("'", '"'):
        return fill_in(re.sub(r"(^|\s+)#.*$", "", raw).strip(), known, where)
    quoted = re.fullmatch(
        r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\s*(?:#.*)?", raw.rstrip()
    )
    if quoted is None:
        raise UsageError(f"{where}: a quoted value ends on its line, and nothing is behind it")
    if quoted[1] is not None:
        return quoted[1].replace("\\'", "'")
    text = re.sub(r"\\(.)", lambda e: _ESCAPES.get(e[1], f"\\{e[1]}"), quoted[2])
    return fill_in(text, known, where)
