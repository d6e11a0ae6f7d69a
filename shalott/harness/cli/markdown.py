"""Markdown as the reference pages have it: paragraphs and lists of at most 120 columns, and what
stored structs and Parquet columns say of themselves.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

WIDTH = 120
# At the start of a line these would begin a list, a heading or a quotation.
_MARKS = re.compile(r"(?:[-+*#>|=]+|\d+[.)])$")
_FIELD = re.compile(r"    (\w+): (.+?)(?: = (.*?))?(?:  # (.*))?$")


def wrapped(text: str, first: str = "", rest: str = "", width: int = WIDTH) -> str:
    """A paragraph of at most ``width`` columns; no line begins like a list or a heading."""
    pieces: list[str] = []
    for word in text.split():
        if pieces and _MARKS.match(word):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines, line = [], first
    for piece in pieces:
        room = width - len(line) - (not line.endswith(" ") and line != "")
        if len(piece) > room and line not in (first, rest):
            lines.append(line)
            line = rest
        line += piece if line in ("", first, rest) or line.endswith(" ") else f" {piece}"
    return "\n".join([*lines, line])


def item(text: str) -> str:
    """An entry of a list."""
    return wrapped(text, "- ", "  ")


def refitted(text: str, width: int) -> str:
    """What ``wrapped`` and ``item`` made, at another width. Indented lines stay as they are."""
    if width == WIDTH:
        return text
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("  ") and not line.startswith("    ") and found:
            found[-1] += line[1:]
        elif line[:1].isalpha() and found and found[-1][:1].isalpha():
            found[-1] += f" {line}"
        else:
            found.append(line)
    return "\n".join(_refitted(line, width) for line in found)


def _refitted(line: str, width: int) -> str:
    if line.startswith(("    ", "#")) or not line:
        return line
    if line.startswith("- "):
        return wrapped(line[2:], "- ", "  ", width)
    return wrapped(line, width=width)


def code(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def prose(docstring: str | None) -> str:
    """A docstring as paragraphs."""
    text = inspect.cleandoc(docstring or "").replace("``", "`")
    return "\n\n".join(wrapped(part) for part in re.split(r"\n\s*\n", text))


def sentence(text: str) -> str:
    """With a full stop."""
    return text + ("" if text.endswith((".", ":")) or not text else ".")


def fields_text(struct: type[msgspec.Struct]) -> str:
    """Every field with its type, its default and what the comment beside it says."""
    found: list[str] = []
    above: list[str] = []
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    for line in inspect.getsource(struct).splitlines():
        if line.startswith("    # "):
            above.append(line.removeprefix("    # "))
            continue
        match = _FIELD.match(line)
        if match and match[1] in defaults and not isinstance(defaults[match[1]], msgspec.Struct):
            name, kind, default, comment = match.groups()
            is_told = default not in (None, "msgspec.UNSET")
            said = " ".join([*above, comment or ""]).strip().replace("``", "`")
            shown = re.sub(r"^(-?\d+)\.0$", r"\1", default or "")  # a whole number is one
            value = f" = `{shown}`" if is_told else ""
            found.append(item(f"`{name}` {_kind(kind)}{value}" + (f": {said}" if said else "")))
        above = []
    return "\n".join(found)


def _kind(annotation: str) -> str:
    """A type as readers want it."""
    kind = annotation.removesuffix(" | msgspec.UnsetType")
    kind = re.sub(r"Annotated\[(\w+), .*\]", r"\1", kind)
    return re.sub(r"\b(Positive|NotNegative|Percent|Port)\b", "int", kind)


def struct_text(struct: type[msgspec.Struct], level: str = "###") -> str:
    """A struct of a stored file: what it is, and its fields."""
    return f"{level} {struct.__name__}\n\n{prose(struct.__doc__)}\n\n{fields_text(struct)}"


def columns_text(columns: Sequence[tuple[str, pa.DataType, bool, str]]) -> str:
    """The columns of a Parquet file. A type with ? may be null."""
    return "\n".join(
        item(
            f"`{name}` {kind}{'?' if nullable else ''}".replace("item: ", "")
            + (meaning and f": {meaning}")
        )
        for name, kind, nullable, meaning in columns
    )
