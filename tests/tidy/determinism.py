"""What a broker may not do, so that one seed always gives one run.

The same node runs on an operating system and in a simulation; there anything that depends on the
wall clock, on memory addresses, on string hashing or on threads makes two runs of a seed differ.
Each ban below is a source of nondeterminism that was measured, with what to use instead. The
interpreter's audit hooks see only some of them, so the rule is static: it reads the syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tests.tidy.sources import Source, is_within

Finder = Callable[["Scope", ast.AST], bool]


@dataclass(frozen=True, slots=True)
class Ban:
    """One source of nondeterminism: how it is recognised and what to use instead."""

    name: str
    instead: str
    finds: Finder


@dataclass(frozen=True, slots=True)
class Scope:
    """What is needed to judge a node: what the imported names stand for, and which statements
    run once, in the body of a module or a class.
    """

    aliases: Mapping[str, str]
    once: frozenset[ast.stmt]
    harmless: frozenset[ast.AST] = frozenset()  # see tests/tidy/simulated.py

    def dotted(self, node: ast.AST) -> str:
        """``asyncio.all_tasks`` for what means it, however it was imported; else ""."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""


def module(*names: str) -> Finder:
    """Any import of these modules."""

    def finds(scope: Scope, node: ast.AST) -> bool:
        if isinstance(node, ast.Import):
            return any(is_within(alias.name, names) for alias in node.names)
        return (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and is_within(node.module or "", names)
        )

    return finds


def name(*names: str) -> Finder:
    """Any mention of these dotted names, as an expression or in a ``from`` import."""

    def finds(scope: Scope, node: ast.AST) -> bool:
        if isinstance(node, ast.ImportFrom):
            return any(f"{node.module}.{alias.name}" in names for alias in node.names)
        return isinstance(node, ast.Attribute) and scope.dotted(node) in names

    return finds


def method(*names: str) -> Finder:
    """A call of a method by one of these names, on whatever object."""

    def finds(scope: Scope, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in names
        )

    return finds


