"""What may not run inside a simulated cluster besides the broker: its harness, and the simulation.

In a simulated run the stage, the interpreter, the clients, the nemesis and the administration of
the cluster share one event loop with the nodes, and must not depend on the machine either. They
may read files and keep constants; the bans on the broker that remain are here with what the
harness uses instead. Sets are welcome where their order can't show: sorted, counted, compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from tests.tidy.determinism import (
    BANS,
    Ban,
    Scope,
    builtin,
    either,
    findings,
    method,
    module,
    name,
    set_object,
)
from tests.tidy.sources import Source

ROOMS = (
    "shalott/cluster/sim/",
    "shalott/cluster/systems/",
    "shalott/clients/",
    "shalott/nemesis/",
    "shalott/workloads/",
)
FILES = tuple(
    f"{path}.py"
    for path in (
        *(
            f"shalott/cluster/{part}"
            for part in ("cluster", "cut_counts", "http", "nodes", "parts", "system", "waiting")
        ),
        *(
            f"shalott/core/{part}"
            for part in (
                *("client", "consumer_generator", "errors", "generator", "log_generator"),
                *("memory_recording", "message_body", "op", "plan", "queue_generator", "rng"),
                *("subscription", "worker"),
            )
        ),
        *(f"shalott/harness/run/{part}" for part in ("node_watch", "stage")),
    )
)
# Libraries and programs of others, with sockets of their own: refused in a simulation.
NEVER_SIMULATED = (
    "shalott/clients/cpp/",
    "shalott/clients/java/",
    "shalott/clients/programs/",
    "shalott/workloads/programs.py",
    "shalott/clients/amqp_libraries/",
)
ORDERLESS = ("sorted", "len", "min", "max", "sum", "any", "all", "bool")


def is_simulated(path: str) -> bool:
    """Whether a file of this name runs inside simulated clusters, the broker's own aside."""
    if path.startswith(NEVER_SIMULATED):
        return False
    return path.startswith(ROOMS) or path in FILES


def exposed_set(scope: Scope, node: ast.AST) -> bool:
    """A set whose order may show: neither sorted, counted, compared nor an annotation."""
    return node not in scope.harmless and set_object(scope, node)


def exposed_listing(scope: Scope, node: ast.AST) -> bool:
    """A directory's files in the order in which the file system happens to keep them."""
    return node not in scope.harmless and method("iterdir", "glob", "rglob")(scope, node)


def harmless_nodes(tree: ast.Module) -> frozenset[ast.AST]:
    """Expressions whose order can't show, and annotations."""
    return frozenset(part for node in ast.walk(tree) for part in _parts_without_order(node))


def _parts_without_order(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(func=ast.Name(id=called), args=[argument, *_]) if called in ORDERLESS:
            yield from _operands([argument])
        case ast.Compare(left=left, comparators=comparators):
            yield from _operands([left, *comparators])
        case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
            yield from ast.walk(annotation) if annotation else ()
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns):
            yield from ast.walk(returns) if returns else ()


def _operands(expressions: Iterable[ast.expr]) -> Iterator[ast.AST]:
    """The sets that an expression is made of, not what stands inside them."""
    for expression in expressions:
        yield expression
        if isinstance(expression, ast.Call):
            yield expression.func
        elif isinstance(expression, ast.BinOp):
            yield from _operands([expression.left, expression.right])


def _as_in_the_broker(*names: str) -> dict[str, Ban]:
    return {ban.name: ban for ban in BANS if ban.name in names}


def _instead(broker_ban: str, instead: str) -> Ban:
    """A ban of the broker's, with what the harness uses."""
    return Ban(broker_ban, instead, next(ban.finds for ban in BANS if ban.name == broker_ban))


SIMULATED_BANS: tuple[Ban, ...] = (
    _instead("clock", "use asyncio.get_running_loop().time(), or the recorder's now_ns()"),
    _instead("datetime", "use the recorder's clock; dates are made from it afterwards"),
    _instead("random", "use shalott.core.rng: draws keyed by the plan's seed"),
    _instead("uuid", "number things, or draw bits from shalott.core.rng"),
    Ban(
        "machine",
        "take it from the plan, or from the backend",
        either(
            module("os", "platform", "tempfile", "pwd", "getpass"),
            name("socket.gethostname", "socket.getfqdn"),
        ),
    ),
    Ban("directory order", "sort it on the spot: sorted(path.glob(...))", exposed_listing),
    _instead("threads", "stay on the event loop"),
    _instead("subprocess", "only backends start programs; the simulation has none"),
    _instead("signals", "shalott/harness/run/session.py turns signals into an orderly end"),
    _instead("sockets", "use asyncio streams; the simulation has no file descriptors"),
    Ban("set", "sort it on the spot, or use dict.fromkeys(...): it has an order", exposed_set),
    _instead("hash", "use shalott.core.rng.stream_key or zlib.crc32: hash() changes between runs"),
    Ban("id", "number the objects: addresses differ between runs", builtin("id")),
    *_as_in_the_broker(
        "weak sets", "as_completed", "all_tasks", "eager tasks", "contexts", "garbage collector"
    ).values(),
    Ban(
        "module state",
        "keep it in an object of the run: the next run of this process would begin where it ended",
        lambda scope, node: isinstance(node, ast.Global),
    ),
)

_HOLDS_CONTEXTS = "the loop says which simulated process a callback belongs to"
# (file, ban, why)
SIMULATED_EXEMPT: Mapping[tuple[str, str], str] = {
    ("shalott/cluster/sim/loop/loop.py", "contexts"): _HOLDS_CONTEXTS,
    ("shalott/cluster/sim/machine.py", "contexts"): _HOLDS_CONTEXTS,
    ("shalott/cluster/sim/loop/processes.py", "contexts"): _HOLDS_CONTEXTS,
    (
        "shalott/cluster/sim/network/addresses.py",
        "sockets",
    ): "constants, and the error of an unknown name",
    (
        "shalott/cluster/sim/loop/loop.py",
        "garbage collector",
    ): "no finalizer may run while a simulation does",
    (
        "shalott/nemesis/partitions.py",
        "set",
    ): "whom a node sees is compared and asked for, never walked",
    (
        "shalott/nemesis/requirements.py",
        "set",
    ): "capabilities are compared, and sorted when told",
    ("shalott/clients/amqp/connection.py", "machine"): "os.strerror: an error number as text",
}


@cache
def simulated_findings(source: Source) -> tuple[tuple[int, Ban], ...]:
    """Every banned thing, exempt or not, once a line."""
    return tuple(findings(source, SIMULATED_BANS, harmless_nodes(source.tree)))


def simulated_violations(source: Source) -> list[str]:
    """One sentence for each banned thing in a file, with its replacement."""
    return [
        f"{source.path}:{line}: {ban.name}: {ban.instead}"
        for line, ban in simulated_findings(source)
        if (source.path, ban.name) not in SIMULATED_EXEMPT
    ]
