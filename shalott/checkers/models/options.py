"""A model's options: the parameters of its class, as ``option=value,option=value`` gives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from shalott.checkers.models.base import Model
from shalott.core.errors import UsageError

REQUIRED: Final = inspect.Parameter.empty  # in place of a default
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Option:
    """One of them. ``type`` is what its annotation says, as a word."""

    name: str
    type: str
    default: object


def options_of(made_by: Callable[..., Model]) -> tuple[Option, ...]:
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


def make_with(made_by: Callable[..., Model], name: str, options: str) -> Model:
    """The model with these options. Raises UsageError: no such option, or no such value."""
    known = {option.name: option for option in options_of(made_by)}
    given: dict[str, object] = {}
    for option in filter(None, options.split(",")):
        key, equals, text = option.partition("=")
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
