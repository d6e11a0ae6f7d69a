"""What a request asks for: its parameters, read with bounds, and the refusals that answer it.

A parameter is text of somebody else: it has a longest length, numbers have a range, and what does
not fit is refused in one sentence. An empty parameter, as forms send it, is as if it was not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

TEXT_MAX = 500
PARAMETERS_MAX = 200
INT64_MAX = 2**63 - 1
RAW = "surrogateescape"  # how bytes that are no UTF-8 stand in a str, as in Python's file names


class Refused(Exception):
    """A request that is not answered: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


@dataclass(frozen=True)
class Asked:
    """The parameters of one request, in their order; a name may come several times."""

    pairs: tuple[tuple[str, str], ...] = ()
    by_name: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """The last one of that name. Raises Refused."""
        found = self.texts(name)
        return found[-1] if found else default

    def texts(self, name: str) -> list[str]:
        """All of them, each once, as whole characters. Raises Refused."""
        found = self.by_name.get(name, [])
        for value in found:
            if len(value) > TEXT_MAX:
                raise Refused(400, f"{name} is longer than {TEXT_MAX} characters.")
        return [shown(value) for value in found]

    def file_name(self, name: str) -> str:
        """The last one of that name, with bytes that are no UTF-8, as file names may have them."""
        return self.by_name.get(name, [""])[-1]

    def number(self, name: str, default: int, *, most: int = INT64_MAX) -> int:
        """A whole number from 0 to ``most``. Raises Refused."""
        text = self.text(name)
        if not text:
            return default
        value = whole_number(text)
        if value is None or not 0 <= value <= most:
            raise Refused(400, f"{name} must be a whole number from 0 to {most}.")
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """One of the choices; the first if nothing is said. Raises Refused."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise Refused(400, f"{name} must be one of {', '.join(choices)}.")
        return value

    def flag(self, name: str) -> bool:
        return self.text(name) not in ("", "0", "false", "no")

    def query(self, *without: str, **changed: str | int | None) -> str:
        """These parameters as the query of a link, some of them left out or changed."""
        kept = [(n, v) for n, v in self.pairs if n not in without and n not in changed]
        added = [(name, str(value)) for name, value in changed.items() if value is not None]
        return urlencode(kept + added, errors=RAW)


def read_asked(query: str) -> Asked:
    """The parameters of a query string. Raises Refused."""
    try:
        parsed = parse_qsl(query, max_num_fields=PARAMETERS_MAX, errors=RAW)
    except ValueError as error:
        raise Refused(400, f"More than {PARAMETERS_MAX} parameters.") from error
    pairs = tuple(dict.fromkeys(parsed))
    by_name: dict[str, list[str]] = {}
    for name, value in pairs:
        by_name.setdefault(name, []).append(value)
    return Asked(pairs, by_name)


def whole_number(text: str) -> int | None:
    """A whole number of 64 bits; None if the text is none. Digits are counted first: Python takes
    quadratic time for long ones, and refuses very long ones in its own way."""
    stripped = text.strip()
    digits = stripped.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return None
    value = int(stripped)
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else None


def link(path: str, **parameters: Any) -> str:
    """A path of this server with a query; parameters that are None or empty are left out."""
    told = [(name, str(value)) for name, value in parameters.items() if value not in (None, "")]
    return f"{path}?{urlencode(told, errors=RAW)}" if told else path


def shown(text: str) -> str:
    """The text with what is no character replaced, so that it can be written as UTF-8."""
    return text.encode("utf-8", RAW).decode("utf-8", "replace")
