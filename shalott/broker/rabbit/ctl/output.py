"""Tables and JSON as rabbitmqctl 3.10 prints them (lib/rabbitmq/cli/formatters)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Row = Mapping[str, Any]


def as_table(rows: Sequence[Row], columns: Sequence[str], *, headers: bool) -> list[str]:
    """A line a row, cells apart by tabs; nothing at all if there is no row."""
    if not rows:
        return []
    lines = ["\t".join(columns)] if headers else []
    return lines + ["\t".join(cell(row.get(name)) for name in columns) for row in rows]


def as_csv(rows: Sequence[Row], columns: Sequence[str], *, headers: bool) -> list[str]:
    """Each cell in quotes."""
    told = [[cell(row.get(name)) for name in columns] for row in rows]
    lines = [list(columns), *told] if headers and rows else told
    return [",".join(_quoted(text) for text in line) for line in lines]


def as_json(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """An array, an element a line."""
    told = [_json({name: row.get(name) for name in columns}) for row in rows]
    return ["[", "\n,".join(told), "]"] if told else ["[", "", "]"]


def cell(value: Any) -> str:
    """One cell of a table. Pids and names stand as they are, without quotes, in lists too."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case list() | tuple():
            return f"[{', '.join(map(cell, value))}]"
        case dict():  # as Erlang writes a list of pairs
            pairs = (f"{{{_term(name)},{_term(inner)}}}" for name, inner in value.items())
            return f"[{', '.join(pairs)}]"
        case _:
            return str(value)


def _term(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else cell(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
