"""The door for models: classes with ``init`` and ``step``, by name.

A distribution offers its models by an entry point of the group ``shalott.models``, which names a
class or a tuple of classes; a module given to ``--load`` offers all that are defined in it. Our own
come through the same door. The name is the class's ``name``, or else that of the class itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from shalott.checkers.models.base import Model
from shalott.core.doors import Door

ModelClass = Callable[..., Model]


def is_model_class(value: Any) -> bool:
    """Whether its instances have ``init`` and ``step``, as far as the class tells."""
    if not isinstance(value, type) or getattr(value, "_is_protocol", False):
        return False
    has_init = hasattr(value, "init") or any(
        "init" in vars(base).get("__annotations__", {}) for base in value.__mro__
    )
    return has_init and callable(getattr(value, "step", None))


def class_name(value: ModelClass) -> str:
    """What a class of models is called."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else value.__name__


def _is_defined_in(value: Any, module: ModuleType) -> bool:
    """Not merely imported there, but by a package from one of its own modules."""
    home = str(value.__module__)
    return home == module.__name__ or home.startswith(f"{module.__name__}.")


MODELS: Door[ModelClass] = Door(
    "model",
    "shalott.models",
    accepts=is_model_class,
    name_of=class_name,
    is_own=_is_defined_in,
)
