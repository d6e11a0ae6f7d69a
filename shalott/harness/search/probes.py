"""Probes: which functions and branches of a broker a run comes to, and how often.

A search that learns from its runs (corpus.py) has every module of ``shalott.broker`` compiled with
a counter at the beginning of each function and of each arm of its conditions and loops, in the same
way as mutants come into force (changed_code.py). A run then shows features: numbers that stand for
a place, and for about how often it was come to (1, 2, 3, 4-7, 8-15, ...), as AFL counts edges.

Lines stay what they are in the sources. This module is imported before any other of the package.
"""

from __future__ import annotations

import ast
import base64
import pickle
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from shalott.harness.search.changed_code import ENTERED, ChangedModule, entered

PROBED = "shalott.broker."
COUNTS = "__probe_counts__"
Scope = ast.FunctionDef | ast.AsyncFunctionDef
Features = frozenset[int]


class Probes:
    """Those of one process. ``modules``: that were imported with them."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.modules: list[str] = []
        self._features: list[int] = []  # of each counter

    @property
    def are_in_force(self) -> bool:
        return bool(self.modules)

    def add(self, name: str) -> int:
        self.counts.append(0)
        self._features.append(feature(name))
        return len(self.counts) - 1

    def clear(self) -> None:
        self.counts[:] = [0] * len(self.counts)

    def features(self) -> Iterator[int]:
        """Of what was come to since they were cleared: each place, and with about how often; and
        the modules that are there."""
        yield from map(feature, self.modules)
        for number, count in enumerate(self.counts):
            if count:
                bucket = count if count <= 3 else count.bit_length() + 1
                yield self._features[number]
                yield (self._features[number] + bucket * 0x9E3779B1) & 0xFFFFFFFF


probes = Probes()


def feature(name: str) -> int:
    """The number that stands for a place, the same in every process."""
    return zlib.crc32(name.encode())


def packed(features: Iterable[int]) -> str:
    """As text of a line of a campaign."""
    numbers = array("I", sorted(features)).tobytes()
    return base64.b64encode(zlib.compress(numbers)).decode() if numbers else ""


def unpacked(text: str) -> Features:
    numbers = array("I")
    if text:
        numbers.frombytes(zlib.decompress(base64.b64decode(text)))
    return frozenset(numbers)


def functions_in(source: str, module: str) -> list[str]:
    """The names of the probes of its functions, but of those that do nothing."""
    return [name for name, each in _functions(ast.parse(source), module) if not _is_stub(each)]


def _is_stub(function: Scope) -> bool:
    """A protocol's, or one that only says that it is not there."""
    return all(
        isinstance(each, ast.Pass | ast.Raise)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in function.body
    )


def _functions(scope: ast.AST, prefix: str) -> Iterator[tuple[str, Scope]]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, Scope):
            yield f"{prefix}:{node.name}", node
            yield from _functions(node, f"{prefix}:{node.name}")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}:{node.name}")
        else:
            yield from _functions(node, prefix)


def probed(tree: ast.Module, module: str, into: Probes) -> ast.Module:
    """The tree with its counters; they are in ``into`` from now on."""
    for name, function in list(_functions(tree, module)):
        for body in _arms(function):
            line = body[0].lineno
            _count(body, into.add(f"{name}@{line}"))
        _count(function.body, into.add(name))
    return tree


def _arms(function: Scope) -> Iterator[list[ast.stmt]]:
    """Bodies that are not always come to; those of inner functions are theirs."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Scope | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While):
            yield node.body
            if node.orelse and not isinstance(node.orelse[0], ast.If):
                yield node.orelse
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            yield node.body
        waiting += ast.iter_child_nodes(node)


def _count(body: list[ast.stmt], number: int) -> None:
    """``counts[number] += 1``, behind a docstring."""
    place = 0
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        place = 1
    target = ast.Subscript(ast.Name(COUNTS, ast.Load()), ast.Constant(number), ast.Store())
    statement = ast.AugAssign(target, ast.Add(), ast.Constant(1))
    ast.copy_location(statement, body[0])
    body.insert(place, ast.fix_missing_locations(statement))


class ProbedModules(MetaPathFinder):
    """Finds the broker's modules, and has them loaded with their counters."""

    def __init__(self, changes: Sequence[ChangedModule]) -> None:
        self._changes = {change.name: change for change in changes}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PROBED):
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(found.loader, self._changes.get(fullname))
        return found


class _Loader(SourceFileLoader):
    """Compiles a module's tree, or what it was changed to, with counters."""

    def __init__(self, usual: SourceFileLoader, change: ChangedModule | None) -> None:
        super().__init__(usual.name, usual.path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(self.get_data(self.path)) if self._change is None else self._change.tree
        probes.modules.append(fullname)
        return compile(probed(tree, fullname, probes), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, COUNTS, probes.counts)
        setattr(module, ENTERED, entered)
        before = list(probes.counts)
        super().exec_module(module)
        more = len(probes.counts) - len(before)
        probes.counts[:] = [*before, *([0] * more)]  # what an import calls is no part of a run


def put_in_force(changes: Sequence[ChangedModule]) -> None:
    """Have the broker's modules imported with counters from now on. Raises ImportError if one was
    before."""
    early = [name for name in sys.modules if name.startswith(PROBED)]
    if early:
        raise ImportError(f"{early[0]} was imported before it could be probed")
    sys.meta_path.insert(0, ProbedModules(changes))


def call_probed(changes: Sequence[ChangedModule], call: bytes, *arguments: object) -> None:
    """What a new process begins with whose runs are learned from; as ``call_changed``."""
    put_in_force(changes)
    function, last = pickle.loads(call)
    function(*arguments, *last)