def builtin(*names: str) -> Finder:
    """A call of these builtins, or their use as a sort key."""

    def finds(scope: Scope, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and scope.dotted(node.func) in names
        return (
            isinstance(node, ast.keyword)
            and node.arg == "key"
            and isinstance(node.value, ast.Name)
            and node.value.id in names
        )

    return finds


def either(*finders: Finder) -> Finder:
    return lambda scope, node: any(finds(scope, node) for finds in finders)


SET_NAMES = ("set", "frozenset")


def set_object(scope: Scope, node: ast.AST) -> bool:
    """A set, made or annotated; also the set that an operator on dictionary views makes."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub
    ):
        return _is_view(node.left) or _is_view(node.right)
    return isinstance(node, ast.Name) and node.id in SET_NAMES


def _is_view(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("keys", "items")
        and not node.args
    )


READ_ONLY = (
    "Mapping",
    "Sequence",
    "MappingProxyType",
    "tuple",
    "ClassVar[Mapping",
    "ClassVar[Sequence",
)
MAKERS = (
    "list",
    "dict",
    "bytearray",
    "defaultdict",
    "deque",
    "Counter",
    "OrderedDict",
    "count",
    "cycle",
)


def module_state(scope: Scope, node: ast.AST) -> bool:
    """A container or counter bound in a module's or class's body, a ``global``, a cached function.

    A table of constants is welcome, annotated as Mapping or Sequence: mypy then forbids writing.
    """
    if isinstance(node, ast.Global):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(_is_cache(scope, decorator) for decorator in node.decorator_list)
    return node in scope.once and _binds_mutable(scope, node)


def _is_cache(scope: Scope, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return scope.dotted(called) in ("functools.cache", "functools.lru_cache")


def _binds_mutable(scope: Scope, statement: ast.AST) -> bool:
    if isinstance(statement, ast.AnnAssign):
        if ast.unparse(statement.annotation).removeprefix("Final[").startswith(READ_ONLY):
            return False
        value = statement.value
    elif isinstance(statement, ast.Assign):
        if any(
            isinstance(target, ast.Name) and target.id.startswith("__")
            for target in statement.targets
        ):
            return False  # __all__, __slots__
        value = statement.value
    else:
        return False
    if isinstance(value, ast.Call):
        return scope.dotted(value.func).rpartition(".")[2] in MAKERS
    return isinstance(value, ast.List | ast.Dict | ast.ListComp | ast.DictComp)


def context_argument(scope: Scope, node: ast.AST) -> bool:
    """A context passed by hand lets a callback escape from its simulated process."""
    return (
        isinstance(node, ast.keyword)
        and node.arg == "context"
        and not isinstance(node.value, ast.Constant)
    )


BANS: tuple[Ban, ...] = (
    Ban("clock", "use env.clock, or loop.time() for timers", module("time")),
    Ban(
        "datetime",
        "use env.clock.wall_ns()",
        either(
            name("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
            name(
                "datetime.date.today",
                "datetime.now",
                "datetime.utcnow",
                "datetime.today",
                "date.today",
            ),
        ),
    ),
    Ban("random", "use env.rng: random() and getrandbits() only", module("random", "secrets")),
    Ban("uuid", "number things, or draw bits from env.rng", module("uuid")),
    Ban("open", "use env.disk.open", either(builtin("open"), name("io.open"))),
    Ban(
        "files",
        "use env.disk; configuration for pids, host names and environment",
        module("os", "io", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl", "platform"),
    ),
    Ban(
        "threads",
        "stay on the event loop; OsDisk has the only thread",
        either(
            module("threading", "_thread", "concurrent", "multiprocessing", "queue"),
            name("asyncio.to_thread", "asyncio.run_coroutine_threadsafe"),
            method("run_in_executor", "call_soon_threadsafe"),
        ),
    ),
    Ban(
        "subprocess",
        "a node starts no programs",
        either(
            module("subprocess", "pty"),
            name("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
        ),
    ),
    Ban(
        "signals",
        "shalott/broker/__main__.py turns signals into an orderly stop",
        either(module("signal"), method("add_signal_handler")),
    ),
    Ban(
        "sockets",
        "use asyncio streams; the simulation has no file descriptors",
        either(
            module("socket", "select", "selectors", "socketserver", "ssl"),
            method("add_reader", "add_writer"),
        ),
    ),
    Ban("set", "use dict.fromkeys(...): it has an order and needs no luck", set_object),
    Ban("hash", "use zlib.crc32 of the bytes: hash() changes with PYTHONHASHSEED", builtin("hash")),
    Ban("id", "number the objects: addresses differ between runs", builtin("id")),
    Ban(
        "weak sets",
        "keep a dict by number: a WeakSet is ordered by address",
        name("weakref.WeakSet"),
    ),
    Ban(
        "as_completed",
        "await the tasks in order, or use gather or a queue",
        name("asyncio.as_completed"),
    ),
    Ban("all_tasks", "keep your own list of tasks, in order", name("asyncio.all_tasks")),
    Ban(
        "eager tasks",
        "create tasks in the ordinary way: the simulation numbers them",
        name("asyncio.eager_task_factory", "asyncio.create_eager_task_factory"),
    ),
    Ban(
        "contexts",
        "let tasks inherit their context: it says which simulated process they belong to",
        either(module("contextvars"), context_argument),
    ),
    Ban("garbage collector", "close what you open; nothing may hang on when it runs", module("gc")),
    Ban(
        "module state",
        "keep state in objects made by the node; annotate constants as Mapping or Sequence",
        module_state,
    ),
)

# (file, ban, why): the few places where the outside world comes in.
EXEMPT: Mapping[tuple[str, str], str] = {
    ("shalott/broker/base/env.py", "clock"): "SystemClock is the operating system's clock",
    ("shalott/broker/base/env.py", "random"): "seeded_rng is the random source of a real node",
    ("shalott/broker/base/tls.py", "files"): "certificates are the operator's, not the node's data",
    ("shalott/broker/base/disk.py", "files"): "OsDisk is the operating system's disk",
    (
        "shalott/broker/base/disk.py",
        "threads",
    ): "OsDisk has the only thread: fsync never blocks the loop",
    ("shalott/broker/base/tls.py", "sockets"): "TLS is for real sockets",
    ("shalott/broker/nodes.py", "files"): "the configuration is read once, before there is a node",
    ("shalott/broker/__main__.py", "files"): "the edge: paths from the command line",
    (
        "shalott/broker/rabbit/ctl/__main__.py",
        "files",
    ): "an operator's command, which no simulation runs",
    (
        "shalott/broker/rabbit/ctl/__main__.py",
        "sockets",
    ): "an operator's command: the machine's name",
    ("shalott/broker/rabbit/ctl/node.py", "files"): "the same: a node's pid file",
    ("shalott/broker/rabbit/ctl/node.py", "threads"): "the same: it reads that file",
    ("shalott/broker/rabbit/ctl/queues.py", "files"): "the same: definitions in a file",
    ("shalott/broker/rabbit/ctl/queues.py", "threads"): "the same: it reads and writes that file",
    ("shalott/broker/__main__.py", "signals"): "the edge: SIGTERM becomes an orderly stop",
    ("shalott/broker/__main__.py", "all_tasks"): "for people to read, when they ask with SIGUSR1",
}


def determinism_violations(source: Source) -> list[str]:
    """One sentence for each banned thing in a file, with its replacement."""
    return [
        f"{source.path}:{line}: {ban.name}: {ban.instead}"
        for line, ban in broker_findings(source)
        if (source.path, ban.name) not in EXEMPT
    ]


# The nodes that a ban can be about; the others are most of a tree. Of the names only those of sets
# are banned by themselves.
BANNABLE = frozenset(
    (
        ast.AnnAssign,
        ast.Assign,
        ast.AsyncFunctionDef,
        ast.Attribute,
        ast.BinOp,
        ast.Call,
        ast.FunctionDef,
        ast.Global,
        ast.Import,
        ast.ImportFrom,
        ast.keyword,
        ast.Name,
        ast.Set,
        ast.SetComp,
    )
)


@cache
def broker_findings(source: Source) -> tuple[tuple[int, Ban], ...]:
    """What of the broker's bans a file breaks, exempt or not, once a line."""
    return tuple(findings(source))


def findings(
    source: Source,
    bans: Sequence[Ban] = BANS,
    harmless: frozenset[ast.AST] = frozenset(),
) -> Iterator[tuple[int, Ban]]:
    """Every banned thing, exempt or not, once a line."""
    scope = Scope(_aliases(source), _run_once(source), harmless)
    seen: dict[tuple[int, str], Ban] = {}
    for node in source.nodes:
        if type(node) not in BANNABLE or (isinstance(node, ast.Name) and node.id not in SET_NAMES):
            continue
        for ban in bans:
            if ban.finds(scope, node):
                seen[getattr(node, "lineno", 1), ban.name] = ban
    for (line, _), ban in sorted(seen.items(), key=lambda item: item[0]):
        yield line, ban


def _run_once(source: Source) -> frozenset[ast.stmt]:
    # Annotated defaults in a class with a base are a structure's fields: msgspec copies them.
    classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
    in_classes = (
        statement
        for node in classes
        for statement in node.body
        if not (node.bases and isinstance(statement, ast.AnnAssign))
    )
    return frozenset((*source.tree.body, *in_classes))


def _aliases(source: Source) -> dict[str, str]:
    """What imported names stand for: {"now": "time.monotonic"}."""
    found = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname is not None:
                    found[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
