"""The models that are built in, by name, and what any model means by an f.

``make_model("cas-register:initial=0,nil=any")`` is how the command line asks for one; in Python a
model is made like any object: ``CasRegister(initial=0, nil="any")``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from functools import lru_cache
from typing import Final

from shalott.checkers.models.base import Meaning, Meanings, Model, OneOf
from shalott.checkers.models.collections import Counter, FifoQueue, Log, Set, UnorderedQueue
from shalott.checkers.models.locks import FencedLock, Mutex, OwnerLock, ReentrantLock, Semaphore
from shalott.checkers.models.registers import CasRegister, KeyValue, MultiRegister, Register
from shalott.harness.core.errors import UsageError

__all__ = [
    "MODELS",
    "CasRegister",
    "Counter",
    "FencedLock",
    "FifoQueue",
    "KeyValue",
    "Log",
    "Meaning",
    "Meanings",
    "Model",
    "MultiRegister",
    "Mutex",
    "OneOf",
    "OwnerLock",
    "ReentrantLock",
    "Register",
    "Semaphore",
    "Set",
    "UnorderedQueue",
    "make_model",
    "meanings_of",
    "model_name",
]

MODELS: Final = {
    built_in.name: built_in
    for built_in in (
        Register,
        CasRegister,
        MultiRegister,
        KeyValue,
        FifoQueue,
        UnorderedQueue,
        Log,
        Mutex,
        OwnerLock,
        ReentrantLock,
        FencedLock,
        Semaphore,
        Set,
        Counter,
    )
}


@lru_cache(maxsize=256)  # models are values, and small histories are checked by the hundred
def make_model(specification: str) -> Model:
    """A built-in model from its name and options: ``name`` or ``name:option=value,option=value``.

    Raises UsageError: no such model, option or value.
    """
    name, _, options = specification.partition(":")
    if name not in MODELS:
        raise UsageError(f"no model {name!r}: there are {', '.join(MODELS)}")
    built_in = MODELS[name]
    known = {field.name: str(field.type) for field in fields(built_in)}
    given: dict[str, Hashable] = {}
    for option in filter(None, options.split(",")):
        key, equals, text = option.partition("=")
        if key not in known or not equals:
            takes = ", ".join(f"{each}=..." for each in known) or "no options"
            raise UsageError(f"model {name} takes {takes}, not {option!r}")
        given[key] = _value(name, key, known[key], text)
    try:
        model: Model = built_in(**given)  # type: ignore[arg-type]
    except ValueError as refused:
        raise UsageError(f"model {name}: {refused}") from None
    return model


def _value(model: str, option: str, type_name: str, text: str) -> Hashable:
    """An integer, nil or a string; what the option's type wants."""
    is_integer = text.lstrip("-").isdigit() and text.count("-") <= 1
    if type_name == "int" and not is_integer:
        raise UsageError(f"model {model}: {option} is a number, not {text!r}")
    if type_name == "str":
        return text
    if text in ("nil", "null", "none", "None"):
        return None
    return int(text) if is_integer else text


def model_name(model: Model) -> str:
    """What a model is called in verdicts."""
    return str(getattr(model, "name", type(model).__name__))


def meanings_of(model: Model) -> Meanings | None:
    """What a model means by each f; None: it takes every f as it is."""
    meanings: Meanings | None = getattr(model, "meanings", None)
    return meanings
