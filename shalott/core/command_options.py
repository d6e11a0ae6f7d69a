"""What the command line says of a struct's fields, which are a command's options.

A command takes frozen dataclasses; each field that is ``Annotated`` with one of these is an option
of the command, with the field's default. harness/cli/options.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """``names``: what is typed, if not the field's name. ``panel``: where it stands in --help, and
    ``after``: behind which option, if not behind the field before it."""

    help: str
    names: tuple[str, ...] = ()
    panel: str | None = None
    after: str = ""
    shows_default: bool = True


@dataclass(frozen=True, slots=True)
class Argument:
    """A word without a flag."""

    help: str


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A field that is a dataclass itself: its fields' options begin with ``prefix``."""

    prefix: str
