"""Who may import whom: docs/architecture.md, sections 2 and 6, as one table.

A module belongs to the room with the longest matching prefix. It may import its own room, the
rooms, modules and libraries that its row names, and the standard library. What stands under
``lazily`` may only be imported inside a function (or for type checking), so that starting the
command costs nothing for a backend that is not used. Imports for type checking count: the arrows
hold for types too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.tidy.sources import PACKAGES, Source, is_within

FLOW_LIBRARIES = (
    "msgspec",
    "pyarrow",
    "numpy",
    "typer",
    "rich",
    "jinja2",
    "markupsafe",
)  # the last is jinja2's
SPINE = tuple(
    f"harness.{name}"
    for name in ("client", "errors", "generator", "history", "op", "plan", "rng", "workload")
)


@dataclass(frozen=True, slots=True)
class Room:
    """A row: the modules it holds and what these may import. Names are dotted prefixes."""

    modules: tuple[str, ...]
    ours: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()
    located: tuple[str, ...] = ()  # packages imported bare, to learn where their files lie
    never: tuple[str, ...] = ()  # of the standard library


ROOMS: tuple[Room, ...] = (
    Room(("broker",), libraries=("pamqp", "msgspec", "h11")),
    Room(
        tuple(name for name in SPINE if name != "harness.history"),
        ours=SPINE,
        libraries=("msgspec",),
    ),
    Room(("harness.history",), ours=SPINE, libraries=("msgspec", "pyarrow", "numpy")),
    Room(
        ("checkers",),
        ours=("harness.op", "harness.history", "harness.errors"),
        libraries=("msgspec", "pyarrow", "numpy"),
        never=("asyncio",),
    ),
    Room(
        ("checkers.engine",),
        ours=("checkers", "harness.op", "harness.history", "harness.errors"),
        libraries=("msgspec", "pyarrow", "numpy", "cffi"),
        never=("asyncio",),
    ),
    Room(("workloads",), ours=(*SPINE, "checkers"), libraries=("msgspec",)),
    Room(
        ("workloads.clients",),
        ours=("workloads", *SPINE, "checkers", "broker.remoting", "cluster.base", "cluster.http"),
        libraries=("msgspec", "pamqp", "pika", "aio_pika"),
    ),
    Room(
        ("cluster",),
        ours=(*SPINE, "broker.config"),
        libraries=("msgspec", "h11", "docker", "paramiko", "tenacity", "requests"),
        located=("broker",),
    ),
    Room(
        ("cluster.systems",),
        ours=(
            *("cluster", *SPINE, "broker.config", "broker.events"),
            *("broker.remoting", "broker.rocketmq.config"),
        ),
        libraries=("msgspec", "h11", "tenacity"),
    ),
    Room(
        ("cluster.sim",),
        ours=("cluster", *SPINE, "broker"),
        libraries=("msgspec",),
    ),
    Room(("nemesis",), ours=(*SPINE, "cluster.base"), libraries=("msgspec",)),
    Room(
        ("harness",),
        ours=(
            *SPINE,
            "checkers",
            "workloads",
            "nemesis",
            "cluster.base",
            "broker.errors",
            "broker.known_bugs",
        ),
        libraries=FLOW_LIBRARIES,
        lazily=("cluster",),
    ),
    # The simulation is in this process: its runs can't be started without its loop.
    Room(
        ("harness.sim_world", "harness.simulate"),
        ours=(*SPINE, "harness", "checkers", "workloads", "nemesis", "cluster"),
        libraries=FLOW_LIBRARIES,
    ),
    # The command line alone reaches the Spark jobs, when `report` is asked for.
    Room(
        ("harness.commands",),
        ours=(*SPINE, "harness", "checkers", "workloads", "nemesis", "cluster.base"),
        libraries=FLOW_LIBRARIES,
        lazily=("cluster", "spark_analysis"),
    ),
    Room(
        ("spark_analysis",),
        ours=("harness.history", "harness.errors", "checkers"),
        libraries=("pyspark", "pyarrow", "numpy", "pandas", "msgspec", "rich"),
    ),
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; ``names`` are what a ``from`` import takes out: modules, perhaps."""

    line: int
    target: str
    names: tuple[str, ...]
    lazy: bool


def room_of(module: str) -> Room:
    """The row with the longest prefix of ``module``."""
    found = [
        (len(prefix), room)
        for room in ROOMS
        for prefix in room.modules
        if is_within(module, (prefix,))
    ]
    return max(found, key=lambda pair: pair[0])[1]


def imports(source: Source) -> Iterator[Import]:
    """Every import of a file, those inside functions and ``importlib.import_module("...")`` too."""
    yield from _imports_in(source.tree, source, lazy=False)


def _imports_in(node: ast.AST, source: Source, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(child.lineno, alias.name, (), lazy)
        elif isinstance(child, ast.ImportFrom):
            names = tuple(alias.name for alias in child.names)
            yield Import(child.lineno, _absolute(child, source), names, lazy)
        elif isinstance(child, ast.Call) and (named := _dynamic_import(child)) is not None:
            yield Import(child.lineno, named, (), lazy)
        is_late = isinstance(
            child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ) or _is_type_checking(child)
        yield from _imports_in(child, source, lazy=lazy or is_late)


def _absolute(node: ast.ImportFrom, source: Source) -> str:
    if node.level == 0:
        return node.module or ""
    base = source.package.split(".")
    base = base[: len(base) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def _dynamic_import(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("import_module", "__import__") or not call.args:
        return None
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def import_violations(source: Source, known_modules: Sequence[str]) -> list[str]:
    """One sentence for each import that the table does not allow."""
    room = room_of(source.module)
    known = dict.fromkeys(known_modules)
    found = []
    for imported in imports(source):
        submodules = [f"{imported.target}.{name}" for name in imported.names]
        targets = [name for name in submodules if name in known]
        if len(targets) < len(imported.names) or not imported.names:
            targets.append(imported.target)
        for target in targets:
            complaint = _complaint(room, target, lazy=imported.lazy)
            if complaint is not None:
                found.append(f"{source.path}:{imported.line}: {complaint}")
    return found


def _complaint(room: Room, target: str, *, lazy: bool) -> str | None:
    where = f"room {room.modules[0]}"
    top = target.partition(".")[0]
    if target in room.located or is_within(target, room.modules):
        return None
    if top in sys.stdlib_module_names:  # __future__ is one of them
        if is_within(target, room.never):
            return f"{where} never imports {target}"
        return None
    if top not in PACKAGES:
        if top in room.libraries:
            return None
        allowed = ", ".join(room.libraries) or "none"
        return f"{where} may not use the library {top} (it may use: {allowed})"
    if is_within(target, room.ours):
        return None
    if is_within(target, room.lazily):
        return None if lazy else f"{where} imports {target} only inside a function"
    allowed = ", ".join(room.ours + room.lazily) or "itself"
    return f"{where} may not import {target} (it may import: {allowed})"
