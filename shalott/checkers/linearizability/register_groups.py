"""Several registers, told apart where no operation touches two of them.

Linearizability is local (Herlihy & Wing 1990): registers that no operation joins, not even by way
of others, are objects of their own, and each group of them is checked alone. One register is
decided fast where three together are not (P-compositionality: Horn & Kroening, FORTE 2015).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.concurrent import FAIL, FORM, NOTHING, OK, ConcurrentHistory, Values
from shalott.checkers.history.value_text import value_text

Ints = npt.NDArray[np.int64]
Node = tuple[int, Hashable]  # a register: the history's key, and its name there

_SHOWN: Final = 3  # names of a group


def by_group(history: ConcurrentHistory) -> ConcurrentHistory:
    """A key for each group of registers; ``history`` itself if none can be told apart, or if a
    value is none of several registers (the model says so when it comes to it)."""
    kinds, kind_of = _kinds(history)
    try:
        touched = [_touched(history, kind) for kind in kinds]
    except ValueError:
        return history
    groups = _Groups()
    for kind, nodes in zip(kinds, touched, strict=True):
        groups.join(nodes, are_joined=kind[4] != FAIL)
    keys = {kind[0] for kind in kinds}
    if groups.count() <= len(keys):
        return history
    first = {key: next((node for node in groups.nodes if node[0] == key), None) for key in keys}
    codes, names = dict[Node | int, int](), list[str]()
    of_kind = np.zeros(len(kinds), dtype=np.int32)
    for at, (kind, nodes) in enumerate(zip(kinds, touched, strict=True)):
        node = nodes[0] if nodes else first[kind[0]]
        group = kind[0] if node is None else groups.find(node)
        if group not in codes:
            codes[group] = len(names)
            own = () if node is None or groups.count(kind[0]) == 1 else groups.names_with(node)
            names.append(_label(history.key.names[kind[0]], own))
        of_kind[at] = codes[group]
    return replace(history, key=Words(of_kind[kind_of], tuple(names)))


def _kinds(history: ConcurrentHistory) -> tuple[list[list[int]], Ints]:
    """The distinct operations, as codes of key, f, argument, result and type; which one each is."""
    columns = (
        history.key.codes, history.f.codes, _forms(history.argument), _forms(history.result),
        history.type,
    )  # fmt: skip
    kind_of = np.zeros(len(history), dtype=np.int64)
    for column in columns:
        both = kind_of * (int(column.max(initial=0)) + 3) + column + 2
        _, first, kind_of = np.unique(both, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1).tolist(), kind_of


def _forms(values: Values) -> Ints:
    """Which form each is, -1: nothing, -2: an integer, which is no value of several registers."""
    return np.where(values.kind == FORM, values.number, np.where(values.kind == NOTHING, -1, -2))


def _touched(history: ConcurrentHistory, kind: Sequence[int]) -> list[Node]:
    """The registers of an operation. Raises ValueError: it is none of several registers."""
    key, f, argument, result, type_ = kind
    name = history.f.names[f]
    found: list[Hashable] = []
    if name != "read":
        found += _names(history.argument, argument, name)
    if name != "write" and type_ == OK:
        found += _names(history.result, result, name)
    return [(key, each) for each in dict.fromkeys(found)]


def _names(values: Values, form: int, f: str) -> list[Hashable]:
    if form == -1:
        return []
    place, length = (1, 3) if f == "txn" else (0, 2)
    value = values.forms[form] if form >= 0 else None
    if not isinstance(value, tuple | frozenset):
        raise ValueError
    if not all(isinstance(each, tuple) and len(each) == length for each in value):
        raise ValueError
    return [each[place] for each in value if isinstance(each, tuple)]


class _Groups:
    """Disjoint sets of registers."""

    def __init__(self) -> None:
        self.nodes: dict[Node, Node] = {}  # each one's parent; its own: it stands for its group

    def find(self, node: Node) -> Node:
        while self.nodes[node] != node:
            self.nodes[node] = node = self.nodes[self.nodes[node]]
        return node

    def join(self, nodes: Sequence[Node], *, are_joined: bool) -> None:
        for node in nodes:
            self.nodes.setdefault(node, node)
            if are_joined:
                self.nodes[self.find(node)] = self.find(nodes[0])

    def count(self, key: int | None = None) -> int:
        """Of a key, or of all."""
        tops = [node for node, parent in self.nodes.items() if node == parent]
        return sum(key is None or node[0] == key for node in tops)

    def names_with(self, node: Node) -> list[Hashable]:
        group = self.find(node)
        return [each[1] for each in self.nodes if self.find(each) == group]


def _label(key: str, names: Sequence[Hashable]) -> str:
    texts = (name if isinstance(name, str) else value_text(name) for name in names[:_SHOWN])
    shown = ", ".join(map(str, texts))
    more = " ..." if len(names) > _SHOWN else ""
    return " ".join(filter(None, (key, shown + more)))
