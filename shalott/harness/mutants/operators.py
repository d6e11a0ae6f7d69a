"""Operators: what is changed at every place of a function where it can be.

Each is a function from a function's tree to the splices that it offers, in the order of the
sources, so that a mutant is named by its place among those of its function. What would not even
run (a name that is used without a value) is not offered.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shalott.harness.mutants.mutant import (
    Function,
    Splice,
    StaleMutant,
    statements_of,
    unplaced,
)

SHOWN = 60  # characters of code in a sentence
SYNCS = ("sync", "sync_dir", "flush", "persist", "save", "wait_durable", "wait_flushed")
STRICTER: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
# What only speaks: without it a broker does the same.
SPEAKS = ("debug", "info", "warning", "error", "exception", "note", "log")
Simple = ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign


def drop_call(function: Function) -> Iterator[Splice]:
    """A call whose answer is not used is not made."""
    for body, place, call in _calls(function):
        if _called(call) not in (*SYNCS, *SPEAKS):
            yield Splice(body, place, 1, (), f"does not call `{_shown(call)}`")


def skip_sync(function: Function) -> Iterator[Splice]:
    """What makes something durable is not called."""
    for body, place, call in _calls(function):
        if _called(call) in SYNCS:
            yield Splice(body, place, 1, (), f"skips `{_shown(call)}`")


def drop_await(function: Function) -> Iterator[Splice]:
    """What should be awaited is begun, and goes on beside what follows."""
    for body, place, call in _calls(function):
        statement = body[place]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Await):
            (begin,) = unplaced("__import__('asyncio').ensure_future()")
            assert isinstance(begin, ast.Expr) and isinstance(begin.value, ast.Call)
            begin.value.args = [statement.value.value]
            yield Splice(body, place, 1, (begin,), f"does not wait for `{_shown(call)}`")


def boundary(function: Function) -> Iterator[Splice]:
    """A comparison includes its boundary where it excluded it, or the other way round."""
    for body, place, statement in statements_of(function):
        for number, old in enumerate(_comparisons(statement)):
            changed = copy.deepcopy(statement)
            node, index = _comparisons(changed)[number]
            node.ops[index] = STRICTER[type(node.ops[index])]()
            told = f"has `{_shown(node)}` for `{_shown(old[0])}`"
            yield Splice(body, place, 1, (changed,), told)


def drop_branch(function: Function) -> Iterator[Splice]:
    """What is done under a condition is never done; or what is done otherwise."""
    for body, place, statement in statements_of(function):
        if isinstance(statement, ast.If):
            test = _shown(statement.test)
            yield Splice(body, place, 1, statement.orelse, f"does nothing if `{test}`")
            if statement.orelse:
                changed = copy.copy(statement)
                changed.orelse = []
                yield Splice(body, place, 1, (changed,), f"does nothing unless `{test}`")


def swap(function: Function) -> Iterator[Splice]:
    """Two statements that follow one another are done the other way round."""
    for body, place, first in statements_of(function):
        second = body[place + 1] if place + 1 < len(body) else None
        if not (isinstance(first, Simple) and isinstance(second, Simple)):
            continue
        if _is_docstring(first) or _names(first, ast.Store) & _names(second, ast.Load):
            continue
        told = f"does `{_shown(second)}` before `{_shown(first)}`"
        yield Splice(body, place, 2, (second, first), told)


def forget(function: Function) -> Iterator[Splice]:
    """What is to be remembered beyond the call is not: an attribute keeps its old value."""
    if function.name in ("__init__", "__post_init__"):
        return
    for body, place, statement in statements_of(function):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
        if targets and all(isinstance(each, ast.Attribute | ast.Subscript) for each in targets):
            yield Splice(body, place, 1, (), f"forgets `{_shown(statement)}`")


OPERATORS: Mapping[str, Callable[[Function], Iterator[Splice]]] = {
    "drop-call": drop_call,
    "skip-sync": skip_sync,
    "drop-await": drop_await,
    "boundary": boundary,
    "drop-branch": drop_branch,
    "swap": swap,
    "forget": forget,
}


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """The change that an operator offers as its ``number``th of a function, from 0."""

    operator: str
    number: int

    def splice(self, scope: ast.AST) -> Splice:
        assert isinstance(scope, Function)
        offered = list(OPERATORS[self.operator](scope))
        if self.number >= len(offered):
            raise StaleMutant(f"there are {len(offered)} places for {self.operator} only")
        return offered[self.number]


def _calls(function: Function) -> Iterator[tuple[list[ast.stmt], int, ast.Call]]:
    """Statements that are a call, awaited or not."""
    for body, place, statement in statements_of(function):
        value = statement.value if isinstance(statement, ast.Expr) else None
        value = value.value if isinstance(value, ast.Await) else value
        if isinstance(value, ast.Call):
            yield body, place, value


def _called(call: ast.Call) -> str:
    named = call.func
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def _comparisons(statement: ast.stmt) -> list[tuple[ast.Compare, int]]:
    """Those of the statement itself, not of what stands in its bodies."""
    found: list[tuple[ast.Compare, int]] = []
    todo: list[ast.AST] = [
        child for child in ast.iter_child_nodes(statement) if not isinstance(child, _BLOCKS)
    ]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Compare):
            found += [(node, at) for at, each in enumerate(node.ops) if type(each) in STRICTER]
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _BLOCKS)]
    return found


_BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
