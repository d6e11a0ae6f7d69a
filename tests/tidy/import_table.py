"""Who may import whom: the rooms of the house, lowest first, as docs/architecture.md draws them.

A module belongs to the room with the longest matching prefix. It may import its own room, the
rooms that its row names, which all stand above it in this table (so no arrow points upwards), the
libraries it names, and the standard library. What stands under ``lazily`` may only be imported
inside a function (or for type checking), so that starting the command costs nothing for a backend
that is not used. Imports for type checking count: the arrows hold for types too.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tests.tidy.sources import PACKAGE, Source, is_within

FLOW_LIBRARIES = ("msgspec", "pyarrow", "numpy", "typer", "rich", "jinja2", "markupsafe")
COLUMNS = ("msgspec", "pyarrow", "numpy")


@dataclass(frozen=True, slots=True)
class Room:
    """A row: a dotted prefix (without the package's name) and what its modules may import."""

    name: str
    ours: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()
    located: tuple[str, ...] = ()  # packages imported bare, to learn where their files lie
    never: tuple[str, ...] = ()  # of the standard library


ROOMS: tuple[Room, ...] = (
    Room("core", libraries=COLUMNS),
    Room("broker.base", libraries=("msgspec", "h11")),
    Room("broker.raft", ("broker.base",), ("msgspec",)),
    Room("broker.rabbit", ("broker.base", "broker.raft"), ("pamqp", "msgspec", "h11")),
    Room("broker.rocket", ("broker.base", "broker.raft"), ("msgspec", "h11")),
    Room("broker", ("broker.base", "broker.rabbit", "broker.rocket"), ("msgspec",)),
    Room("checkers.engine", (), ("numpy", "cffi"), never=("asyncio",)),
    Room("checkers", ("core", "checkers.engine"), COLUMNS, never=("asyncio",)),
    Room("checkers.porcupine", ("core", "checkers", "checkers.engine"), (*COLUMNS, "cffi")),
    Room("cluster", ("core",), ("msgspec", "h11", "tenacity"), located=("shalott",)),
    Room("cluster.disks", ("core", "cluster"), ("msgspec",)),
    Room("cluster.packets", ("core", "cluster"), ("msgspec",)),
    Room("cluster.local", ("core", "cluster", "cluster.disks"), ("msgspec", "tenacity")),
    Room(
        "cluster.docker",
        ("core", "cluster", "cluster.disks", "cluster.packets"),
        ("msgspec", "docker", "requests", "tenacity"),
        located=("shalott",),
    ),
    Room(
        "cluster.ssh",
        ("core", "cluster", "cluster.disks", "cluster.packets"),
        ("msgspec", "paramiko"),
    ),
    Room(
        "cluster.existing",
        (
            *("core", "cluster", "cluster.disks", "cluster.local", "cluster.docker"),
            "cluster.ssh",
        ),
        ("msgspec", "docker"),
    ),
    Room("cluster.sim", ("core", "cluster", "broker.base"), ("msgspec",)),
    Room(
        "cluster.systems",
        (
            *("core", "cluster", "cluster.sim"),
            *("broker", "broker.base", "broker.rabbit", "broker.rocket"),
        ),
        ("msgspec", "h11", "tenacity"),
    ),
    Room(
        "cluster.compose",
        ("core", "cluster", "cluster.systems.record", "cluster.systems.settling"),
        ("msgspec", "yaml"),
    ),
    Room("nemesis", ("core", "cluster"), ("msgspec",)),
    Room(
        "clients",
        (
            *("core", "checkers", "cluster", "cluster.systems.record"),
            *("broker.base", "broker.rocket.remoting"),
        ),
        ("msgspec", "pamqp", "pika", "aio_pika", "rocketmq", "tenacity"),
    ),
    Room(
        "workloads",
        ("core", "checkers", "cluster.systems.record", "clients"),
        ("msgspec",),
    ),
    Room(
        "spark_analysis",
        ("core", "checkers"),
        (*COLUMNS, "rich", "pyspark", "pandas"),
        lazily=("workloads",),
        located=("shalott",),
    ),
    Room(
        "harness.report",
        ("core", "checkers", "cluster.systems.record", "workloads"),
        (*COLUMNS, "jinja2", "markupsafe"),
    ),
    Room("harness.store", ("core", "harness.report"), COLUMNS),
    Room(
        "harness.run",
        (
            *("core", "checkers", "cluster", "cluster.sim", "cluster.systems", "nemesis"),
            *("workloads", "harness.report", "harness.store"),
            *("cluster.ssh.inventory", "cluster.docker.reachable", "cluster.disks.of_nodes"),
            "cluster.existing.inventory",
        ),
        FLOW_LIBRARIES,
        lazily=(
            *("cluster.disks", "cluster.docker", "cluster.local", "cluster.ssh"),
            "cluster.existing",
        ),
    ),
    Room(
        "harness.conformance",
        (
            *("core", "cluster", "cluster.systems", "workloads"),
            *("harness.report", "harness.store", "harness.run"),
        ),
        ("msgspec",),
    ),
    Room(
        "harness.scenarios",
        ("core", "cluster", "cluster.systems", "nemesis", "workloads", "harness.run"),
        ("msgspec",),
    ),
    Room(
        "harness.search",
        (
            *("core", "checkers", "cluster", "cluster.systems", "nemesis", "workloads", "broker"),
            *("harness.report", "harness.store", "harness.run", "harness.scenarios"),
            *("broker.base", "cluster.sim", "spark_analysis"),
        ),
        FLOW_LIBRARIES,
    ),
    Room(
        "harness.shrinking",
        (
            *("core", "cluster.systems.record", "nemesis", "workloads", "harness.report"),
            *("harness.run", "harness.scenarios", "harness.search"),
        ),
        FLOW_LIBRARIES,
    ),
    Room(
        "harness.mutants",
        (
            *("core", "cluster.systems.record", "workloads", "harness.report", "harness.store"),
            *("harness.run", "harness.scenarios", "harness.search"),
        ),
        ("msgspec",),
    ),
    Room(
        "harness.originals",
        (
            *("core", "checkers", "cluster.systems", "harness.report", "harness.run"),
            *("broker", "broker.base"),
        ),
        FLOW_LIBRARIES,
    ),
    Room(
        "harness.published",
        ("core", "checkers", "harness.originals", "harness.report", "harness.run"),
        FLOW_LIBRARIES,
    ),
    Room(
        "harness.matrix",
        (
            *("core", "cluster.systems.record", "nemesis", "workloads"),
            *("harness.report", "harness.store", "harness.run"),
        ),
        FLOW_LIBRARIES,
    ),
    Room(
        "harness.fleet",
        (
            *("spark_analysis", "harness.report", "harness.store", "harness.matrix"),
            *("core", "harness.run", "nemesis"),
        ),
        (*COLUMNS, "jinja2", "markupsafe"),
    ),
    Room(
        "harness.serve",
        (
            *("core", "checkers", "harness.report", "harness.store", "harness.run"),
            "harness.matrix",
        ),
        (*COLUMNS, "jinja2", "starlette", "uvicorn"),
    ),
    Room(
        "harness.pictures",
        (*("core", "checkers", "harness.report", "harness.store", "harness.run"), "harness.matrix"),
        (*COLUMNS, "matplotlib"),
    ),
    Room(
        "harness.cli",
        (
            *("core", "checkers", "cluster.systems.record", "workloads"),
            *("harness.store", "harness.matrix", "harness.run", "harness.search", "harness.fleet"),
            *("harness.scenarios", "harness.shrinking", "broker", "broker.base", "nemesis"),
            *("cluster", "cluster.ssh.inventory", "harness.originals", "harness.published"),
            *("harness.report", "spark_analysis", "broker.rabbit.ctl", "broker.rabbit.config"),
            *("broker.rocket.config", "harness.conformance", "harness.mutants"),
        ),
        FLOW_LIBRARIES,
        lazily=(
            *("cluster.docker", "cluster.ssh", "checkers.porcupine", "harness.serve"),
            *("harness.pictures", "cluster.compose"),
        ),
    ),
    # Loaded by every pytest where the package is installed.
    Room(
        "harness.testing",
        ("core", "nemesis", "harness.report", "harness.run", "harness.cli"),
        ("pytest", "typer"),
    ),
    Room(
        "api",
        lazily=(
            *("core", "checkers", "workloads", "nemesis", "cluster", "cluster.systems.record"),
            *("cluster.systems.settling", "cluster.systems.rabbit.rabbitmq_log", "cluster.sim"),
            "broker.base",
        ),
    ),
)


# The same by top folder, lowest first: what each may import.
FOLDERS: Mapping[str, tuple[str, ...]] = {
    "core": (),
    "broker": (),
    "cluster": ("core", "broker"),
    "checkers": ("core",),
    "clients": ("core", "broker", "cluster", "checkers"),
    "workloads": ("core", "cluster", "checkers", "clients"),
    "nemesis": ("core", "cluster"),
    "spark_analysis": ("core", "checkers", "workloads"),
    "harness": (
        *("core", "broker", "cluster", "checkers"),
        *("workloads", "nemesis", "spark_analysis"),
    ),
    "api": ("core", "broker", "cluster", "checkers", "workloads", "nemesis"),
}
OUTSIDE = Room("the package itself")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; ``names`` are what a ``from`` import takes out: modules, perhaps."""

    line: int
    target: str
    names: tuple[str, ...]
    lazy: bool


def room_of(module: str) -> Room:
    """The row with the longest prefix of ``module``, which may begin with the package's name."""
    inner = module.removeprefix(f"{PACKAGE}.")
    found = [(len(room.name), room) for room in ROOMS if is_within(inner, (room.name,))]
    return max(found, key=lambda pair: pair[0])[1] if found else OUTSIDE


@cache
def imports(source: Source) -> tuple[Import, ...]:
    """Every import of a file, those inside functions and ``importlib.import_module("...")`` too."""
    named = any(word in source.text for word in ("import_module", "__import__"))
    return tuple(_imports_in(source.tree, source, lazy=False, named=named))


def _imports_in(node: ast.AST, source: Source, *, lazy: bool, named: bool) -> Iterator[Import]:
    """``named``: calls may import by name, so that expressions have to be searched too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not named:
            continue
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
        yield from _imports_in(child, source, lazy=lazy or is_late, named=named)


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


def targets_of(imported: Import, known: Mapping[str, None]) -> list[str]:
    """The modules that one import statement names, submodules among them."""
    submodules = [f"{imported.target}.{name}" for name in imported.names]
    targets = [name for name in submodules if name in known]
    if len(targets) < len(imported.names) or not imported.names:
        targets.append(imported.target)
    return targets


def import_violations(source: Source, known_modules: Sequence[str]) -> list[str]:
    """One sentence for each import that the table does not allow."""
    room = room_of(source.module)
    known = dict.fromkeys(known_modules)
    found = []
    for imported in imports(source):
        for target in targets_of(imported, known):
            complaint = _complaint(room, target, lazy=imported.lazy)
            if complaint is not None:
                found.append(f"{source.path}:{imported.line}: {complaint}")
    return found


def _complaint(room: Room, target: str, *, lazy: bool) -> str | None:
    where = f"room {room.name}"
    top = target.partition(".")[0]
    if target in room.located:
        return None
    if top in sys.stdlib_module_names:  # __future__ is one of them
        if is_within(target, room.never):
            return f"{where} never imports {target}"
        return None
    if top != PACKAGE:
        if top in room.libraries:
            return None
        allowed = ", ".join(room.libraries) or "none"
        return f"{where} may not use the library {top} (it may use: {allowed})"
    inner = target.removeprefix(f"{PACKAGE}.")
    other = room_of(inner)
    if other is room or any(
        is_within(inner, (prefix,)) and len(prefix) >= len(other.name) for prefix in room.ours
    ):
        return None
    if is_within(inner, room.lazily):
        return None if lazy else f"{where} imports {target} only inside a function"
    allowed = ", ".join(room.ours + room.lazily) or "itself"
    return f"{where} may not import {target} (it may import: {allowed})"


def drawn(rooms: Sequence[Room] = ROOMS) -> str:
    """The tables as docs/architecture.md shows them: a line a folder, then a line a room."""
    by_room = {room.name: tuple(dict.fromkeys((*room.ours, *room.lazily))) for room in rooms}
    return "\n".join(["```", *_arrows(FOLDERS), "", *_arrows(by_room), "```"])


def _arrows(table: Mapping[str, Sequence[str]]) -> Iterator[str]:
    width = max(len(name) for name in table)
    for name, below in table.items():
        lines = textwrap.wrap(", ".join(below), 119 - width - len(" ◄── ")) or [""]
        yield f"{name:<{width}} ◄── {lines[0]}" if lines[0] else name
        yield from (f"{'':<{width}}     {line}" for line in lines[1:])
