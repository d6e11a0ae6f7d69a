"""Mutants written by hand: exact code before and after, in one function.

``before`` is one or several statements that follow one another, or an expression; what it matches
is compared as a tree, so comments and line breaks don't matter, and must be there exactly once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from shalott.harness.mutants.mutant import Mutant, Splice, StaleMutant, statements_of, unplaced

BY_HAND = "by-hand"  # in place of an operator's name


@dataclass(frozen=True, slots=True)
class CodeChange:
    """``after``: "" if nothing takes its place."""

    before: str
    after: str

    def splice(self, scope: ast.AST) -> Splice:
        old, new = unplaced(self.before), unplaced(self.after)
        found = list(_runs_of(scope, old))
        if not found and (expressions := _expressions(old, new)) is not None:
            found = list(_statements_with(scope, *expressions))
        if len(found) != 1:
            raise StaleMutant(f"what it changes is there {len(found)} times: {self.before}")
        body, place, changed = found[0]
        if changed is None:
            return Splice(body, place, len(old), new)
        return Splice(body, place, 1, (changed,))


def _expressions(old: list[ast.stmt], new: list[ast.stmt]) -> tuple[ast.expr, ast.expr] | None:
    """If both are one expression each."""
    both = [each.value for each in (*old, *new) if isinstance(each, ast.Expr)]
    return (both[0], both[1]) if len(old) == len(new) == 1 and len(both) == 2 else None


_Found = tuple[list[ast.stmt], int, ast.stmt | None]


def _runs_of(scope: ast.AST, wanted: list[ast.stmt]) -> Iterator[_Found]:
    """Where these statements follow one another."""
    told = [ast.dump(each) for each in wanted]
    for body, place, _ in statements_of(scope):
        if [ast.dump(each) for each in body[place : place + len(told)]] == told:
            yield body, place, None


def _statements_with(scope: ast.AST, old: ast.expr, new: ast.expr) -> Iterator[_Found]:
    """Statements in which ``old`` stands, with ``new`` put in its place, once for each place."""
    told = ast.dump(old)
    for body, place, statement in statements_of(scope):
        if any(ast.dump(each) == told for each in _own(statement)):
            exchange = _Exchange(told, new)
            changed = exchange.visit(statement)
            assert isinstance(changed, ast.stmt)
            for _ in range(exchange.count):
                yield body, place, changed


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is within a node, but not in its blocks."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _own(child)


class _Exchange(ast.NodeTransformer):
    def __init__(self, told: str, new: ast.expr) -> None:
        self._told, self._new = told, new
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.dump(node) == self._told:
            self.count += 1
            return self._new
        visited: ast.AST = self.generic_visit(node)
        return visited


@dataclass(frozen=True, slots=True)
class ByHand:
    """A system's list is made with one of these."""

    system: str

    def __call__(
        self,
        module: str,
        function: str,
        slug: str,
        before: str,
        after: str,
        breaks: str,
        *,
        equivalent: str = "",
    ) -> Mutant:
        """A mutant; ``breaks`` says what goes wrong, in one sentence without its full stop."""
        return Mutant(
            system=self.system,
            module=module,
            function=function,
            operator=BY_HAND,
            which=slug,
            breaks=breaks,
            change=CodeChange(before, after),
            equivalent=equivalent,
        )
