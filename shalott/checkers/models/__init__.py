"""The models that are built in, by name, those of others, and what any model means by an f.

``make_model("cas-register:initial=0,nil=any")`` is how the command line asks for one; in Python a
model is made like any object: ``CasRegister(initial=0, nil="any")``. A foreign model is
named by its door (door.py), or as ``package.module:Class`` (outside.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from shalott.checkers.models.collections import (
    Counter,
    FifoQueue,
    Log,
    PriorityQueue,
    Set,
    Stack,
    UnorderedQueue,
)
from shalott.checkers.models.locks import (
    FencedLock,
    Mutex,
    OwnedSemaphore,
    OwnerLock,
    ReentrantFencedLock,
    ReentrantLock,
    Semaphore,
)
from shalott.checkers.models.model import Meaning, Meanings, Model, OneOf, make_with
from shalott.checkers.models.registers import CasRegister, KeyValue, MultiRegister, Register

__all__ = [
    "BUILT_IN",
    "BUILT_IN_MODELS",
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
    "OwnedSemaphore",
    "OwnerLock",
    "PriorityQueue",
    "ReentrantFencedLock",
    "ReentrantLock",
    "Register",
    "Semaphore",
    "Set",
    "Stack",
    "UnorderedQueue",
    "make_model",
    "meanings_of",
    "model_name",
    "own_name",
]

# What the distribution's own entry point of shalott.models names.
BUILT_IN_MODELS: Final = (
    Register,
    CasRegister,
    MultiRegister,
    KeyValue,
    FifoQueue,
    UnorderedQueue,
    Stack,
    PriorityQueue,
    Log,
    Mutex,
    OwnerLock,
    ReentrantLock,
    FencedLock,
    ReentrantFencedLock,
    Semaphore,
    OwnedSemaphore,
    Set,
    Counter,
)

# The same by name: to find one takes neither the door nor a look at what is installed, which takes
# longer than to check a small history.
BUILT_IN: Final = {built_in.name: built_in for built_in in BUILT_IN_MODELS}

_OURS: Final = "shalott.checkers."


def make_model(specification: str) -> Model:
    """A model from its name and options: ``name`` or ``name:option=value,option=value``.

    ``name`` is that of a built-in model, one that an installed distribution or a loaded module
    offers, or ``package.module:Class``. Raises UsageError: no such model, option or value.
    """
    if specification.partition(":")[0] in BUILT_IN:
        return _make_built_in(specification)
    from shalott.checkers.models.outside import make_outside  # most checks need none

    return make_outside(specification, BUILT_IN)


@lru_cache(maxsize=256)  # models are values, and small histories are checked by the hundred
def _make_built_in(specification: str) -> Model:
    name, _, options = specification.partition(":")
    made_by: Callable[..., Model] = BUILT_IN[name]
    return make_with(made_by, name, options)


def model_name(model: Model) -> str:
    return str(getattr(model, "name", type(model).__name__))


def own_name(model: Model) -> str:
    """The name of a model of this package, "" of any other.

    Those of others may have any name. What is known of a model by its name (its monitor, the words
    of an explanation, what may be left out of a proof) is known of our own only.
    """
    is_ours = type(model).__module__.startswith(_OURS)
    return model_name(model) if is_ours else ""


def meanings_of(model: Model) -> Meanings | None:
    """What a model means by each f; None: it takes every f as it is."""
    meanings: Meanings | None = getattr(model, "meanings", None)
    return meanings
