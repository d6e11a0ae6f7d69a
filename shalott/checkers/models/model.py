"""What a model is: the sequential specification of one object.

A model is anything with an initial state and a step. States are hashable and never None. ``step``
is a pure function: it must not depend on anything but its arguments, because each (state,
operation) is asked once and its answer kept (checkers.linearizability).

What a model reads of an operation is said by ``meanings``, if it has them: arguments and results
that mean nothing are not told apart, crashed operations that change nothing are left out, and an
unknown f is an error that names the line instead of a wrong verdict.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from shalott.checkers.history.concurrent import Operation
from shalott.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class OneOf:
    """Several next states: a crashed operation with more than one outcome took one of them."""

    states: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one f means to a model, and what the model reads of such an operation."""

    f: str  # the name under which ``step`` sees it: aliases have one meaning
    argument: bool = False
    result: bool = False
    pure: bool = False  # never changes the state
    settles: bool = False  # its result says which of several changes it made
    failed: bool = False  # one that failed is an observation; other failed operations are dropped


@runtime_checkable
class Model(Protocol):
    """A sequential specification.

    May also have: ``name`` (default: the class's), ``meanings`` (f -> Meaning; default: every f,
    argument and result), ``by_process`` (True: ``step`` reads op.process), ``is_pure(op)`` (True:
    this one never changes the state, even if its meaning says otherwise), ``as_read(history)``
    (the history as it is judged: with owners for processes, say).
    """

    @property
    def init(self) -> Hashable: ...

    def step(self, state: Hashable, op: Operation) -> Hashable | OneOf | None:
        """The state after ``op`` took effect with its result; None if it can't have.

        A crashed operation's result is UNKNOWN: any that it might have returned will do. A failed
        one is asked about only if its meaning says so; its result is FAILED.
        """
        ...


Meanings = Mapping[str, Meaning]


def aliases(*meanings: tuple[str, Meaning]) -> Meanings:
    """f names, separated by spaces, to their meaning."""
    return {name: meaning for names, meaning in meanings for name in names.split()}


def one_of(option: str, value: str, *allowed: str) -> None:
    """Refuses an option's value that is none of the ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{option} is {' or '.join(allowed)}, not {value!r}")


# A model's options: the parameters of its class, as ``option=value,option=value`` gives them.

REQUIRED: Final = inspect.Parameter.empty  # in place of a default
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
Made = TypeVar("Made")
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One of them. ``type`` is what its annotation says, as a word."""

    name: str
    type: str
    default: object


def options_of(made_by: Callable[..., object]) -> tuple[Option, ...]:
    """A dataclass's fields, or the parameters of ``__init__`` or of a function."""
    try:
        parameters = inspect.signature(made_by).parameters.values()
    except (TypeError, ValueError):  # a class in C may not tell
        return ()
    return tuple(
        Option(each.name, _type_name(each.annotation), each.default)
        for each in parameters
        if each.kind in _NAMED
    )


def default_text(option: Option) -> str:
    """As it would be given; "..." of one that must be."""
    if option.default is REQUIRED:
        return "..."
    if option.default is None or isinstance(option.default, bool):
        return {None: "nil", True: "true", False: "false"}[option.default]
    return str(option.default)


def make_with(made_by: Callable[..., Made], name: str, options: str) -> Made:
    """The model, or judge, with these options. Raises UsageError: no such option or value."""
    known = {option.name: option for option in options_of(made_by)}
    given: dict[str, object] = {}
    for option in filter(None, options.split(",")):
        key, equals, text = option.partition("=")
        key = key.rstrip("?").replace("-", "_")  # as Jepsen has them: negative-balances?
        if key not in known or not equals:
            takes = ", ".join(f"{each}=..." for each in known) or "no options"
            raise UsageError(f"model {name} takes {takes}, not {option!r}")
        given[key] = _value(name, known[key], text)
    lacking = [
        f"{each.name}=..."
        for each in known.values()
        if each.default is REQUIRED and each.name not in given
    ]
    if lacking:
        raise UsageError(f"model {name} needs {', '.join(lacking)}")
    try:
        return made_by(**given)
    except ValueError as refused:
        raise UsageError(f"model {name}: {refused}") from None


def _type_name(annotation: object) -> str:
    if annotation is REQUIRED:
        return ""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _value(model: str, option: Option, text: str) -> Hashable:
    """What the option's type wants; an integer, nil or a string where it does not say."""
    is_integer = text.lstrip("-").isdigit() and text.count("-") <= 1
    if option.type == "int" and not is_integer:
        raise UsageError(f"model {model}: {option.name} is a number, not {text!r}")
    if option.type == "float":
        return _fraction(model, option, text)
    if option.type == "bool":
        if text not in _TRUTHS:
            raise UsageError(f"model {model}: {option.name} is true or false, not {text!r}")
        return _TRUTHS[text]
    if option.type == "str":
        return text
    if text in ("nil", "null", "none", "None"):
        return None
    return int(text) if is_integer else text


def _fraction(model: str, option: Option, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"model {model}: {option.name} is a number, not {text!r}") from None
