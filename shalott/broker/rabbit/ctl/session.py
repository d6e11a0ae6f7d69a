"""Session: one node that is asked, and what its answers mean to an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from shalott.broker.base.http_client import Asked, Unreachable

# -- the command line ------------------------------------------------------------------------------

# What an operator typed, taken apart as rabbitmqctl does: options may stand anywhere.
#
# Source: rabbitmqctl(8) of RabbitMQ 3.10, OPTIONS, and lib/rabbitmq/cli/core/parser.ex.

EXIT_USAGE = 64  # EX_USAGE, as rabbitmqctl has it
FORMATTERS = ("table", "json", "csv")

_ALIASES: Mapping[str, str] = {
    "-n": "--node",
    "-p": "--vhost",
    "-q": "--quiet",
    "-s": "--silent",
    "-t": "--timeout",
    "-l": "--longnames",
}
_WITH_VALUE = ("--node", "--vhost", "--timeout", "--formatter", "--priority", "--apply-to")
_FLAGS = (
    *("--quiet", "--silent", "--longnames", "--no-table-headers", "--online", "--offline"),
    *("--local", "--force", "--disc", "--ram"),
)


class CtlError(Exception):
    """What is printed to stderr, and the exit code."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text


@dataclass(frozen=True, slots=True)
class Typed:
    """``options`` by their long names; a flag's value is ""."""

    verb: str
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def vhost(self) -> str:
        return self.options.get("--vhost", "/")

    @property
    def formatter(self) -> str:
        return self.options.get("--formatter", "table")

    @property
    def node(self) -> str:
        """Without the part before @: nodes here are called as their hosts are."""
        return self.options.get("--node", "").rpartition("@")[2]

    def has(self, flag: str) -> bool:
        return flag in self.options

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but the answer is to be said."""
        return self.has("--quiet") or self.has("--silent") or self.formatter in ("json", "csv")


def parse(words: Sequence[str]) -> Typed:
    """Raises CtlError."""
    options: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if not word.startswith("-") or word == "-" or word.lstrip("-").isdigit():
            rest.append(word)
            continue
        name, has_value, value = word.partition("=")
        name = _ALIASES.get(name, name)
        if name in _WITH_VALUE:
            if not has_value:
                if not left:
                    raise CtlError(EXIT_USAGE, f"Error (argument validation): {word} needs a value")
                value = left.pop(0)
            options[name] = value
        elif name in _FLAGS and not has_value:
            options[name] = ""
        else:
            raise CtlError(EXIT_USAGE, f"Invalid options for this command:\n\n{word} : invalid")
    formatter = options.get("--formatter", "table")
    if formatter not in FORMATTERS:
        raise CtlError(EXIT_USAGE, f"Error: unknown formatter {formatter}")
    if not rest:
        raise CtlError(EXIT_USAGE, "Usage: rabbitmqctl [-n <node>] [-q] <command> [<arguments>]")
    return Typed(rest[0], tuple(rest[1:]), options)


EXIT_DATA = 65  # EX_DATAERR: of a vhost that is not there
EXIT_NO_USER = 67  # EX_NOUSER
EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE: no node answers, or the one that does refuses


class NoAnswer(CtlError):
    """No node answers."""


@dataclass(slots=True)
class Session:
    """``node``: the name of who is asked, for the texts. ``said``: lines for stdout."""

    asked: Asked
    node: str
    typed: Typed
    said: list[str] = field(default_factory=list)

    def inform(self, text: str) -> None:
        """A line that --quiet leaves out."""
        if not self.typed.is_quiet:
            self.said.append(text)

    def say(self, lines: Sequence[str]) -> None:
        self.said += lines

    async def get(self, *segments: str) -> Any:
        return await self.ask("GET", segments)

    @property
    def words(self) -> str:
        """The verb and what stands behind it."""
        return " ".join((self.typed.verb, *self.typed.arguments))

    async def ask(
        self,
        method: str,
        segments: Sequence[str],
        body: Any = None,
        *,
        query: str = "",
        missing: str = "",
    ) -> Any:
        """The decoded answer. Raises CtlError, with ``missing`` for what is not there."""
        path = "/api/" + "/".join(quote(segment, safe="") for segment in segments)
        path += f"?{query}" if query else ""
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self.asked.request(method, path, content)
        except Unreachable as error:
            raise NoAnswer(
                EXIT_UNAVAILABLE,
                f"Error: unable to perform an operation on node '{self.node}'. Please see"
                f" diagnostics information and suggestions below.\n\n{error}",
            ) from error
        told = msgspec.json.decode(answer.body) if answer.body else None
        if answer.status < 300:
            return told
        if answer.status == 404 and missing:
            raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{missing}")
        reason = told.get("reason") if isinstance(told, dict) else None
        text = reason or f"the node answered {answer.status}"
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{text}")
