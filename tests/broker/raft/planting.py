"""Plants a mistake in the code under test: one place of a module's text is changed, and the code of
all functions in it is exchanged until the end of the block.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any


@contextmanager
def planted(module: ModuleType, old: str, new: str) -> Iterator[None]:
    """``old`` must be in the module exactly once."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {module.__name__}"
    namespace: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), f"{module.__file__} (planted)", "exec"), namespace)
    changed = dict(_functions(namespace, module.__name__))
    kept: list[tuple[FunctionType, CodeType]] = []
    try:
        for name, function in _functions(vars(module), module.__name__):
            kept.append((function, function.__code__))
            function.__code__ = changed[name].__code__
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


def _functions(namespace: dict[str, Any], module: str) -> Iterator[tuple[str, FunctionType]]:
    for name, value in namespace.items():
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield name, value
        elif inspect.isclass(value) and value.__module__ == module:
            for method, attribute in vars(value).items():
                inner = attribute.fget if isinstance(attribute, property) else attribute
                if isinstance(inner, FunctionType) and inner.__module__ == module:
                    yield f"{name}.{method}", inner
