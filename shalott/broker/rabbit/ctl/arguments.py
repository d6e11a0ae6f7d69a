"""What an operator typed, taken apart as rabbitmqctl does: options may stand anywhere.

Source: rabbitmqctl(8) of RabbitMQ 3.10, OPTIONS, and lib/rabbitmq/cli/core/parser.ex.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
