"""Models of others: by the name that they are offered under, or as ``package.module:Class``.

What is wrong with one is told in a sentence that says what to change: it is the first thing
that the author of a model meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from shalott.checkers.models.model import Meaning, Model, make_with
from shalott.core.doors import Door, import_named
from shalott.core.errors import UsageError


def make_outside(specification: str, built_in: Iterable[str]) -> Model:
    """``name``, ``package.module:Class``, either with ``:option=value,option=value``.

    ``built_in``: the names of our own, for the sentence on one that is unknown. Raises UsageError:
    there is no such model, it is none, or its options are others.
    """
    name, _, rest = specification.partition(":")
    place, _, options = rest.partition(":")
    if place and "=" not in place:
        full_name = f"{name}:{place}"
        return _make(_found(name, place), full_name, options)
    if not MODELS.has(name):
        raise UsageError(_unknown(name, built_in))
    return _make(MODELS.find(name), name, rest)


def require_model(model: Any, name: str) -> None:
    """Raises UsageError, naming what it lacks to be a model."""
    if isinstance(model, type):
        raise UsageError(f"{model.__name__} is a class: give a model, such as {model.__name__}()")
    lacks = [part for part in ("init", "step") if not _has(model, part, name)]
    if lacks:
        raise UsageError(f"{name} is no model: it has no {' and no '.join(lacks)}")
    if not callable(model.step):
        raise UsageError(f"{name} is no model: its step is no method")
    if model.init is None:
        raise UsageError(f"model {name}: its init is None: a state is never None")
    try:
        hash(model.init)
    except TypeError as raised:
        raise UsageError(
            f"model {name}: {raised}: its init must be hashable, such as a tuple or a frozenset"
        ) from raised
    _require_meanings(getattr(model, "meanings", None), name)


def _require_meanings(meanings: object, name: str) -> None:
    if meanings is None:
        return
    if not isinstance(meanings, Mapping):
        raise UsageError(f"model {name}: its meanings are no mapping from an f to a Meaning")
    for f, meaning in meanings.items():
        if not isinstance(f, str) or not isinstance(meaning, Meaning):
            raise UsageError(f"model {name}: its meanings map {f!r} to {meaning!r}, no Meaning")
        if meaning.f not in meanings:
            raise UsageError(
                f"model {name}: its meanings take {f} for {meaning.f}, and don't say what that is"
            )


def _has(model: object, part: str, name: str) -> bool:
    try:
        getattr(model, part)
    except AttributeError:
        return False
    except Exception as raised:  # a foreign property may fail in any way
        raise UsageError(f"model {name}: its {part} failed: {_told(raised)}") from raised
    return True


def _found(module_name: str, place: str) -> object:
    """What stands at ``place`` in a module, which is imported."""
    module = import_named(module_name, f"--model {module_name}:{place}")
    found: object = module
    for part in place.split("."):
        if not hasattr(found, part):
            classes = [name for name, value in vars(module).items() if _is_class(value, module)]
            there = f": there are {', '.join(classes)}" if classes else ""
            raise UsageError(f"--model {module_name}:{place}: {module_name} has no {part}{there}")
        found = getattr(found, part)
    return found


def _is_class(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__


def _make(made_by: Any, name: str, options: str) -> Model:
    """An instance of a class, what a function gives, or an object that is a model already."""
    if isinstance(made_by, type) and not hasattr(made_by, "step"):
        lacks = "no step" if hasattr(made_by, "init") else "no init and no step"
        raise UsageError(f"{name} is no model: it has {lacks}")
    model: Any = made_by
    if isinstance(made_by, type) or (callable(made_by) and not hasattr(made_by, "step")):
        try:
            model = make_with(made_by, name, options)
        except UsageError:
            raise
        except Exception as raised:  # foreign code may fail in any way
            raise UsageError(f"model {name} can't be made: {_told(raised)}") from raised
    elif options:
        raise UsageError(f"model {name} is made already and takes no options, not {options!r}")
    require_model(model, name)
    made: Model = model
    return made


def _unknown(name: str, built_in: Iterable[str]) -> str:
    """With why what is installed can't be used: it may be what was meant."""
    there = dict.fromkeys((*built_in, *MODELS.names()))
    sentences = [
        f"no model {name!r}: there are {', '.join(there)}, and package.module:Class",
        *MODELS.problems(),
    ]
    return "; ".join(sentences)


def _told(raised: Exception) -> str:
    lines = str(raised).strip().splitlines()
    return f"{type(raised).__name__}: {lines[0]}" if lines else type(raised).__name__


# The door for models: classes with ``init`` and ``step``, by name.
#
# A distribution offers its models by an entry point of the group ``shalott.models``, which names
# a class or a tuple of classes; a module given to ``--load`` offers all that are defined in it.
# Our own come through the same door. The name is the class's ``name``, or else that of the class
# itself.

ModelClass = Callable[..., Model]


def is_model_class(value: object) -> bool:
    """Whether its instances have ``init`` and ``step``, as far as the class tells."""
    if not isinstance(value, type) or getattr(value, "_is_protocol", False):
        return False
    has_init = hasattr(value, "init") or any(
        "init" in vars(base).get("__annotations__", {}) for base in value.__mro__
    )
    return has_init and callable(getattr(value, "step", None))


def class_name(value: ModelClass) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else value.__name__


def _is_defined_in(value: object, module: ModuleType) -> bool:
    """Not merely imported there, but by a package from one of its own modules."""
    home = str(getattr(value, "__module__", ""))
    return home == module.__name__ or home.startswith(f"{module.__name__}.")


MODELS: Door[ModelClass] = Door(
    "model", "shalott.models", accepts=is_model_class, name_of=class_name, is_own=_is_defined_in
)
