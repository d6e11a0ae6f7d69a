"""Mutants: a module of a broker with one thing changed, told by a name and a sentence.

After mutation testing (DeMillo, Lipton, Sayward, "Hints on test data selection", IEEE Computer
1978). What is tested here is the search: a mutant that it does not find says which fault, workload
or checker it lacks. Two kinds: those that an operator makes of every place that it fits
(operators.py), and those that were written by hand, as a tired developer would have
(by_hand.py and the lists beside it).

A change is a ``Splice``: some statements of one body become others. It is made on a tree that was
parsed for it, so the sources stay as they are; an import hook (harness/search/changed_code.py) puts
it in force in a process of its own.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from shalott.core.errors import HarnessError
from shalott.harness.search.changed_code import ENTERED, ChangedModule

PACKAGE = "shalott.broker"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class StaleMutant(HarnessError):
    """What a mutant changes is not in the sources any more, or is there more than once."""


@dataclass(frozen=True, slots=True)
class Splice:
    """``body[place : place + count]`` becomes ``new``. ``body`` is a list of the tree itself."""

    body: list[ast.stmt]
    place: int
    count: int
    new: Sequence[ast.stmt]
    breaks: str = ""

    def perform(self, *, mark: bool = True) -> None:
        """Change the tree. ``mark``: and have it call what counts that it is entered."""
        old = self.body[self.place]
        called = ast.Expr(ast.Call(ast.Name(ENTERED, ast.Load()), [], []))
        new = [*([called] if mark else []), *self.new]
        if not new and len(self.body) == self.count:
            new = [ast.Pass()]
        for each in new:
            if not hasattr(each, "lineno"):
                ast.copy_location(each, old)
        self.body[self.place : self.place + self.count] = new


class Change(Protocol):
    """Finds in a function (or a module) what is to be changed. Raises StaleMutant."""

    def splice(self, scope: ast.AST) -> Splice: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """``module``: below shalott.broker. ``function``: qualified; "": the module itself.
    ``which``: of the operator's in that function. ``equivalent``: why it can't be noticed."""

    system: str
    module: str
    function: str
    operator: str
    which: str
    breaks: str
    change: Change
    equivalent: str = ""

    @property
    def name(self) -> str:
        parts = (self.system, self.module, self.function or "module", self.operator, self.which)
        return "/".join(parts)

    def changed(self) -> ChangedModule:
        """The module as it is imported where the mutant is in force. Raises StaleMutant."""
        name = f"{PACKAGE}.{self.module}"
        tree = self._tree(mark=True)
        return ChangedModule(name, str(source_path(self.module)), ast.fix_missing_locations(tree))

    def fingerprint(self) -> str:
        """Of what is in force: two mutants of one name with another text are two."""
        text = ast.unparse(self._tree(mark=False))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def diff(self) -> Iterator[str]:
        """The changed lines, as a unified diff of the trees' own texts."""
        before = ast.unparse(parse_module(self.module)).splitlines()
        after = ast.unparse(self._tree(mark=False)).splitlines()
        path = f"{self.module.replace('.', '/')}.py"
        yield from difflib.unified_diff(before, after, path, path, lineterm="", n=4)

    def _tree(self, *, mark: bool) -> ast.Module:
        tree = parse_module(self.module)
        scope: ast.AST = functions_of(tree).get(self.function, tree) if self.function else tree
        if self.function and scope is tree:
            raise StaleMutant(f"{self.name}: there is no {self.function} in {self.module}")
        try:
            self.change.splice(scope).perform(mark=mark and bool(self.function))
        except StaleMutant as error:
            raise StaleMutant(f"{self.name}: {error}") from error
        return tree


@cache
def source_path(module: str) -> Path:
    """Where a module of the broker has its source. Raises StaleMutant."""
    try:
        found = find_spec(f"{PACKAGE}.{module}")
    except ModuleNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise StaleMutant(f"there is no module {PACKAGE}.{module}")
    return Path(found.origin)


def parse_module(module: str) -> ast.Module:
    """A tree of its own for each who asks. Raises StaleMutant."""
    path = source_path(module)
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def unplaced(text: str) -> list[ast.stmt]:
    """Statements without lines of their own: they get those of what they replace."""
    statements = ast.parse(textwrap.dedent(text)).body
    for node in (inner for each in statements for inner in ast.walk(each)):
        for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            vars(node).pop(name, None)
    return statements


def functions_of(tree: ast.Module) -> dict[str, Function]:
    """Functions and methods by qualified name; those inside of functions belong to these."""
    return dict(_functions_in(tree, ""))


def _functions_in(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in scope.body:
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions_in(node, f"{prefix}{node.name}.")


_Statement = tuple[list[ast.stmt], int, ast.stmt]


def statements_of(scope: ast.AST) -> Iterator[_Statement]:
    """Every statement within, in the order of the sources: its body, its place there, itself."""
    for _, value in ast.iter_fields(scope):
        if not isinstance(value, list):
            continue
        for place, each in enumerate(value):
            if isinstance(each, ast.stmt):
                yield value, place, each
            if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case):
                yield from statements_of(each)
