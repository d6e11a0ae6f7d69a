"""What every file of the project looks like: sizes, headers, handlers, and words that don't belong.

A rule is a function from a source to sentences, each with the file, the line and what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from tests.tidy.sources import Source

FILE_LINES_MAX = 600
FILE_LINES_WISHED = 400
FUNCTION_LINES_MAX = 70

# Where `except Exception` is right, and why. Anywhere else name what is expected.
CATCHES_ALL: Mapping[str, str] = {
    "shalott/broker/base/disk.py": "the writer's thread hands on to the caller what a call raises",
    "shalott/broker/base/http_server.py": "after a fault of ours a node must answer other requests",
    "shalott/broker/rocket/remoting/server.py": "a failed request is answered",
    "shalott/broker/raft/driver.py": "a timer has no caller: what a step meets must end the node",
    "shalott/core/worker.py": "what a client can't classify is info",
    "shalott/clients/queued_client.py": "a message that came has a value, also if settling failed",
    "shalott/harness/conformance/points.py": "a plug-in that is tried may fail in any way",
    "shalott/clients/cpp/program.py": "what the library raises is told to the process that asked",
    "shalott/clients/amqp_libraries/aio_pika_library.py": "a library raises what it likes",
    "shalott/clients/amqp_libraries/library_client.py": "the wire says what it means",
    "shalott/clients/amqp_libraries/pika_library.py": "a thread's failure is handed to its waiter",
    "shalott/harness/run/run.py": "faults are healed and the report written, always",
    "shalott/checkers/runs/compose.py": "a checker that crashes is unknown, never valid",
    "shalott/broker/rabbit/processes/runtime.py": "a process that crashes must not end the others",
    "shalott/harness/run/simulate.py": "one seed that can't be run must not end a campaign",
    "shalott/checkers/models/outside.py": "a model of others may fail in any way",
    "shalott/checkers/linearizability/transitions.py": "what a model raises is reported",
    "shalott/checkers/linearizability/order_search.py": "what a model raises is no verdict",
    "shalott/harness/cli/explain.py": "a plug-in that breaks keeps no other from being told",
    "shalott/core/doors.py": "somebody else's module may fail in any way, and is told of",
    "shalott/spark_analysis/kernels/judge.py": "one run must not end a fleet's report",
    "shalott/harness/search/workers.py": "all that a worker meets must be reported",
}

# Where everything is caught, as asyncio's own loop and transports do, and why.
CATCHES_BASE: Mapping[str, str] = {
    "shalott/cluster/sim/loop/loop.py": "the loop's exception handler has it",
    "shalott/cluster/sim/network/transport.py": "the loop's exception handler has it",
    "shalott/checkers/linearizability/transitions.py": "nothing is raised through C",
    "shalott/harness/cli/main.py": "Python's own way to end a command has the code of Invalid",
}

# (file, function): where the arguments that are passed on are data, and why.
PASSES_ON: Mapping[tuple[str, str], str] = {}

REMINDERS = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b"
)
MACHINE_PATHS = re.compile(
    r"(?<![\w.}/-])/(?:(?:work|root|home/\w+|Users/\w+)(?=[/\"'\s`)]|$)|tmp(?=/))"
)  # the directory for what is temporary is every machine's; what lies in it is one's
# (file, text): a path that only looks like one of this machine.
PLACES_MEANT: Mapping[tuple[str, str], str] = {}


# What every good file begins with: it is good without being parsed.
HEADER = re.compile(r'"""[^"\s][^"]*"""\n\nfrom __future__ import annotations\n')


def file_length(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{source.path}: {lines} lines, more than {FILE_LINES_MAX}: split it by idea"


def function_length(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield (
                    f"{source.path}:{node.lineno}: {node.name} has {lines} lines, "
                    f"more than {FUNCTION_LINES_MAX}: give its parts names"
                )


def header(source: Source) -> Iterator[str]:
    """A docstring that says what the file does, then the future import; nothing in empty files."""
    if not source.text.strip() or HEADER.match(source.text):
        return
    if not ast.get_docstring(source.tree):
        yield f"{source.path}:1: no module docstring: say in a paragraph what the file does"
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in source.tree.body
    )
    if not imported and len(source.tree.body) > 1:
        yield f"{source.path}:1: add `from __future__ import annotations`"


def handlers(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = [ast.unparse(each) if each is not None else "" for each in caught]
        if "" in names:
            yield f"{source.path}:{node.lineno}: bare except: name what is expected"
        elif (
            "BaseException" in names and not _raises_again(node) and source.path not in CATCHES_BASE
        ):
            yield f"{source.path}:{node.lineno}: except BaseException that does not raise again"
        elif "Exception" in names and source.path not in CATCHES_ALL:
            yield f"{source.path}:{node.lineno}: except Exception: name what is expected"


def _raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


def prints(source: Source) -> Iterator[str]:
    """The command line talks through typer and rich, so nothing has a reason to print."""
    for node in source.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"{source.path}:{node.lineno}: print: say it through the command line, or log it"


def inheritance_of_arguments(source: Source) -> Iterator[str]:
    """``def f(**kwargs): g(**kwargs)`` hides what may be passed."""
    for node in source.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
            continue
        name = node.args.kwarg.arg
        passed_on = any(
            isinstance(inner, ast.keyword)
            and inner.arg is None
            and isinstance(inner.value, ast.Name)
            and inner.value.id == name
            for inner in ast.walk(node)
        )
        if passed_on and (source.path, node.name) not in PASSES_ON:
            yield f"{source.path}:{node.lineno}: {node.name} passes **{name} on: name the arguments"


CODE_RULES: Mapping[str, Callable[[Source], Iterator[str]]] = {
    "file length": file_length,
    "function length": function_length,
    "header": header,
    "handlers": handlers,
    "prints": prints,
    "arguments passed on": inheritance_of_arguments,
}
# Tests are free in their handlers and prints, and a table of cases may be long.
TEST_RULES = ("file length", "header")


def reminders(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if REMINDERS.search(line):
            yield f"{path}:{number}: a reminder left behind: do it, or open an issue"


def machine_paths(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        for match in MACHINE_PATHS.finditer(line):
            if (path, match.group()) not in PLACES_MEANT:
                yield f"{path}:{number}: {match.group()}: an absolute path of one machine"
