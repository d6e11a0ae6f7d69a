"""Session: one node that is asked, and what its answers mean to an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import msgspec

from shalott.broker.base.http_client import Asked, Unreachable

# -- the command line ------------------------------------------------------------------------------

# What an operator typed, taken apart as rabbitmqctl does: options may stand anywhere.
#
# Source: rabbitmqctl(8) of RabbitMQ 3.10, OPTIONS, and lib/rabbitmq/cli/core/parser.ex.

EXIT_USAGE = 64  # EX_USAGE, as rabbitmqctl has it
EXIT_DATA = 65  # EX_DATAERR: of a vhost that is not there, or a bad value
EXIT_NO_USER = 67  # EX_NOUSER
EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE: no node answers, or the one that does refuses
EXIT_SOFTWARE = 70  # EX_SOFTWARE: it was asked, and did not do it
EXIT_TEMPORARY = 75  # EX_TEMPFAIL: what was begun is not done yet
FORMATTERS = ("table", "json", "csv", "pretty_table")

_ALIASES: Mapping[str, str] = {
    "-n": "--node",
    "-p": "--vhost",
    "-q": "--quiet",
    "-s": "--silent",
    "-t": "--timeout",
    "-l": "--longnames",
    "-P": "--pid",
    "-e": "--if-empty",
    "-u": "--if-unused",
    "-?": "--help",
    "-h": "--help",
}
_WITH_VALUE = (
    *("--node", "--vhost", "--timeout", "--formatter", "--priority", "--apply-to", "--pid"),
    *("--description", "--tags", "--default-queue-type", "--user", "--unit", "--limit"),
    *("--per-connection-delay", "--queue-timeout", "--format"),
)
_FLAGS = (
    *("--quiet", "--silent", "--longnames", "--no-table-headers", "--online", "--offline"),
    *("--local", "--disc", "--ram", "--global", "--if-empty", "--if-unused", "--help", "--wait"),
    *("--idempotent", "--skip-if-unchanged", "--list-commands", "--version"),
)
# Which most verbs take, though their usage does not name them.
GENERAL = (
    *("--node", "--vhost", "--timeout", "--formatter", "--quiet", "--silent", "--longnames"),
    *("--help", "--no-table-headers"),
)


Shown = Mapping[str, Any]  # of the API's JSON


class CtlError(Exception):
    """What is printed to stderr, and the exit code."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text


@dataclass(frozen=True, slots=True)
class Typed:
    """``options`` by their long names; a flag's value is "". ``strange``: words that look like
    options and are none, or lack a value. ``words``: all that was typed."""

    verb: str
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    words: tuple[str, ...] = field(default=(), compare=False)

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
    def timeout_s(self) -> float:
        """Of one request. Raises CtlError."""
        return self.seconds("--timeout", 60.0)

    def seconds(self, option: str, usual: float) -> float:
        """Raises CtlError."""
        try:
            return float(self.options.get(option, usual))
        except ValueError:
            raise invalid(self, f"{option} : {self.options[option]}") from None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing but the answer is to be said."""
        return self.has("--quiet") or self.has("--silent") or self.formatter in ("json", "csv")


def parse(words: Sequence[str]) -> Typed:
    """Nothing is judged here."""
    options: dict[str, str] = {}
    rest: list[str] = []
    strange: list[str] = []
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
            if not has_value and not left:
                strange.append(name)
                continue
            options[name] = value if has_value else left.pop(0)
        elif name in _FLAGS and not has_value:
            options[name] = ""
        else:
            strange.append(word)
    verb, *arguments = rest or [""]
    return Typed(verb, tuple(arguments), options, tuple(strange), tuple(words))


def refused(typed: Typed, text: str, usage: str, exit_code: int = EXIT_USAGE) -> CtlError:
    """What was typed can't be done as it was typed."""
    given = " ".join(word for word in typed.words)
    told = f"{text}\nArguments given:\n\t{given}\n\n{BOLD}Usage{PLAIN}\n\n{usage}"
    return CtlError(exit_code, told)


class Invalid(Exception):
    """The words of a verb are not what they should be; the verb's usage is still to be added."""

    def __init__(self, text: str, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def invalid(typed: Typed, options: str) -> Invalid:
    return Invalid(f"Invalid options for this command:\n{options}")


def bad(text: str = "") -> Invalid:
    """As rabbitmqctl's {:bad_argument, text}."""
    return Invalid(f"Bad argument: {text}" if text else "Bad argument.", EXIT_DATA)


BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class NoAnswer(CtlError):
    """No node answers."""


@dataclass(slots=True)
class Session:
    """``node``: the name of who is asked, for the texts. ``said``: lines for stdout."""

    asked: Asked
    node: str
    typed: Typed
    said: list[str] = field(default_factory=list)

    def in_vhost(self, vhost: str) -> Session:
        """The same about another vhost; what it says is said here."""
        options = {**self.typed.options, "--vhost": vhost}
        typed = replace(self.typed, options=options, arguments=())
        return replace(self, typed=typed)

    def inform(self, text: str) -> None:
        """A line that --quiet leaves out."""
        if not self.typed.is_quiet:
            self.said.append(text)

    def say(self, lines: Sequence[str]) -> None:
        self.said += lines

    async def get(self, *segments: str) -> Any:
        return await self.ask("GET", segments)

    async def ask(
        self,
        method: str,
        segments: Sequence[str],
        body: Any = None,
        *,
        query: str = "",
        missing: str = "",
        reason: str = "",
    ) -> Any:
        """The decoded answer. Raises CtlError, with ``missing`` for what is not there."""
        path = "/api/" + "/".join(quote(segment, safe="") for segment in segments)
        path += f"?{query}" if query else ""
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self.asked.request(method, path, content, reason=reason)
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
        why = told.get("reason") if isinstance(told, dict) else None
        if answer.status == 401:
            raise CtlError(EXIT_UNAVAILABLE, f"Error: node '{self.node}' refuses: {why}")
        raise CtlError(EXIT_UNAVAILABLE, f"Error:\n{why or f'the node answered {answer.status}'}")

    def answer(self, text: str) -> None:
        """What the verb is there to say: in JSON a message."""
        as_message = msgspec.json.encode({"message": text}).decode()
        self.said.append(as_message if self.typed.formatter == "json" else text)
