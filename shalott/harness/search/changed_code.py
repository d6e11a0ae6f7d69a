"""Modules whose code is changed in one process, without a change of any file.

A process that runs a mutant (harness/mutants) is told before its first import which modules are to
be other than their sources: an import hook compiles the changed tree in their place. The tree keeps
the lines of the sources, so tracebacks lead to them. A module that is there already would go on as
it is, so this module imports nothing of the package, and ``put_in_force`` refuses to be late.

A changed tree calls ``ENTERED`` where it is changed: a mutant that no run ever enters asks for
another workload, and one that is entered and not found for another fault or checker.
"""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

ENTERED = "__changed_code_is_entered__"  # what a changed tree calls


@dataclass(frozen=True, slots=True)
class ChangedModule:
    """``name`` as it is imported; ``tree`` in place of its source, which is at ``path``."""

    name: str
    path: str
    tree: ast.Module


class EnteredCount:
    """How often changed code was entered in this process."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self) -> None:
        self.total += 1


entered = EnteredCount()


class ChangedModules(InspectLoader, MetaPathFinder):
    """Finds and loads the changed modules; all others are found as ever."""

    def __init__(self, changes: Sequence[ChangedModule]) -> None:
        self._changes = {change.name: change for change in changes}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self._changes.get(fullname)
        if change is None:
            return None
        spec = ModuleSpec(fullname, self, origin=change.path)
        spec.has_location = True  # so that it says where its source is
        return spec

    def get_code(self, fullname: str) -> CodeType:
        change = self._changes[fullname]
        return compile(change.tree, change.path, "exec")

    def get_source(self, fullname: str) -> str:
        return ast.unparse(self._changes[fullname].tree)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, ENTERED, entered)
        super().exec_module(module)


def put_in_force(changes: Sequence[ChangedModule]) -> None:
    """Have the changed trees imported from now on. Raises ImportError if one is too late."""
    for change in changes:
        if change.name in sys.modules:
            raise ImportError(f"{change.name} was imported before it could be changed")
        if find_spec(change.name) is None:
            raise ImportError(f"there is no module {change.name}")
    if changes:
        sys.meta_path.insert(0, ChangedModules(changes))


def call_changed(changes: Sequence[ChangedModule], call: bytes, *arguments: object) -> None:
    """What a new process begins with. ``call``: a pickled function and its last arguments, which
    are read, and so imported, when the changes are in force."""
    put_in_force(changes)
    function, last = pickle.loads(call)
    function(*arguments, *last)
